"""From results to tables; nothing here measures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from .figures import best_of, ratio, short, spread

Rounds: TypeAlias = Sequence[Mapping[str, Any] | None]
"""What came of each round; None where it failed."""

Results: TypeAlias = Mapping[str, Mapping[str, Rounds]]
"""Rounds, by measure and contender."""


@frozen
class Table:
    """What is printed, or becomes Markdown."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@frozen
class Figure:
    """One number of a measure."""

    measure: str
    key: str
    title: str
    more_is_better: bool = False


#: What is compared with the best of the others.
COMPARED = (
    Figure("enqueue", "per_s", "enqueue, one by one, jobs/s", more_is_better=True),
    Figure("bulk", "per_s", "enqueue, in bulk, jobs/s", more_is_better=True),
    Figure("drain", "per_s", "drain, one worker, jobs/s", more_is_better=True),
    Figure("drain2", "per_s", "drain, two workers, jobs/s", more_is_better=True),
    Figure("pairs", "per_s", "A, then B, pairs/s", more_is_better=True),
    Figure("pickup50", "p50_ms", "pickup at 50 jobs/s, p50 ms"),
    Figure("pickup50", "p95_ms", "pickup at 50 jobs/s, p95 ms"),
    Figure("pickup50", "p99_ms", "pickup at 50 jobs/s, p99 ms"),
    Figure("pickup500", "p95_ms", "pickup at 500 jobs/s, p95 ms"),
    Figure("pickup2000", "p95_ms", "pickup at 2,000 jobs/s, p95 ms"),
    Figure("pickup500", "durable_ms", "durably completed at 500 jobs/s, mean ms"),
    Figure("pickup500", "postgres_cpu", "PostgreSQL's CPU at 500 jobs/s, %"),
    Figure("drain", "worker_us", "drain, worker's CPU per job, µs"),
    Figure("drain", "postgres_us", "drain, PostgreSQL's CPU per job, µs"),
    Figure("drain", "wal_all_b", "WAL per job, enqueued and drained, B"),
    Figure("drain", "commits", "drain, commits per job"),
    Figure("drain", "dead", "drain, row versions made dead per job"),
    Figure("waves", "last_by_first", "last wave ÷ first", more_is_better=True),
    Figure("idle", "commits_per_s", "idle worker, commits/s"),
    Figure("idle", "worker_cpu", "idle worker, its CPU, %"),
    Figure("idle", "connections", "idle worker, connections"),
)

#: Tables with a row for each contender: title, and columns.
BY_CONTENDER: tuple[tuple[str, tuple[Figure, ...]], ...] = (
    (
        "Enqueue",
        (
            Figure("enqueue", "per_s", "one by one, jobs/s"),
            Figure("enqueue", "client_us", "producer µs"),
            Figure("enqueue", "postgres_us", "PostgreSQL µs"),
            Figure("enqueue", "wal_b", "WAL B"),
            Figure("bulk", "per_s", "in bulk, jobs/s"),
            Figure("bulk", "client_us", "producer µs"),
            Figure("bulk", "postgres_us", "PostgreSQL µs"),
            Figure("bulk", "wal_b", "WAL B"),
        ),
    ),
    (
        "Drain: handlers that do nothing",
        (
            Figure("drain", "per_s", "one worker, jobs/s"),
            Figure("drain2", "per_s", "two workers, jobs/s"),
            Figure("drain", "rss_mb", "memory, MB"),
        ),
    ),
    (
        "What a job of that drain costs, one worker",
        (
            Figure("drain", "worker_us", "worker µs"),
            Figure("drain", "postgres_us", "PostgreSQL µs"),
            Figure("drain", "wal_b", "WAL B"),
            Figure("drain", "wal_all_b", "WAL B, enqueue too"),
            Figure("drain", "commits", "commits"),
            Figure("drain", "dead", "row versions made dead"),
        ),
    ),
    (
        "The same with more worker processes",
        (
            Figure("drain4", "per_s", "four, jobs/s"),
            Figure("drain4", "postgres_us", "PostgreSQL µs"),
            Figure("drain8", "per_s", "eight, jobs/s"),
            Figure("drain8", "postgres_us", "PostgreSQL µs"),
        ),
    ),
    (
        "Each A is followed by a B",
        (
            Figure("pairs", "per_s", "pairs/s"),
            Figure("pairs", "worker_us", "worker µs per job"),
            Figure("pairs", "postgres_us", "PostgreSQL µs per job"),
            Figure("pairs", "wal_b", "WAL B per job"),
            Figure("pairs", "commits", "commits per job"),
        ),
    ),
    *(
        (
            f"From the enqueue call to the handler, at {rate} jobs/s",
            (
                Figure(measure, "offered", "offered, jobs/s"),
                Figure(measure, "p50_ms", "p50 ms"),
                Figure(measure, "p95_ms", "p95 ms"),
                Figure(measure, "p99_ms", "p99 ms"),
                Figure(measure, "durable_ms", "durably completed, mean ms"),
                Figure(measure, "worker_cpu", "worker CPU %"),
                Figure(measure, "postgres_cpu", "PostgreSQL CPU %"),
            ),
        )
        for measure, rate in (("pickup50", "50"), ("pickup500", "500"), ("pickup2000", "2,000"))
    ),
    (
        "An idle worker",
        (
            Figure("idle", "commits_per_s", "commits/s"),
            Figure("idle", "wal_b_per_s", "WAL B/s"),
            Figure("idle", "worker_cpu", "worker CPU %"),
            Figure("idle", "postgres_cpu", "PostgreSQL CPU %"),
            Figure("idle", "connections", "connections"),
        ),
    ),
    (
        "A worker's memory, from a tenth of its jobs to the last",
        (
            Figure("memory", "jobs", "jobs"),
            Figure("memory", "early_mb", "MB then"),
            Figure("memory", "late_mb", "MB at the end"),
            Figure("memory", "growth_mb", "grown by, MB"),
        ),
    ),
)


def values(rounds: Rounds, key: str) -> list[float | None]:
    """Return one number of each round; None where there is none."""
    return [None if found is None else found.get(key) for found in rounds]


def known(rounds: Rounds, key: str) -> list[float]:
    """Return one number of those rounds that have it."""
    return [value for value in values(rounds, key) if value is not None]


def compared(
    results: Results, ours: Sequence[str], peers: Sequence[str], titles: Mapping[str, str]
) -> Table:
    """Set medians beside the best of the others, with the ratio to it."""
    rows = []
    for figure in COMPARED:
        found = results.get(figure.measure, {})
        of_peers = {name: values(found.get(name, ()), figure.key) for name in peers}
        best = best_of(of_peers, more_is_better=figure.more_is_better)
        cells = [figure.title]
        for name in ours:
            mine = values(found.get(name, ()), figure.key)
            cells.append(_median(mine))
            against = ratio(mine, of_peers, more_is_better=figure.more_is_better)
            cells.append("-" if against is None else f"{short(against[0])}")
        cells.append("-" if best is None else f"{_median(of_peers[best])} ({titles[best]})")
        if any(cell != "-" for cell in cells[1:]):
            rows.append(tuple(cells))
    header = [cell for name in ours for cell in (titles[name], "ratio")]
    return Table(
        "Beside the best of the others", ("", *header, "best of the others"), tuple(rows)
    )


def _median(found: Iterable[float | None]) -> str:
    present = [value for value in found if value is not None]
    return short(statistics.median(present)) if present else "-"


def by_contender(
    results: Results, names: Sequence[str], titles: Mapping[str, str]
) -> list[Table]:
    """Make the tables with a row for each contender; those without any figure are left out."""
    tables = []
    for title, figures in BY_CONTENDER:
        rows = _rows(results, names, titles, figures)
        if rows:
            header = ("", *(figure.title for figure in figures))
            tables.append(Table(title, header, rows))
    if "waves" in results:
        tables.append(_waves(results["waves"], names, titles))
    return tables


def _rows(
    results: Results,
    names: Sequence[str],
    titles: Mapping[str, str],
    figures: Sequence[Figure],
) -> tuple[tuple[str, ...], ...]:
    rows = []
    for name in names:
        cells = [
            spread(known(results.get(figure.measure, {}).get(name, ()), figure.key))
            for figure in figures
        ]
        if any(cell != "-" for cell in cells):
            rows.append((titles[name], *cells))
    return tuple(rows)


def _waves(
    found: Mapping[str, Rounds], names: Sequence[str], titles: Mapping[str, str]
) -> Table:
    rows = []
    for name in names:
        for measured in found.get(name, ()):
            if measured is not None:
                rates: Sequence[float] = measured["waves"]
                cells = (rates[0], statistics.median(rates), rates[-1])
                last_by_first = short(measured["last_by_first"])
                jobs = f"{measured['jobs']:,}"
                rows.append((titles[name], jobs, *map(short, cells), last_by_first))
    return Table(
        "A drain in waves, while a session holds an old snapshot",
        ("", "jobs", "first wave, jobs/s", "median", "last", "last ÷ first"),
        tuple(rows),
    )


OWN_COLUMNS = (
    ("per_s", "jobs/s"),
    ("p50_ms", "p50 ms"),
    ("p95_ms", "p95 ms"),
    ("worker_us", "worker µs"),
    ("postgres_us", "PostgreSQL µs"),
    ("wal_b", "WAL B"),
)


def own(
    results: Results,
    groups: Mapping[str, Mapping[str, str]],
    ours: Sequence[str],
    titles: Mapping[str, str],
) -> list[Table]:
    """Make the tables about this project alone.

    Args:
      results: what was found.
      groups: for each table, the titles of its measures.
      ours: the engines.
      titles: of these.
    """
    tables = []
    for group, measures in groups.items():
        rows = []
        for measure, title in measures.items():
            for name in ours:
                rounds = results.get(measure, {}).get(name, ())
                cells = [spread(known(rounds, key)) for key, _ in OWN_COLUMNS]
                if any(cell != "-" for cell in cells):
                    rows.append(
                        (title if len(ours) == 1 else f"{title}, {titles[name]}", *cells)
                    )
        if rows:
            header = ["", *(title for _, title in OWN_COLUMNS)]
            tables.append(_without_empty(Table(group, tuple(header), tuple(rows))))
    return tables


def _without_empty(table: Table) -> Table:
    keep = [
        n
        for n in range(len(table.header))
        if n == 0 or any(row[n] != "-" for row in table.rows)
    ]
    return Table(
        table.title,
        tuple(table.header[n] for n in keep),
        tuple(tuple(row[n] for n in keep) for row in table.rows),
    )


def settings(
    all_settings: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    titles: Mapping[str, str],
) -> Table:
    """Say what was not left at its default."""
    rows = tuple(
        (
            titles[name],
            ", ".join(f"{key} {value}" for key, value in all_settings[name].items()),
        )
        for name in names
    )
    return Table("Settings", ("", "not at their defaults"), rows)


def markdown(table: Table) -> str:
    """Write a table as Markdown, under its title."""
    lines = [
        f"### {table.title}",
        "",
        "| " + " | ".join(table.header) + " |",
        "|---|" + "---:|" * (len(table.header) - 1),
        *("| " + " | ".join(row) + " |" for row in table.rows),
    ]
    return "\n".join(lines)

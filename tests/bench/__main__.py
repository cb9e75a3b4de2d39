"""Run the measures, interleaved, and print a table of medians."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from awa_trio.pg import DevServer

from .measures import MEASURES

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB"}
"""Beside the defaults, which are durable: what any server of this size would have."""


def cpu_of_server(postmaster: int) -> float:
    """Seconds of CPU of all of PostgreSQL's processes, those that have ended too."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid, parent = int(stat.parent.name), int(fields[1])
        if pid == postmaster:
            total += sum(map(int, fields[11:15])) / ticks
        elif parent == postmaster:
            total += sum(map(int, fields[11:13])) / ticks
    return total


class Counters:
    """What the server has done, between two readings."""

    def __init__(self, server: psycopg.Connection[Any], postmaster: int) -> None:
        self._server = server
        self._postmaster = postmaster
        self._lsn: str = self._one("SELECT pg_current_wal_insert_lsn()")
        self._cpu = cpu_of_server(postmaster)

    def _one(self, statement: Any, *parameters: object) -> Any:
        row = self._server.execute(statement, parameters).fetchone()
        assert row is not None
        return row[0]

    def since(self, jobs: float) -> dict[str, float]:
        wal = self._one("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", self._lsn)
        cpu = cpu_of_server(self._postmaster) - self._cpu
        return {"wal_b": float(wal) / jobs, "postgres_us": cpu / jobs * 1e6}


def run(name: str, jobs: int, server: DevServer) -> dict[str, float]:
    """Run one measure once, in a process and a database of its own."""
    postmaster = int((server.root / "data" / "postmaster.pid").read_text().split()[0])
    dsn = server.create_database("bench")
    command = [sys.executable, "-m", "tests.bench.measures", name, dsn, str(jobs)]
    try:
        with (
            psycopg.connect(server.dsn(), autocommit=True) as observer,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            observer.execute("CHECKPOINT")
            spent: dict[str, float] = {}
            counters = Counters(observer, postmaster)
            for line in process.stdout:
                told = json.loads(line)
                if "result" in told:
                    result: dict[str, float] = told["result"]
                    return result | spent
                if told["mark"] == "begin":
                    counters = Counters(observer, postmaster)
                else:
                    spent = counters.since(jobs)
                process.stdin.write("\n")
                process.stdin.flush()
        raise RuntimeError(f"{name} ended without a result")
    finally:
        server.drop_database("bench")


COLUMNS = [
    ("jobs_per_s", "jobs/s"),
    ("python_us", "Python µs"),
    ("postgres_us", "Postgres µs"),
    ("wal_b", "WAL B"),
    ("p50_ms", "p50 ms"),
    ("p95_ms", "p95 ms"),
    ("p99_ms", "p99 ms"),
    ("rss_mb", "RSS MB"),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help="measures whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="how many times as many jobs")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    names = [name for name in MEASURES if not options.only or options.only in name]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with DevServer(settings=SETTINGS) as server:
        version = server.version
        for repeat in range(options.repeats):
            for name in names:
                jobs = int(MEASURES[name][1] * options.scale)
                results[name].append(run(name, jobs, server))
                print(f"\r{repeat + 1}/{options.repeats} {name:<40}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(
        f"PostgreSQL {version}, {os.cpu_count()} cores, Python {sys.version.split()[0]};"
        f" medians of {options.repeats} (least to most), per job"
    )
    rows = [
        [name, *(spread([r[key] for r in results[name] if key in r]) for key, _ in COLUMNS)]
        for name in names
    ]
    if options.markdown:
        print("| measure |", " | ".join(title for _, title in COLUMNS), "|")
        print("|---" * (len(COLUMNS) + 1) + "|")
        for row in rows:
            print("|", " | ".join(row), "|")
        return
    table = Table(box=None, header_style="bold")
    for title in ("measure", *(title for _, title in COLUMNS)):
        table.add_column(title, justify="left" if title == "measure" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=200).print(table)


def spread(values: list[float]) -> str:
    """Return a median with the least and the most, in as many digits as mean something."""
    if not values:
        return "-"

    def short(value: float) -> str:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    if len(values) == 1:
        return short(values[0])
    return f"{short(statistics.median(values))} ({short(min(values))}-{short(max(values))})"


if __name__ == "__main__":
    main()

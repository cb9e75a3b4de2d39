"""Run the measures, interleaved, and print tables of medians and ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from . import contenders, own, page, shared, tables
from .ground import Server, server
from .parent import ChildFailed
from .shared import Result
from .show import print_table
from .tables import Table

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    options.add_argument("--quick", action="store_true", help="few jobs, one round")
    options.add_argument(
        "--only", nargs="+", metavar="NAME", help=f"measures, of: {', '.join(measures())}"
    )
    options.add_argument(
        "--engine", nargs="+", choices=contenders.ENGINES, default=["canonical"]
    )
    options.add_argument(
        "--peers", nargs="*", choices=contenders.PEERS, default=list(contenders.PEERS)
    )
    options.add_argument("--repeats", type=int, help="rounds; default 3")
    options.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    options.add_argument("--markdown", action="store_true", help="print Markdown")
    options.add_argument("--write", action="store_true", help="rewrite docs/benchmarks.md")
    options.add_argument("--save", type=Path, help="keep the figures in a file, as JSON")
    options.add_argument(
        "--read", type=Path, nargs="+", help="show kept figures; measure nothing"
    )
    return options


def measures() -> list[str]:
    """Return the names of all measures."""
    return [*shared.MEASURES, *own.MEASURES]


def chosen(only: Sequence[str] | None) -> list[str]:
    """Return the names that begin with one of those given, or are in a group of that name.

    Raises:
      SystemExit: one of them fits nothing.
    """
    if only is None:
        return measures()
    names = set()
    for wanted in only:
        fits = {wanted} & set(measures()) or {
            name
            for name in measures()
            if name.startswith(wanted)
            or (
                name in own.MEASURES
                and own.MEASURES[name].group.lower().startswith(wanted.lower())
            )
        }
        if not fits:
            raise SystemExit(f"no measure is named {wanted}; there are {', '.join(measures())}")
        names |= fits
    return [name for name in measures() if name in names]


def main() -> None:
    """Measure, or read what was measured, and show it."""
    options = parser().parse_args()
    if options.read:
        kept = merged([json.loads(path.read_text()) for path in options.read])
    else:
        kept = measured(options)
    shown = show(kept)
    if options.markdown:
        print(" ".join(shown.facts), *map(tables.markdown, shown.tables), sep="\n\n")
    else:
        print(*shown.facts, sep="\n")
        for table in shown.tables:
            print_table(Console(width=None if sys.stdout.isatty() else 200), table)
    if options.write:
        write(shown)
    if any(None in rounds for found in kept["results"].values() for rounds in found.values()):
        raise SystemExit(1)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that was asked for; rounds outside, contenders inside."""
    names = [*options.engine]
    for peer in options.peers:
        if (reason := contenders.missing(peer)) is None:
            names.append(peer)
        else:
            print(reason, file=sys.stderr)
    repeats = options.repeats or (1 if options.quick else 3)
    results: dict[str, dict[str, list[Result | None]]] = {}
    with server() as ground:
        kept = {
            "facts": dict(ground.facts()) | machine(),
            "repeats": repeats,
            "quick": options.quick,
            "ours": list(options.engine),
            "titles": {name: contenders.title(name) for name in names},
            "settings": {name: dict(contenders.load(name).settings) for name in names},
            "results": results,
        }
        for turn in range(repeats):
            for name in chosen(options.only):
                for contender, run in runs(ground, name, names, options, turn):
                    results.setdefault(name, {}).setdefault(contender, [])
                    results[name][contender].append(
                        once(run, f"{turn + 1}/{repeats} {name}, {contender}")
                    )
                if options.save:
                    options.save.write_text(json.dumps(kept))
    return kept


def runs(
    ground: Server, name: str, names: Sequence[str], options: argparse.Namespace, turn: int
) -> Sequence[tuple[str, Callable[[], Result]]]:
    """What one measure consists of in one round: of whom, and how."""
    measure = shared.MEASURES.get(name) or own.MEASURES[name]
    if turn and measure.once:
        return []
    quick, scale = options.quick, options.scale
    if isinstance(measure, own.Own):
        jobs = max(1, round((measure.quick if quick else measure.jobs) * scale))
        return [
            (engine, partial(own.run, ground, name, engine, jobs)) for engine in options.engine
        ]
    # Whoever goes first in one round goes last in another.
    names = [name for name in names if name in options.engine or not measure.ours]
    start = turn % len(names)
    asked = []
    for contender in [*names[start:], *names[:start]]:
        jobs = measure.count(name, contender, scale, quick=quick)
        asked.append((contender, partial(shared.run, ground, measure, contender, jobs)))
    return asked


def once(run: Callable[[], Result], what: str) -> Result | None:
    """Measure once; a failure is told, and costs that figure only."""
    begun = time.monotonic()
    try:
        found = run()
    except ChildFailed as error:
        print(f"{what}: failed: {error}", file=sys.stderr)
        return None
    said = next((f"{found[key]:,.6g} {key}" for key in ("per_s", "p95_ms") if key in found), "")
    print(f"{what}: {said} ({time.monotonic() - begun:.1f} s)", file=sys.stderr)
    return found


def machine() -> dict[str, str]:
    """What the figures depend on beside the server."""
    return {"python": platform.python_version(), "cores": str(os.cpu_count())}


def merged(all_kept: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Put several runs together: the later one's figures for a measure replace the others'.

    All contenders' figures for a measure come from one run, so ratios stay what they are.
    """
    kept: dict[str, Any] = {**all_kept[-1]}
    for part in ("titles", "settings", "results"):
        kept[part] = {}
        for one in all_kept:
            kept[part] |= one[part]
    kept["ours"] = list(dict.fromkeys(name for one in all_kept for name in one["ours"]))
    return kept


class Shown:
    """What is to be shown."""

    def __init__(
        self, facts: list[str], all_tables: list[Table], pictures: dict[str, tuple[str, str]]
    ) -> None:
        self.facts = facts
        self.tables = all_tables
        self.pictures = pictures


def show(kept: Mapping[str, Any]) -> Shown:
    """Turn kept figures into what is shown; pure."""
    results, ours, titles = kept["results"], kept["ours"], kept["titles"]
    names = [*ours, *(name for name in titles if name not in ours)]
    peers = [name for name in names if name not in ours]
    groups: dict[str, dict[str, str]] = {}
    for name, measure in own.MEASURES.items():
        groups.setdefault(measure.group, {})[name] = measure.title
    every = [
        tables.compared(results, ours, peers, titles),
        *tables.by_contender(results, names, titles),
        *tables.own(results, groups, ours, titles),
        tables.settings(kept["settings"], names, titles),
    ]
    all_tables = [table for table in every if table.rows]
    facts = kept["facts"]
    rounds = "one round" if kept["repeats"] == 1 else f"{kept['repeats']} rounds, interleaved"
    server_is = (
        f"PostgreSQL {facts['server_version']} with fsync {facts['fsync']}, synchronous_commit"
        f" {facts['synchronous_commit']} and shared_buffers {facts['shared_buffers']};"
        f" Python {facts['python']}; {facts['cores']} cores, which all processes share;"
        f" a write of 8 KiB is durable in {facts['fdatasync_ms']} ms."
    )
    sentences = [server_is, f"Medians of {rounds} (least-most)."]
    if kept["quick"]:
        sentences.append("A quick run: few jobs, so take nothing from it.")
    return Shown(sentences, all_tables, page.pictures(results, ours, names, titles))


def write(shown: Shown) -> None:
    """Rewrite the page of figures, and its plots."""
    folder = PAGE.with_suffix("")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for file, (_, svg) in shown.pictures.items():
        (folder / file).write_text(svg)
    images = {f"{folder.name}/{file}": of for file, (of, _) in shown.pictures.items()}
    figures = page.figures(shown.facts, shown.tables, images)
    PAGE.write_text(page.rewrite(PAGE.read_text(), figures))


if __name__ == "__main__":
    main()

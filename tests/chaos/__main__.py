"""Run workers and producers, let faults strike, and check what must hold all the same."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from awa_trio._app.schema import Engine

from ..bench.page import rewrite
from . import report
from .bugs import BUGS
from .faults import FAULTS, Fault
from .run import Plan, run

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "chaos.md"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    options.add_argument("--seed", type=int, help="repeats a run; default, any")
    options.add_argument("--engine", choices=[*Engine, "both"], default="both")
    options.add_argument(
        "--faults", help=f"some, separated by commas, of: {', '.join(FAULTS)}; default, all"
    )
    length = options.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="how long faults strike; default 1")
    length.add_argument("--rounds", type=int, help="or how often each does")
    options.add_argument("--runs", type=int, default=1, help="with seeds that count on")
    options.add_argument("--workers", type=int, default=3)
    options.add_argument("--producers", type=int, default=2)
    options.add_argument("--rate", type=float, default=4.0, help="jobs a second of each")
    options.add_argument("--connections", type=int, default=300, help="that a server takes")
    options.add_argument(
        "--trace", action="store_true", help="replay it against the models; for some 3,000 jobs"
    )
    options.add_argument(
        "--plant", choices=BUGS, help="break the product first: a violation is to be reported"
    )
    options.add_argument("--keep", type=Path, help="a new folder, for all files of the run")
    options.add_argument("--save", type=Path, help="append the figures to a file, as JSON")
    options.add_argument("--read", type=Path, nargs="+", help="show kept figures; run nothing")
    options.add_argument("--write", action="store_true", help="write docs/explanation/chaos.md")
    return options


def chosen(names: str | None) -> list[Fault]:
    """Return faults by their names, those that can happen on this machine; say which cannot.

    Raises:
      SystemExit: there is none of that name.
    """
    wanted = list(FAULTS) if names is None else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in FAULTS:
            raise SystemExit(f"no fault is named {name!r}; there are {', '.join(FAULTS)}")
    possible = []
    for name in wanted:
        if (why := FAULTS[name].impossible()) is None:
            possible.append(FAULTS[name])
        else:
            print(f"left out: {name}, {why}", file=sys.stderr)
    return possible


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and say what came of it."""
    options = parser().parse_args(arguments)
    if options.read:
        kept = [
            json.loads(line) for path in options.read for line in path.read_text().splitlines()
        ]
        print(*report.table(report.together(kept)), sep="\n")
        if options.write:
            PAGE.write_text(rewrite(PAGE.read_text(), report.markdown(kept)))
        return 0
    faults = chosen(options.faults)
    engines = list(Engine) if options.engine == "both" else [Engine(options.engine)]
    first = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    all_found = []
    for seed in range(first, first + options.runs):
        for engine in engines:
            plan = Plan(
                seed,
                engine,
                faults,
                rounds=options.rounds,
                seconds=float("inf") if options.rounds else 60 * (options.minutes or 1),
                workers=options.workers,
                producers=options.producers,
                rate=options.rate,
                most_connections=options.connections,
                trace=options.trace,
                planted=options.plant,
            )
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                if options.keep:
                    folder = options.keep.resolve() / f"{seed}-{engine}"
                    folder.mkdir(parents=True)
                outcome = run(plan, folder)
            found = report.figures(outcome)
            all_found.append(found)
            print(report.command(outcome), *report.lines(found), "", sep="\n", flush=True)
            if options.save:
                with options.save.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    if len(all_found) > 1:
        print("all runs", *report.table(report.together(all_found)), sep="\n")
    return 1 if any(found["violations"] for found in all_found) else 0


if __name__ == "__main__":
    # Ended politely, it leaves neither servers nor disks behind: Trio knows SIGINT.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main())

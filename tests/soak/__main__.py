"""Run one worker under mixed load, on a server of its own, and say what grew."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import trio
from psycopg.conninfo import make_conninfo
from rich.console import Console

import awa_trio as awa

from ..bench import tables
from ..bench.ground import cpu_of_server, server
from ..bench.page import rewrite
from ..bench.parent import Child
from ..bench.show import print_table
from . import page, sampling
from .app import EXPECTED, app
from .load import Load
from .verdict import BOUNDS, judge
from .worker import LEAKS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "explanation" / "soak.md"
WORKER = "awa_trio soak"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--engine", choices=[*awa.Engine], default=awa.Engine.CANONICAL)
    options.add_argument("--rate", type=float, default=60.0, help="jobs a second")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--every", type=float, help="seconds between samples")
    options.add_argument("--leak", choices=LEAKS, help="let the worker lose some of this")
    options.add_argument("--save", type=Path, help="keep facts and samples, as lines of JSON")
    options.add_argument("--read", type=Path, nargs="+", help="judge what was kept")
    options.add_argument("--write", action="store_true", help=f"rewrite {PAGE.name}")
    return options


def main() -> None:
    """Run it, or read what was kept, and judge."""
    options = parser().parse_args()
    if options.read:
        soaks = [_kept(path) for path in options.read]
    else:
        with options.save.open("w") if options.save else nullcontext() as kept:
            soaks = [run(options, kept)]
    wrong = []
    parts: list[str] = []
    for facts, samples in soaks:
        found = judge(samples)
        said = page.sentences(facts)
        table = page.table(f"The {facts['engine']} engine", found)
        print(*said, sep="\n")
        print_table(Console(width=None if sys.stdout.isatty() else 200), table)
        wrong += [f"not flat: {each.bound.title}" for each in found if each.grows]
        wrong += [f"a job failed otherwise than it was to: {e}" for e in facts["unexpected"]]
        if options.write:
            title = f"The {facts['engine']} engine: a value relative to its median"
            picture = f"soak-{facts['engine']}.svg"
            PAGE.with_name(picture).write_text(page.plot(title, samples, BOUNDS))
            parts += [tables.markdown(table), " ".join(said), f"![{title}]({picture})"]
    if options.write:
        PAGE.write_text(rewrite(PAGE.read_text(), "\n\n".join(parts)))
    if wrong:
        raise SystemExit("\n".join(wrong))


def _kept(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    *samples, facts = map(json.loads, path.read_text().splitlines())
    return facts, samples


def run(
    options: argparse.Namespace, kept: TextIO | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run it, and return what was run and what was seen."""
    seconds = options.minutes * 60
    every = options.every or seconds / 720
    count = round(seconds / every)
    with server() as ground:
        dsn = ground.dev.create_database("soak")
        trio.run(lambda: awa.migrate(dsn, engine=options.engine))
        named = make_conninfo(dsn, application_name=WORKER)
        arguments = [str(every), *([options.leak] if options.leak else [])]
        observer = sampling.Observer(dsn, WORKER, ["default", "probes"])
        spent = cpu_of_server(ground.postmaster)
        with Child("tests.soak.worker", *arguments, AWA_DSN=named) as worker:
            look = Looking(worker, observer, kept, f"{options.minutes:g} minutes")
            done = trio.run(soak, dsn, options.rate, options.seed, count, look)
            # Before the worker ends, and what runs then is interrupted.
            errors = sorted(e for e in observer.errors() if not EXPECTED.match(e))
        observer.close()
        server_cpu = (cpu_of_server(ground.postmaster) - spent) / seconds
        version = ground.facts()["server_version"]
    samples = look.samples
    cpu, took = (samples[-1][name] - samples[0][name] for name in ("cpu", "seconds"))
    facts = {
        "minutes": options.minutes,
        "rate": options.rate,
        "seed": options.seed,
        "engine": str(options.engine),
        "server_version": version,
        "python": platform.python_version(),
        "cpu": cpu / took,
        "server_cpu": server_cpu,
        "done": done,
        "worker": look.worker,
        "unexpected": errors,
    }
    if kept is not None:
        print(json.dumps(facts), file=kept)
    return facts, samples


class Looking:
    """Takes a sample each time the worker says how it is."""

    def __init__(
        self, worker: Child, observer: sampling.Observer, kept: TextIO | None, of: str
    ) -> None:
        self._process = worker
        self._begun = time.monotonic()
        self._observer = observer
        self._kept = kept
        self.samples: list[dict[str, Any]] = []
        self._of = of
        self._before: dict[str, Any] | None = None
        self.worker: dict[str, Any] = {}
        """What the worker counted last."""

    def next(self) -> None:
        """Wait for the worker, and look; called in a thread."""
        told = self._process.hear()
        seconds = time.monotonic() - self._begun
        made = sampling.sample(seconds, told, self._observer.look(), self._before)
        self._before = told
        self.samples.append(made)
        if self._kept is not None:
            print(json.dumps(made), file=self._kept, flush=True)
        self.worker = told["worker"]
        if len(self.samples) % 12 == 0:
            shown = " ".join(
                f"{bound.name}={made[bound.name] / bound.scale:.4g}"
                for bound in BOUNDS
                if made[bound.name] is not None
            )
            print(f"{made['seconds']:.0f} s of {self._of}: {shown}", file=sys.stderr)


async def soak(dsn: str, rate: float, seed: int, count: int, look: Looking) -> dict[str, int]:
    """Load the worker while it is looked at so many times; return what was done."""
    async with awa.connect(dsn, app=app) as client:
        load = Load(client, rate, seed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            for _ in range(count):
                await trio.to_thread.run_sync(look.next)
            nursery.cancel_scope.cancel()
    return dict(load.done)


if __name__ == "__main__":
    main()

"""``awa-trio top``: what happens to jobs, live."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import attrs
import trio
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .. import Activity, Backlog, Client, DatabaseUnavailable, JobDetails, Latency, WorkerRow
from .._times import measured
from ._options import Dsn, Json, connect_once
from ._output import (
    ago,
    cell,
    iso,
    last_error,
    out,
    print_record,
    print_wide,
    share,
    table_of,
    visible,
)
from ._signals import until_signalled
from ._workers import workers_table

#: Rows of each table, where there is room for them.
MOST = 10

#: Lines of the figures, and of what is around the three tables: a title, and a line between.
FIGURES = 3
AROUND = 6


async def top(
    *,
    interval: Annotated[float, Parameter(validator=Number(gte=0.1, lte=3600))] = 1.0,
    window: Annotated[float, Parameter(validator=Number(gte=1, lte=3600))] = 10.0,
    once: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
    dsn: Dsn = "",
) -> int:
    """Watch what happens to jobs: throughput, what waits, workers, the latest failures.

    q or Ctrl-C leaves. Where the output is no terminal, it is printed once.

    Parameters
    ----------
    interval
        Seconds from one look to the next.
    window
        Seconds that the figures are of.
    once
        Look once, and end. With --json it goes on otherwise, a line per look.
    """
    # A dumb one cannot show what changes.
    watchable = out.is_terminal and not out.is_dumb_terminal
    if once or not (json or watchable):
        async with connect_once(dsn) as client:
            look = await _look(client, window, None)
        if json:
            print_record(facts(look))
        else:
            print_wide(_screen(look, "", 100))
        return 0

    async def watch() -> None:
        async with connect_once(dsn) as client:
            if json:
                await _print_on(client, interval, window)
            else:
                await _watch(client, interval, window)

    # However it is left, it was left in peace.
    await until_signalled(watch)
    return 0


@attrs.frozen
class Look:
    """What was seen in one look."""

    activity: Activity
    workers: list[WorkerRow]
    enqueued: float | None
    """Jobs enqueued per second since the look before; None in the first."""


async def _look(client: Client, window: float, before: Look | None) -> Look:
    activity = await client.activity(window)
    workers = await client.workers.list()
    enqueued = None
    if before is not None:
        seconds = (activity.at - before.activity.at).total_seconds()
        new = (activity.newest_id or 0) - (before.activity.newest_id or 0)
        # Retention may have removed the newest.
        enqueued = max(new, 0) / seconds if seconds > 0 else None
    return Look(activity, workers, enqueued)


async def _print_on(client: Client, interval: float, window: float) -> None:
    look = None
    while True:
        look = await _look(client, window, look)
        print_record(facts(look))
        sys.stdout.flush()
        await trio.sleep(interval)


async def _watch(client: Client, interval: float, window: float) -> None:
    """Show a screen until q is pressed; a database that is away is said, and waited for."""
    look: Look | None = None
    with _keys() as descriptor, Live(screen=True, auto_refresh=False, console=out) as live:
        async with trio.open_nursery() as nursery:
            if descriptor is not None:
                nursery.start_soon(_until_left, descriptor, nursery.cancel_scope)
            while True:
                problem = ""
                try:
                    look = await _look(client, window, look)
                except DatabaseUnavailable as error:
                    problem = visible(str(error))
                live.update(_screen(look, problem, out.size.height), refresh=True)
                await trio.sleep(interval)


@contextmanager
def _keys() -> Iterator[int | None]:
    """Let keys come one by one, and unseen, from the terminal, if there is one."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _until_left(descriptor: int, scope: trio.CancelScope) -> None:
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        if select.select([descriptor], [], [], 0)[0]:
            pressed = os.read(descriptor, 64)
            if not pressed or b"q" in pressed.lower():
                scope.cancel(reason="q was pressed")
                return


def facts(look: Look) -> dict[str, Any]:
    """Return what programs are told."""
    now = look.activity
    return {
        "at": iso(now.at),
        "seconds": round(now.seconds, 3),
        "completed": now.completed,
        "failed": now.failed,
        "cancelled": now.cancelled,
        "completed_per_second": round(now.completed_per_second, 3),
        "failed_per_second": round(now.failed_per_second, 3),
        "enqueued_per_second": look.enqueued,
        "due": now.due,
        "pickup": _percentiles(now.pickup),
        "run": _percentiles(now.run),
        "queues": [{"queue": q.queue, "due": q.due, "oldest": q.oldest} for q in now.queues],
        "workers": len([worker for worker in look.workers if worker.alive]),
        "running": sum(worker.running for worker in look.workers),
        "failures": [job.id for job in now.failures],
    }


def _percentiles(latency: Latency | None) -> dict[str, float] | None:
    return None if latency is None else attrs.asdict(latency)


def _screen(look: Look | None, problem: str, lines: int) -> RenderableType:
    """Return what is shown, in so many lines."""
    parts: list[RenderableType] = []
    if problem:
        parts += [Text(problem, style="bold red"), Text("")]
    if look is None:
        return Group(*parts)
    now = look.activity
    room = lines - len(parts) - FIGURES - AROUND
    sizes = [len(now.queues), len(look.workers), len(now.failures)]
    most = share([min(size, MOST) for size in sizes], room)
    tables = [
        _queues(now.queues, most[0]),
        _workers(look.workers, most[1]),
        _failures(now.failures, most[2]),
    ]
    parts += _figures(look)
    for table in tables:
        parts += [] if table is None else [Text(""), table]
    return Group(*parts)


def _figures(look: Look) -> list[Text]:
    """What is so in all: lines that a terminal of 80 columns has room for."""
    now = look.activity
    alive = sum(worker.alive for worker in look.workers)
    running = sum(worker.running for worker in look.workers)
    enqueued = "-" if look.enqueued is None else f"{look.enqueued:,.1f}/s"
    return [
        _line(
            ("completed", f"{now.completed_per_second:,.1f}/s", "green"),
            ("failed", f"{now.failed_per_second:,.1f}/s", "red" if now.failed else ""),
            ("enqueued", enqueued, ""),
            (f"over {now.seconds:.3g} s, at", f"{now.at:%H:%M:%S} UTC", ""),
        ),
        _line(
            ("due", f"{now.due:,}", ""),
            ("running", f"{running:,}", ""),
            ("workers", f"{alive:,}", "" if alive else "bold red"),
        ),
        _line(("pickup", _took(now.pickup), ""), ("run", _took(now.run), "")),
    ]


def _line(*facts: tuple[str, str, str]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, (name, value, style) in enumerate(facts):
        line.append(f"{'   ' if number else ''}{name} ", "bright_black").append(value, style)
    return line


def _queues(queues: Sequence[Backlog], most: int) -> RenderableType | None:
    if not queues:
        return None
    deepest = sorted(queues, key=lambda q: (-q.due, q.queue))[:most]
    ages = ["" if q.oldest is None else measured(q.oldest) for q in deepest]
    rows = [(cell(q.queue), f"{q.due:,}", age) for q, age in zip(deepest, ages, strict=True)]
    return _titled(table_of(("queue", "due", "oldest"), rows), 0, len(rows), len(queues))


def _workers(workers: Sequence[WorkerRow], most: int) -> RenderableType | None:
    if not workers:
        return Text("no workers", style="yellow")
    shown = sorted(workers, key=lambda w: (not w.alive, -w.running, w.id))[:most]
    return _titled(workers_table(shown, brief=True), 1, len(shown), len(workers))


def _failures(jobs: Sequence[JobDetails], most: int) -> RenderableType | None:
    if not jobs:
        return None
    rows = [
        (
            str(job.id),
            cell(job.kind),
            ago(job.finalized_at),
            Text(visible(last_error(job)), style="red", no_wrap=True, overflow="ellipsis"),
        )
        for job in jobs[:most]
    ]
    return table_of(("id", "failed last", "when", "last error"), rows)


def _titled(table: Table, column: int, shown: int, every: int) -> Table:
    """Say over a column of a table how many more there are."""
    if shown < every:
        table.columns[column].header = f"{table.columns[column].header} ({shown} of {every:,})"
    return table


def _took(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    return f"{measured(latency.p50)} median, {measured(latency.p99)} p99"

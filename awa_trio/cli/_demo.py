"""``awa-trio demo``: jobs on real input, and their result checked."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .._times import measured
from ..demo import Progress as DemoProgress
from ..demo import Summary, run_demo
from ._options import Json
from ._output import drawn, err, out, print_record, say
from ._signals import until_signalled

#: Each takes a processor, and some ten connections: many more than that are a slip.
MAX_WORKERS = 64


async def demo(
    *,
    chaos: Annotated[bool, Parameter(negative="")] = False,
    workers: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_WORKERS))] = 2,
    dsn: Annotated[
        str | None, Parameter(help="An empty database. Default, a server of the demo's own.")
    ] = None,
    json: Json = False,
) -> int:
    """Find out what Python's standard library imports, with jobs, and check the result.

    Stage A, one job per source file, parses it and stages one follow-up per module it
    imports. Stage B, one job per distinct module however many files import it, records
    its size. Several worker processes; the numbers must match a plain computation.

    Parameters
    ----------
    chaos
        Kill a worker with SIGKILL about twice a second while jobs get done; the numbers must still match.
    workers
        Worker processes.
    """
    summary: Summary | None = None

    async def run() -> None:
        nonlocal summary
        summary = await _run(workers, chaos, dsn)

    number = await until_signalled(run)
    if summary is None:
        return 128 + (number or 0)
    if json:
        print_record(_facts(summary))
    else:
        _print(summary)
    return 0 if summary.matches else 1


def _facts(summary: Summary) -> dict[str, Any]:
    return {
        "matches": summary.matches,
        "files": summary.files,
        "scans": summary.scans,
        "modules": len(summary.rows),
        "bytes": sum(summary.modules.values()),
        "killed": summary.killed,
        "rescued": summary.rescued,
        "again": summary.again,
        "failed": summary.failed,
        "phantoms": summary.phantoms,
        "seconds": round(summary.seconds, 3),
    }


async def _run(workers: int, chaos: bool, dsn: str | None) -> Summary:
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with drawn(Progress(*columns, console=err)) as bars:
        files = bars.add_task("A: files parsed", total=None)
        modules = bars.add_task("B: modules measured", total=None)

        def watch(progress: DemoProgress) -> None:
            bars.update(files, total=progress.files, completed=progress.files_done)
            bars.update(
                modules, total=progress.modules or None, completed=progress.modules_done
            )
            if chaos:
                bars.update(files, description=f"A: files ({progress.killed} kills)")

        return await run_demo(workers=workers, chaos=chaos, dsn=dsn, watch=watch)


def _print(summary: Summary) -> None:
    good, bad = ("yes", "green"), ("NO", "bold red")

    def verdict(holds: bool) -> tuple[str, str]:
        return good if holds else bad

    once = summary.rows == dict.fromkeys(summary.expected, 1)
    say("")
    say(
        f"{summary.files} files in {summary.scans} jobs led to {len(summary.rows)} distinct modules,"
        f" {sum(summary.modules.values()):,} bytes, in {measured(summary.seconds)}"
    )
    if summary.killed:
        say(
            f"{summary.killed} workers were killed; {summary.rescued} attempts were rescued,"
            f" {summary.again} stage B handlers ran again"
        )
    say(
        "the same modules and sizes as a plain computation:  ",
        verdict(summary.modules == summary.expected),
    )
    say("exactly one stage B job per module:                 ", verdict(once))
    say("no stage B without a completed stage A:             ", verdict(not summary.phantoms))
    say("no job failed:                                      ", verdict(not summary.failed))
    if not summary.matches:
        out.print("the numbers do not match: this is a bug of awa_trio", style="bold red")

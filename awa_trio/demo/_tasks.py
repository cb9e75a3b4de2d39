"""The two stages, as an app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import frozen

from .. import App, Job
from ._library import imported_modules, module_size

#: One follow-up of the 16 that an attempt may stage is left for the rest of the file.
MODULES_A_JOB = 15

Record = Callable[[str, int], Awaitable[None]]


@frozen
class ScanFile:
    """Find what a source file imports."""

    file: str
    skip: int = 0
    """Modules that an earlier job of the same file has seen to."""


@frozen
class MeasureModule:
    """Record the size of a module."""

    name: str


def make_app(record: Record) -> App:
    """Return the demo's app.

    Args:
      record: writes down a module's size.
    """
    app = App()
    app.queue("files", max_workers=4)
    app.queue("modules", max_workers=16)

    @app.task(queue="files")
    def scan_file(job: Job[ScanFile]) -> None:
        """Stage A. An ordinary function, because parsing would block the event loop."""
        modules = imported_modules(job.args.file)
        rest = job.args.skip + MODULES_A_JOB
        for name in modules[job.args.skip : rest]:
            # Unique: whoever stages it first inserts it, and every other is left out.
            job.enqueue_on_completion(MeasureModule(name), unique_opts={})
        if len(modules) > rest:
            job.enqueue_on_completion(ScanFile(job.args.file, rest))

    @app.task(queue="modules")
    async def measure_module(job: Job[MeasureModule]) -> None:
        """Stage B. May run more than once, so what it writes must bear that."""
        await record(job.args.name, module_size(job.args.name))

    return app

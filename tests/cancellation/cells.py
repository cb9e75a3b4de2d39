"""What the matrix is made of: what a handler does, what cuts it, and how it takes that.

A cell is one of each, and a point at which to cut. Everything here is a value, so that the
matrix is their product and nobody writes a cell by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._core.outcome import Cut

from .knife import MOMENTS, Point

if TYPE_CHECKING:
    from .ground import Run

S = awa.JobState


@frozen
class Work:
    """The job that is cut."""

    cell: int


@frozen
class Next:
    """What it stages."""

    cell: int


@frozen
class Side:
    """What it enqueues by itself, at once or with a row of its own."""

    cell: int
    how: str


#: What only an attempt that completes leaves behind.
OUTPUT = "by the handler"

# ---- what a handler does


async def write(job: awa.Job[Work], run: Run) -> None:
    """Everything that writes, and then completes as most jobs do."""
    run.token = await job.register_callback()
    job.progress.set(percent=1)
    await job.flush_progress()
    async with run.told("enqueued"):
        await run.client.enqueue(Side(job.args.cell, "at once"))
    async with run.told("committed"), run.client.transaction() as tx:
        await tx.connection.execute("INSERT INTO mine VALUES (%s)", [job.args.cell])
        await tx.enqueue(Side(job.args.cell, "with a row"))
    await job.wait_for_callback(run.token)
    job.enqueue_on_completion(Next(job.args.cell))
    job.set_output(OUTPUT)


async def complete(job: awa.Job[Work], run: Run) -> None:
    """Complete in a transaction of its own."""
    run.token = await job.register_callback()
    job.set_output(OUTPUT)
    async with run.client._backend.connection() as connection:
        async with job.complete_in(connection) as tx:
            await tx.connection.execute("INSERT INTO mine VALUES (%s)", [job.args.cell])
            await tx.enqueue(Next(job.args.cell))


Script = Callable[[awa.Job[Work], "Run"], Awaitable[None]]
SCRIPTS: dict[str, Script] = {"write": write, "complete_in": complete}

# ---- how it takes being cut


async def plain(script: Script, job: awa.Job[Work], run: Run) -> None:
    await script(job, run)


async def nested(script: Script, job: awa.Job[Work], run: Run) -> None:
    async with trio.open_nursery() as outer:
        outer.start_soon(trio.sleep_forever)
        async with trio.open_nursery() as inner:
            inner.start_soon(script, job, run)
        outer.cancel_scope.cancel()


async def shielded(script: Script, job: awa.Job[Work], run: Run) -> None:
    with trio.CancelScope(shield=True):
        await script(job, run)


async def swallowing(script: Script, job: awa.Job[Work], run: Run) -> None:
    try:
        await script(job, run)
    except BaseException:
        pass


async def raising(script: Script, job: awa.Job[Work], run: Run) -> None:
    try:
        await script(job, run)
    except BaseException:
        raise ValueError("in cleanup") from None


#: The last one is an ordinary function, which a worker runs in a thread.
THREAD = "thread"
SHAPES: dict[str, Callable[[Script, awa.Job[Work], Run], Awaitable[None]]] = {
    "plain": plain,
    "nested nursery": nested,
    "shielded": shielded,
    "swallowing": swallowing,
    "raising in cleanup": raising,
    THREAD: plain,
}

# ---- what cuts it


async def deadline(run: Run) -> None:
    scope = run.attempt.scope
    assert scope is not None
    if scope.deadline < float("inf"):
        scope.deadline = trio.current_time()
    else:  # The clock stands still while it waits: nothing is left when that is over.
        run.attempt._left = 0.0


async def admin_cancel(run: Run) -> None:
    if await run.outside.jobs.cancel(run.job_id, without_follow_ups=True):
        run.succeeded = True
        if run.has_attempt:
            run.attempt.cut(Cut.CANCELLED)


async def lost_lease(run: Run) -> None:
    worker_id = run.worker.id
    assert worker_id is not None
    await run.execute(
        "UPDATE awa.workers SET fenced_at = clock_timestamp() WHERE id = %s", worker_id
    )
    run.worker._parts.life.fenced(worker_id)


async def shutdown(run: Run) -> None:
    run.worker.stop()


async def outer_scope(run: Run) -> None:
    run.scope.cancel()


async def callback_completed(run: Run) -> None:
    try:
        await run.outside.callbacks.complete(run.token, "outside", without_follow_ups=True)
        run.succeeded = True
    except awa.CallbackError:
        pass


async def callback_failed(run: Run) -> None:
    try:
        await run.outside.callbacks.fail(run.token, "outside", without_follow_ups=True)
        run.succeeded = True
    except awa.CallbackError:
        pass


@frozen
class Cause:
    """What cuts an attempt."""

    act: Callable[[Run], Awaitable[None]]
    leaves: frozenset[awa.JobState]
    """Where the job may be afterwards, unless it was completed by its handler."""
    needs: str = ""
    """What there must be: an attempt, or a callback."""
    ends_worker: bool = False


CAUSES = {
    "deadline": Cause(deadline, frozenset({S.RETRYABLE}), "attempt"),
    "admin cancel": Cause(admin_cancel, frozenset({S.CANCELLED})),
    # It waits without a handler, and if it is resumed then, the next life of the worker has it.
    "lost lease": Cause(lost_lease, frozenset({S.RETRYABLE, S.WAITING_EXTERNAL, S.SCHEDULED})),
    "shutdown": Cause(shutdown, frozenset({S.AVAILABLE, S.WAITING_EXTERNAL}), ends_worker=True),
    "outer scope": Cause(
        outer_scope, frozenset({S.AVAILABLE, S.WAITING_EXTERNAL}), ends_worker=True
    ),
    "callback completed": Cause(callback_completed, frozenset({S.COMPLETED}), "callback"),
    "callback failed": Cause(callback_failed, frozenset({S.FAILED}), "callback"),
}


@attrs.frozen
class Cell:
    """One case of the matrix."""

    script: str
    point: Point
    cause: str
    shape: str

    def __str__(self) -> str:
        return f"{self.script}: {self.shape}, {self.cause} {self.point}"


def fits(cause: Cause, points: Sequence[Point], point: Point) -> bool:
    """Whether what a cause needs exists at a point of a run."""
    statement = {"attempt": "claim", "callback": "register_callback", "": ""}[cause.needs]
    if not statement:
        return True
    exists = points.index(Point(statement, 1, MOMENTS[-1]))
    return points.index(point) > exists


def cells(script: str, points: Sequence[Point], *, every: bool) -> Iterator[Cell]:
    """The cells of one script, of which these are the points, in the order passed.

    All of them; or for each point and cause one shape, in turn, so that each cause meets
    each shape.
    """
    shapes = list(SHAPES)
    for n, point in enumerate(points):
        for m, (name, cause) in enumerate(CAUSES.items()):
            if fits(cause, points, point):
                chosen = shapes if every else [shapes[(n + m) % len(shapes)]]
                for shape in chosen:
                    yield Cell(script, point, name, shape)

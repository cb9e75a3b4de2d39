"""Work jobs in a test, one at a time, by the functions a worker calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

import attrs
import trio

from .._app.app import App, registry_of, worker_queues
from .._app.client import Client
from .._app.connections import require_trio
from .._core.job import JobDetails, JobState
from .._core.settings import Retention, Timings
from .._runtime.asyncio_loop import inside
from .._runtime.attempt import Attempt
from .._runtime.enclosure import Enclosure
from .._runtime.observing import observers_or_none
from .._runtime.parts import Parts, assemble
from .._runtime.worker import LAST_WORDS
from .._seam.errors import StoreError
from .._seam.protocol import WorkerStore
from .._seam.values import Want

T = TypeVar("T")

#: Long enough that no test is presumed dead while its author looks at a debugger.
_TIMINGS = Timings(heartbeat=600.0, lease=3600.0, rescue_interval=1.0)

#: Seconds that jobs may take before it is worth a connection to hear what others do to them.
HEAR_AFTER = 0.25


@attrs.frozen
class Worked:
    """What became of one job that was worked."""

    job: JobDetails
    """The job afterwards."""

    @property
    def state(self) -> JobState:
        """The state it moved to."""
        return self.job.state

    @property
    def error(self) -> str | None:
        """What this attempt recorded, if anything."""
        errors = [e for e in self.job.errors if e.attempt == self.job.attempt]
        return errors[-1].error if errors else None


async def work_one(
    app: App,
    client: Client,
    *,
    kind: str | None = None,
    queue: str | None = None,
    resources: Mapping[Any, object] | None = None,
) -> Worked | None:
    """Claim the next job that is due, run it, settle it; return what became of it.

    The same functions as a worker's: staged follow-ups are inserted with its completion,
    and discarded on every other ending; a staging failure poisons it; deadlines cut it.
    So do others, such as a client that cancels it. A handler that waits for a callback goes
    on when a task of the test resolves it, or nobody does in time. What was lost or timed out
    before, as where a job had parked, is dealt with first.

    Args:
      app: the tasks that may run it.
      client: where the jobs are.
      kind: only of this kind; default, any the app knows.
      queue: only of this queue; default, any the app knows.
      resources: instances to give to handlers in place of the app's resources, by the type
          they are requested as. What is left of these, and what a task of ``kind``
          requests, is opened as for a worker.

    Returns:
      None if no job was due.

    Raises:
      WrongEventLoop: not called under Trio.
      ConfigurationError: a handler requests what no resource provides.
      ResourceFailed: a resource of worker scope failed.
      KeyboardInterrupt: the handler was interrupted; the job is recorded as failed.
      SystemExit: the handler raised it; likewise.
    """

    require_trio("work_one")

    async def work(store: WorkerStore, parts: Parts) -> Worked | None:
        return await _work_next(app, store, parts, kind, queue)

    return await _at_workbench(app, client, kind, resources, work)


async def drain(
    app: App,
    client: Client,
    *,
    kind: str | None = None,
    queue: str | None = None,
    most: int = 10_000,
    resources: Mapping[Any, object] | None = None,
) -> list[Worked]:
    """Work jobs one after another until none is due; follow-ups too.

    Args:
      app: the tasks that may run them.
      client: where the jobs are.
      kind: only of this kind; default, any the app knows.
      queue: only of this queue; default, any the app knows.
      most: how many, so that a job that enqueues itself ends the test, not the machine.
      resources: as for `work_one`; opened once for all jobs.

    Raises:
      RuntimeError: ``most`` jobs were worked and another is due.
      WrongEventLoop: as `work_one`.
      ConfigurationError: as `work_one`.
      ResourceFailed: as `work_one`.
      KeyboardInterrupt: as `work_one`.
      SystemExit: as `work_one`.
    """

    require_trio("drain")

    async def work(store: WorkerStore, parts: Parts) -> list[Worked]:
        worked: list[Worked] = []
        while (one := await _work_next(app, store, parts, kind, queue)) is not None:
            worked.append(one)
            if len(worked) > most:
                raise RuntimeError(f"{most} jobs were worked and more are due: give most=...")
        return worked

    return await _at_workbench(app, client, kind, resources, work)


async def _at_workbench(
    app: App,
    client: Client,
    kind: str | None,
    resources: Mapping[Any, object] | None,
    work: Callable[[WorkerStore, Parts], Awaitable[T]],
) -> T:
    """Work with the parts of a worker, but its claims and beats, and little of its upkeep."""
    crashes: list[BaseException] = []
    worked: list[T] = []
    registry = registry_of(app)
    wiring = registry.wire(resources, None if kind is None else [kind])
    async with client._backend.worker_store() as store:
        parts = assemble(
            registry,
            store,
            name="awa_trio.testing",
            queues=worker_queues(app, None),
            timings=_TIMINGS,
            retention=Retention(),
            random=Random(),
            wiring=wiring,
            crashed=crashes.append,
            observers=observers_or_none(client._watching),
        )

        async def finalize() -> None:
            # As in a worker: a cancellation hands the job back, and does not cut that short.
            with trio.CancelScope(shield=True):
                await parts.finalizer.run()

        async def hear() -> None:
            await trio.sleep(HEAR_AFTER)
            with suppress(StoreError):  # what is not heard is found
                await store.listen(parts.ledger.heard, lambda: None)

        async def rescue() -> None:
            with suppress(StoreError, trio.TooSlowError):  # the next round tries again
                # On a clock that jumps a wait outlives any lease.
                await store.beat(await parts.life.present_id())
                await parts.upkeep.rescue()

        async def time_out() -> None:
            """Notice callbacks that nobody answers, while a handler waits for one."""
            while True:
                await trio.sleep(_TIMINGS.rescue_interval)
                if len(parts.waits):
                    await rescue()

        working = trio.CancelScope(shield=True)

        async def watch() -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                # As in a worker: that it stops is known before its attempts are cut.
                parts.ledger.shut_at = min(parts.ledger.shut_at, trio.current_time())
                working.cancel()
                raise

        async def run() -> None:
            failure: Exception | None = None
            async with trio.open_nursery() as sentry:
                sentry.start_soon(watch)
                with working:
                    try:
                        worked.append(await work(store, parts))
                    except Exception as error:
                        failure = error
                sentry.cancel_scope.cancel()
            if failure is not None:
                raise failure

        await parts.life.begin()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(finalize)
                nursery.start_soon(parts.ledger.watch_overdue)
                nursery.start_soon(parts.waits.run)
                nursery.start_soon(parts.ledger.reconcile, parts.life)
                nursery.start_soon(time_out)
                nursery.start_soon(hear)
                nursery.start_soon(parts.asyncio.serve)
                try:
                    await rescue()
                    with inside(parts.asyncio):
                        await parts.resources.hold(run)
                except Exception as error:
                    # Our nursery is our business: what is raised comes out as it was.
                    crashes.append(error)
                finally:
                    parts.finalizer.hurry(LAST_WORDS)
                    parts.finalizer.close()
                    parts.asyncio.close()
                    with trio.CancelScope(shield=True):
                        await parts.asyncio.closed.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_WORDS):
                await parts.life.end()
    for crash in crashes:
        raise crash
    return worked[0]


async def _work_next(
    app: App, store: WorkerStore, parts: Parts, kind: str | None, queue: str | None
) -> Worked | None:
    registry = registry_of(app)
    queues = worker_queues(app, None if queue is None else [queue])
    kinds = {
        name: task.deadline for name, task in registry.tasks.items() if kind in (None, name)
    }
    worker_id = await parts.life.present_id()
    for name, settings in queues.items():
        want = Want(name, 1, settings.deadline, settings.priority_ageing)
        async with parts.dispatcher.lock:  # or it is found to be claimed, and held by nobody
            claimed = await store.claim(worker_id, [want], kinds)
            attempts = [Attempt(job, worker_id) for job in claimed]
            for attempt in attempts:
                parts.ledger.hold(attempt)
        for attempt in attempts:
            async with Enclosure() as enclosure:
                await parts.ledger.run(attempt, enclosure)
            await parts.finalizer.drained()
            return Worked((await store.get([attempt.claimed.id]))[0])
    return None

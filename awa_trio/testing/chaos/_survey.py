"""Every place, and every way to break there: run the same jobs once for each, and look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, TypeAlias, final

import attrs
import trio

from ..._app.app import App, registry_of, worker_queues
from ..._app.client import Client
from ..._app.connect import PgBackend
from ..._app.connections import require_trio
from ..._app.run import run_worker
from ..._core.errors import ConfigurationError, InvalidTransition, JobNotFound
from ..._core.job import JobDetails, JobState
from ..._core.registry import Task
from ..._core.settings import QueueSettings, Retention, Timings
from ..._runtime.worker import Worker
from ..._store.memory.store import MemoryStore
from ._outages import cut_connections, expire_leases
from ._points import Fault, Point
from ._process import worker_process
from ._sabotage import Sabotage, sabotaged
from ._stepping import stepped

Step: TypeAlias = Callable[[Client], Awaitable[object]]

#: Whoever takes over looks often: nobody should have to wait for it.
_SUCCESSOR = Timings(poll_interval=0.05, rescue_interval=0.05, reconcile_interval=1.0)

#: Seconds in which the jobs must come to an end after a crash, on a clock that does not jump.
PATIENCE = 60.0

#: Seconds that a worker which was presumed dead stands still where it may hold locks, unless
#: all is done before.
STANDSTILL = 2.0

#: Seconds that running attempts have when a worker is no longer needed.
GRACE = 5.0

#: Looks at the jobs are so far apart at first, and at last.
LOOKS = (0.005, 1.0)

_UNSETTLED = [state for state in JobState if not state.terminal]


@final
class Broken(AssertionError):
    """What must hold did not, after something broke somewhere.

    Its message has a line for each such place, to be given as ``only``; its cause is what the
    first of them raised.
    """


@attrs.frozen
class Survey:
    """What `crash_everywhere` has done."""

    points: tuple[Point, ...]
    """The places that a run passes that nothing breaks."""
    crashes: int
    """How many runs something broke in."""
    missed: tuple[str, ...]
    """Those in which its place was not passed, and so nothing broke: not always the same
    happens, where sockets and other people's clocks are involved."""


async def crash_everywhere(
    app: App,
    client: Client,
    begin: Step,
    check: Step,
    *,
    faults: Iterable[Fault] = tuple(Fault),
    only: str | Iterable[str] | None = None,
    resources: Mapping[Any, object] | Callable[[Client], Mapping[Any, object]] | None = None,
    meanwhile: Step | None = None,
    program: str | None = None,
    most: int = 1000,
    patience: float | None = None,
) -> Survey:
    """Run jobs once for every place where a worker can break, break it there, and check.

    Places are found by a run in which nothing breaks: each await of a handler, and each call with
    which its worker, or a client that it was given, writes. Each further run is ``begin``; a worker
    that breaks; one that does not, and takes over; until no job that the app can run is left to
    run; ``check``. Between them all jobs are removed. A worker runs one attempt of each queue at a
    time, and failed attempts are retried at once. A handler that was killed does nothing more, not
    even its ``finally``, until after the check; tasks that it had started go on until they write.

    Args:
      app: the tasks that run.
      client: of a database, or a memory, with no jobs in it; they will be removed.
      begin: enqueues, and puts back whatever else the run before has changed.
      check: asserts what must hold at the end, whatever happened.
      faults: ways to break; default, all. `Fault.DISCONNECT` is for calls only.
      only: the lines of a `Broken` to run again, such as ``kill after settle#1``; default, all.
      resources: as for `run_worker`; or a function that returns them, given the client that
          breaks, for handlers that use one.
      meanwhile: a task that runs beside each run, to resolve callbacks, say.
      program: the app as MODULE:APP: then `Fault.KILL` kills a process of its own, with
          SIGKILL, which opens the resources that the app has. PostgreSQL only.
      most: runs, so that a handler that loops ends the test, not the day.
      patience: seconds in which each run must come to its end; default, a minute, or a week for a
          memory, whose clock may jump.

    Raises:
      Broken: the check failed, or jobs did not come to an end, after some of the crashes.
      ConfigurationError: there are jobs already, there are more places than ``most``, or
          ``only`` names none; or ``program`` is given for a memory.
      BaseException: what ``begin`` raises, and ``check`` if nothing was broken.
    """
    require_trio("crash_everywhere")
    in_memory = isinstance(client._backend.store, MemoryStore)
    if program is not None and in_memory:
        raise ConfigurationError("program: a process cannot run jobs that are in memory")
    if await client.jobs.list(limit=1):
        raise ConfigurationError(
            "the client has jobs already, and all jobs are removed between runs; give one with"
            " none, such as memory_client(app), or the fixture awa_client"
        )
    runs = _Runs(
        app,
        client,
        begin,
        check,
        resources,
        meanwhile,
        program,
        patience or (7 * 86_400.0 if in_memory else PATIENCE),
    )
    points = await runs.points()
    wanted = [only] if isinstance(only, str) else only
    cells = [
        (point, fault)
        for point in points
        for fault in faults
        if not (point.in_handler and fault is Fault.DISCONNECT)
    ]
    if wanted is not None:
        names = set(wanted)
        cells = [(point, fault) for point, fault in cells if f"{fault} {point}" in names]
    if not cells or len(cells) > most:
        raise ConfigurationError(
            f"there are {len(cells)} crashes to run, of {len(points)} places: "
            + ("give other faults=, or only=" if not cells else f"give most={len(cells)}")
        )
    broken: list[tuple[str, Exception]] = []
    missed = []
    for point, fault in cells:
        name = f"{fault} {point}"
        try:
            if not await runs.crash(point, fault):
                missed.append(name)
        except Exception as error:
            broken.append((name, error))
        except BaseException as error:
            error.add_note(f"raised after {name}")  # such as what pytest.fail raises
            raise
    if broken:
        raise _report(broken, len(cells)) from broken[0][1]
    return Survey(tuple(points), len(cells), tuple(missed))


def _report(broken: list[tuple[str, Exception]], of: int) -> Broken:
    lines = [f"{len(broken)} of {of} crashes broke what must hold:"]
    for name, error in broken:
        said = str(error).strip().splitlines()
        lines.append(f"  {name}: {type(error).__name__}: {said[0] if said else ''}")
    return Broken("\n".join(lines))


@attrs.frozen
class _Runs:
    """Runs of the same jobs."""

    app: App
    client: Client
    begin: Step
    check: Step
    resources: Mapping[Any, object] | Callable[[Client], Mapping[Any, object]] | None
    meanwhile: Step | None
    program: str | None
    patience: float

    async def points(self) -> list[Point]:
        """The places that a run passes, and whether all holds after it."""
        sabotage = Sabotage(None, trio.lowlevel.checkpoint)
        await self._run(sabotage, None)
        return list(dict.fromkeys(sabotage.passed))

    async def crash(self, point: Point, fault: Fault) -> bool:
        """Run, break, let another carry on, and check; whether the place was passed."""
        if fault is Fault.KILL and self.program is not None:
            return await self._kill_process(self.program, point)
        released = trio.Event()
        sabotage = Sabotage((point, fault), released.wait, shielded=True)
        try:
            await self._run(sabotage, fault, released)
        finally:
            released.set()
        return sabotage.struck.is_set()

    async def _run(
        self, sabotage: Sabotage, fault: Fault | None, released: trio.Event | None = None
    ) -> None:
        await self._clear()
        await self.begin(self.client)
        async with sabotaged(self.client, sabotage) as (breaking, name), _beside() as beside:
            if self.meanwhile is not None:
                beside.start_soon(self.meanwhile, self.client)
            failure: Exception | None = None
            async with trio.open_nursery() as doomed:
                try:
                    worker: Worker = await doomed.start(self._work, breaking, sabotage)
                    await self._until_settled(or_until=sabotage.struck)
                    if not sabotage.struck.is_set():
                        # What is committed is seen before its worker has heard of it: its
                        # last place may be yet to come.
                        worker.stop()
                        await _first_of(worker.wait_ended, sabotage.struck.wait)
                    if sabotage.struck.is_set() and fault is not Fault.DISCONNECT:
                        if fault is Fault.KILL and name:
                            await cut_connections(self.client, named=name)
                        await self._take_over(released)
                    elif not worker.health().stopping:
                        await self._until_settled()
                    if not sabotage.killed():
                        # It goes on, and does whatever it still can.
                        if released is not None:
                            released.set()
                        worker.stop()
                        await worker.wait_ended()
                    if await self._unsettled():
                        await self._take_over(None)
                    await self.check(self.client)
                except Exception as error:
                    failure = error
                finally:
                    if released is not None:
                        released.set()
                    sabotage.end()
                    doomed.cancel_scope.cancel()
            if failure is not None:
                raise failure

    async def _kill_process(self, program: str, point: Point) -> bool:
        assert isinstance(self.client._backend, PgBackend)
        await self._clear()
        await self.begin(self.client)
        async with _beside() as beside:
            if self.meanwhile is not None:
                beside.start_soon(self.meanwhile, self.client)
            dsn = self.client._backend._opener.conninfo
            async with worker_process(program, dsn, die_at=point) as process:
                await self._until_settled(or_until=process.ended)
                died = process.returncode is not None
            await self._take_over(None)
            await self.check(self.client)
        return died

    async def _take_over(self, released: trio.Event | None) -> None:
        """Another worker does the rest: that one is dead, or as good as.

        One that stands still inside a transaction holds what others may need, as in life. It goes
        on, then, when they have waited for a while.
        """
        await expire_leases(self.client)
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            successor: Worker = await nursery.start(self._work, self.client, None)
            try:
                if released is not None and isinstance(self.client._backend, PgBackend):
                    with trio.move_on_after(STANDSTILL):
                        await self._until_settled()
                    released.set()
                await self._until_settled()
            except Exception as error:
                failure = error
            successor.stop()
        if failure is not None:
            raise failure

    async def _work(
        self,
        client: Client,
        sabotage: Sabotage | None,
        task_status: trio.TaskStatus[Worker] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run a worker: one that is to break, or one that is not."""
        given = self.resources(client) if callable(self.resources) else self.resources
        try:
            await run_worker(
                prepared(self.app, sabotage),
                client,
                queues=one_at_a_time(self.app),
                grace=GRACE,
                timings=Timings() if sabotage is not None else _SUCCESSOR,
                random=Random(0),
                resources=given,
                task_status=task_status,
            )
        except Exception:
            # How a dead one ends is nobody's business: in life it does not.
            if sabotage is None or not sabotage.killed():
                raise

    async def _unsettled(self) -> list[JobDetails]:
        # In one question: between two a job completes, and its follow-up is in neither answer.
        jobs = await self.client.jobs.list(state=_UNSETTLED, limit=10_000)
        return [job for job in jobs if job.kind in self.app.kinds]

    async def _until_settled(self, or_until: trio.Event | None = None) -> None:
        """Wait until nothing is left to run.

        Raises:
          AssertionError: that takes too long.
        """
        pause, most = LOOKS
        with trio.move_on_after(self.patience) as scope:
            while await self._unsettled():
                if or_until is None:
                    await trio.sleep(pause)
                else:
                    with trio.move_on_after(pause):
                        await or_until.wait()
                        return
                pause = min(1.3 * pause, most)
        if scope.cancelled_caught:
            left = ", ".join(
                f"{job.id} ({job.kind}, {job.state})" for job in await self._unsettled()
            )
            raise AssertionError(
                f"after {self.patience:g} s these jobs have not come to an end: {left}"
            )

    async def _clear(self) -> None:
        """Remove all jobs."""
        store = self.client._backend.store
        everything = Retention(completed=0, failed=0, dead_letters=0)
        while jobs := await self.client.jobs.list(limit=1000):
            for job in jobs:
                if not job.state.terminal:
                    with suppress(JobNotFound, InvalidTransition):
                        await self.client.jobs.cancel(job.id, without_follow_ups=True)
            await trio.sleep(LOOKS[0])  # what is removed is older than nothing
            await store.prune(everything, 1000)


@asynccontextmanager
async def _beside() -> AsyncIterator[trio.Nursery]:
    """A nursery for what is to run beside a block, and to end with it; its errors come out bare."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait for whichever comes first."""

    async def wait(one: Callable[[], Awaitable[object]]) -> None:
        await one()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for one in waits:
            nursery.start_soon(wait, one)


def prepared(app: App, sabotage: Sabotage | None) -> App:
    """Return an app that retries at once, and whose handlers pass by a sabotage."""
    registry = registry_of(app)
    made = App()
    tasks = {kind: _prepared(task, sabotage) for kind, task in registry.tasks.items()}
    made._registry = attrs.evolve(registry, tasks=tasks)
    return made


def _prepared(task: Task, sabotage: Sabotage | None) -> Task:
    handler = task.handler
    if sabotage is not None and not task.in_thread:
        handler = stepped(handler, sabotage.awaited)
    return attrs.evolve(task, handler=handler, backoff=lambda attempt: 0.0)


def one_at_a_time(app: App) -> dict[str, QueueSettings]:
    """Return the queues of an app, each with room for one attempt: so the same happens each time."""
    queues = worker_queues(app, None).items()
    return {name: attrs.evolve(settings, max_workers=1) for name, settings in queues}

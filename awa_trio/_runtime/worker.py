"""A worker: the nursery tree, and with it the order of shutdown.

Each block outlives the ones inside it, so reading `_serve` upwards is shutting down: no
more claims; the running attempts get their grace; then they are cut; resources close;
settlements under way still commit; heartbeats stop last.

The tree stands in a shield, so that a cancellation from outside is an orderly "now"
rather than a blow to every task at once: a sentry outside it notices, and cuts.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Any, final

import attrs
import trio

from .._core.errors import (
    AwaError,
    ConfigurationError,
    DatabaseUnavailable,
    ResourceFailed,
    SchemaMissing,
    WorkerCrashed,
)
from .._core.events import Listening, Stopped
from .._core.health import Vitals, WorkerHealth, judge
from .._core.job import JobState
from .._core.registry import Registry
from .._core.report import places
from .._core.settings import QueueSettings, Retention, Timings
from .._seam.errors import Lasting, StoreError
from .._seam.hearing import Disconnected, GotWork, News, Overridden, Reconnected
from .._seam.protocol import WorkerStore
from .asyncio_loop import inside
from .observing import Observers, said
from .parts import assemble

logger = logging.getLogger("awa_trio.worker")

#: Seconds that settlements may still take once the worker was told "now".
LAST_WORDS = 5.0

#: Seconds to hand back what was given up, and then to unregister. A database that answers
#: takes a few milliseconds.
HAND_BACK = 2.0

#: The shortest and the longest pause before a service that failed is started again.
PAUSES = (0.1, 5.0)

#: A service that is refused so often in a row, for want of rights, is not started again:
#: the rights to its tables alone may have been taken away.
MOST_REFUSALS = 6


@attrs.frozen
class WorkerStatistics:
    """What a worker is doing at this moment, and has done in its life."""

    running: int
    """Attempts whose handlers have not ended."""
    waiting: int
    """Of these, those that wait for a callback; others have their slots."""
    overdue: int
    """Of these, those that were cut, did not end, and were settled without waiting."""
    finalizing: int
    """Settlements on their way to the database."""
    settled: Mapping[JobState, int]
    """Settlements that applied, by the state the job moved to."""
    stale: int
    """Settlements that came too late: the job was someone else's already."""
    given_up: int
    """Settlements that could not be made in time."""
    inserted: int
    """Follow-ups enqueued."""
    duplicates: int
    """Follow-ups left out because a job holds their unique key."""
    discarded_by_parking: int
    """Staged follow-ups discarded because their handler returned `WaitForCallback`."""
    rescued: int
    """Attempts taken from workers that are dead."""
    fired: int
    """Instants of schedules it fired for."""
    claims: int
    """Claims made, with those that found nothing."""
    sets: int
    """Transactions that settled attempts."""
    lives: int
    """How often it has registered: more than once if it was presumed dead."""
    leads: bool
    """Whether it does the upkeep for all workers."""


@final
class Worker:
    """A running worker, as `run_worker` gives it to whoever started it."""

    def __init__(
        self,
        registry: Registry,
        store: WorkerStore,
        *,
        queues: Mapping[str, QueueSettings],
        grace: float,
        timings: Timings,
        retention: Retention,
        name: str | None,
        listen: bool,
        random: Random,
        resources: Mapping[Any, object] | None,
        max_waiting: int,
        cap: int | None = None,
        declared: Mapping[str, QueueSettings] | None = None,
        observers: Observers | None = None,
    ) -> None:
        if not registry.tasks:
            raise ConfigurationError("this app has no tasks; register one with @app.task(...)")
        self._store = store
        self._grace = grace
        self._timings = timings
        self._listen = listen
        self._queues = tuple(queues)
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._claiming = trio.CancelScope()
        self._drain = trio.CancelScope()
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self._crash: BaseException | None = None
        self._observers = observers

        self._parts = assemble(
            registry,
            store,
            name=self._name,
            queues=queues,
            timings=timings,
            retention=retention,
            random=random,
            wiring=registry.wire(resources),
            crashed=self._crashed,
            max_waiting=max_waiting,
            cap=cap,
            declared=declared,
            observers=observers,
            listening=lambda: self._parts.dispatcher.hears,
        )

    @property
    def id(self) -> int | None:
        """Its ID in the database; None while it is between two lives, or has ended."""
        return self._parts.life.id

    @property
    def name(self) -> str:
        """How people know it: host and process, unless given."""
        return self._name

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues it serves."""
        return self._queues

    def stop(self) -> None:
        """Claim no more, let the running attempts end within the worker's grace, then return.

        Never blocks; calling it again changes nothing. To stop at once, cancel the scope
        in which the worker runs.
        """
        self._stopping.set()
        self._claiming.cancel(reason="awa_trio: worker.stop()")

    async def wait_stopping(self) -> None:
        """Wait until it claims no more: it was told to stop, was cancelled, or has ended."""
        await self._stopping.wait()

    async def wait_ended(self) -> None:
        """Wait until it has ended, however it did."""
        await self._ended.wait()

    def health(self, *, answer_within: float | None = None) -> WorkerHealth:
        """Say whether it is alive, and ready for jobs; without asking the database.

        The event loop that this is called in is the worker's, so a worker whose loop is
        blocked says nothing. `awa_trio.health` serves it over HTTP, and tells systemd.

        Args:
          answer_within: seconds in which the database must have answered a beat; default,
              three beats' time.
        """
        came_round, answered = self._parts.life.silence()
        return judge(
            Vitals(
                worker_id=self._parts.life.id,
                stopping=self._stopping.is_set(),
                ended=self._ended.is_set(),
                came_round=came_round,
                answered=answered,
                listens=self._listen,
                hears=self._parts.dispatcher.hears,
            ),
            lease=self._timings.lease,
            heartbeat=self._timings.heartbeat,
            answer_within=answer_within,
        )

    def statistics(self) -> WorkerStatistics:
        """Count what it is doing, and has done."""
        counts = self._parts.ledger.counts
        return WorkerStatistics(
            running=len(self._parts.ledger.running()),
            waiting=self._parts.dispatcher.waiting,
            overdue=self._parts.ledger.overdue(),
            finalizing=self._parts.finalizer.backlog,
            settled=dict(counts.settled),
            stale=counts.stale,
            given_up=counts.given_up,
            inserted=counts.inserted,
            duplicates=counts.duplicates,
            discarded_by_parking=counts.discarded_by_parking,
            rescued=self._parts.upkeep.rescued,
            fired=self._parts.firing.fired,
            claims=self._parts.dispatcher.claims,
            sets=self._parts.finalizer.sets,
            lives=self._parts.life.lives,
            leads=self._parts.upkeep.leads,
        )

    # ---- the tree

    async def serve(self, started: Callable[[], None]) -> None:
        """Run until stopped, cancelled, or brought down by a bug.

        Args:
          started: called once it is registered, hears news, and is about to claim.

        Raises:
          StoreError: it could not register, or could not begin to hear news.
          trio.TooSlowError: nor did that fail, in time.
          ResourceFailed: a resource of the worker failed, and took the worker down.
          SchemaMissing: the schema was dropped while it ran.
          DatabaseUnavailable: the database was.
          ConfigurationError: its role lost its rights while it ran.
          WorkerCrashed: one of its services failed in a way that is a bug.
          KeyboardInterrupt: a handler was interrupted; its job is recorded as failed.
          SystemExit: a handler asked for it; likewise.
        """
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as sentry:
                sentry.start_soon(self._watch_caller, name="awa:sentry")
                with trio.CancelScope(shield=True):
                    try:
                        with inside(self._parts.asyncio):
                            await self._serve(started)
                    except BaseException as error:
                        failure = _only(error)
                sentry.cancel_scope.cancel()
        finally:
            self._stopping.set()
            self._ended.set()
            # A cancellation from outside must not hide it.
            if self._crash is not None:
                raise self._crash
        if failure is not None:
            raise failure

    async def _watch_caller(self) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self._cut_now("the worker's scope was cancelled")
            raise

    def _cut_now(self, reason: str) -> None:
        """Stop at once: cut every attempt, and give settlements a few seconds."""
        self._stopping.set()
        self._claiming.cancel(reason=f"awa_trio: {reason}")
        self._drain.cancel(reason=f"awa_trio: {reason}")
        self._parts.resources.cut()
        self._parts.ledger.shut_at = min(self._parts.ledger.shut_at, trio.current_time())
        self._parts.finalizer.hurry(LAST_WORDS)

    def _crashed(self, error: BaseException) -> None:
        # The dispatcher names its tasks so, for whoever looks at them.
        job = re.fullmatch(r"awa:job:(\d+):(.*)", trio.lowlevel.current_task().name, re.DOTALL)
        if job is not None:
            error.add_note(f"raised by job {job[1]} ({job[2]})")
        self._crash = self._crash or error
        self._cut_now(f"{type(error).__name__} in a handler or a service")

    async def _serve(self, started: Callable[[], None]) -> None:
        await self._parts.life.begin()
        try:
            await self._parts.steering.begin()
            async with trio.open_nursery() as services:  # they stop last
                services.start_soon(self._service, "heartbeat", self._parts.life.heartbeat.run)
                services.start_soon(self._service, "life", self._parts.life.run)
                if self._listen:
                    await services.start(self._hear)
                services.start_soon(self._service, "upkeep", self._parts.upkeep.run)
                services.start_soon(self._service, "schedules", self._parts.firing.run)
                services.start_soon(self._service, "steering", self._parts.steering.run)
                services.start_soon(self._service, "progress", self._parts.progress.run)
                services.start_soon(self._service, "waits", self._parts.waits.run)
                if self._parts.sampler is not None:
                    services.start_soon(self._service, "sampler", self._parts.sampler.run)
                services.start_soon(self._service, "overdue", self._parts.ledger.watch_overdue)
                services.start_soon(self._service, "teller", self._parts.ledger.tell_others)
                services.start_soon(
                    self._service,
                    "reconcile",
                    partial(self._parts.ledger.reconcile, self._parts.life),
                )
                async with trio.open_nursery() as finalizers:
                    finalizers.start_soon(self._service, "finalizer", self._parts.finalizer.run)
                    finalizers.start_soon(
                        self._service, "asyncio loop", self._parts.asyncio.serve
                    )
                    try:
                        await self._parts.resources.hold(partial(self._work_watched, started))
                    except ResourceFailed as failure:
                        self._crashed(failure)
                    self._parts.asyncio.close()
                    await self._hand_back()
                    self._parts.finalizer.close()
                services.cancel_scope.cancel()
        finally:
            self._parts.waits.close()
            await self._unregister()

    async def _work_watched(self, started: Callable[[], None]) -> None:
        """Work; and notice if a resource around it fails, which cancels this."""
        done = False

        async def watch() -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                if not done:
                    self._cut_now("a resource of the worker failed")
                raise

        async with trio.open_nursery() as sentry:
            if self._parts.resources.any_of_worker:
                sentry.start_soon(watch, name="awa:resources")
            await self._work(started)
            done = True
            sentry.cancel_scope.cancel()

    async def _work(self, started: Callable[[], None]) -> None:
        """Claim and run until stopped; returns when every attempt has ended."""
        started()
        ledger = self._parts.ledger
        try:
            with self._drain:
                async with trio.open_nursery() as attempts:
                    with self._claiming:
                        claim = partial(self._parts.dispatcher.claim, attempts)
                        await self._service("dispatcher", claim)
                    self._parts.dispatcher.close()
                    self._drain.deadline = trio.current_time() + self._grace
                    ledger.shut_at = min(ledger.shut_at, self._drain.deadline)
                    ledger.stop_waiting()
        finally:
            # Now: resources may take their time to close.
            ledger.hand_back(self._parts.dispatcher.unstarted())

    async def _hand_back(self) -> None:
        """Leave no row marked as ours. Where that fails, rescue does it."""
        finalizer = self._parts.finalizer
        finalizer.end_within(self._timings.finalize_deadline)
        await finalizer.drained()
        finalizer.end_within(HAND_BACK)
        with trio.move_on_at(finalizer.latest):
            try:
                if self._parts.life.id is not None:
                    await self._parts.ledger.reconcile_once(self._parts.life.id)
            except (StoreError, trio.TooSlowError) as error:
                logger.warning("could not compare with the rows at the end: %s", said(error))

    async def _unregister(self) -> None:
        worker_id = self._parts.life.id
        try:
            with trio.fail_after(HAND_BACK):
                await self._parts.life.end()
        except (StoreError, trio.TooSlowError) as error:
            logger.warning("could not unregister: %s; the lease will run out", said(error))
        if worker_id is not None and self._observers is not None:
            self._observers.tell(Stopped(worker_id))

    async def _service(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a service: again if the database failed it, and down with the worker if a bug did."""
        pause = PAUSES[0]
        refusals = 0
        while True:
            begun = trio.current_time()
            try:
                await run()
                return
            except (StoreError, trio.TooSlowError) as error:
                if trio.current_time() - begun > 10 * pause:
                    pause = PAUSES[0]
                    refusals = 0
                lasting = getattr(error, "lasting", None)
                refusals += lasting is Lasting.RIGHTS
                if lasting is not None and (
                    refusals == MOST_REFUSALS or await self._lasts(lasting)
                ):
                    if self._crash is None:
                        logger.critical("%s, and the worker ends", lasting.value)
                    self._crashed(_ending(lasting, error))
                    return
                logger.warning(
                    "the %s failed (%s): it starts again in %.2g s",
                    name,
                    said(error),
                    pause,
                )
                await trio.sleep(pause)
                pause = min(2 * pause, PAUSES[1])
            except Exception as raised:
                bug = _only(raised)
                # The error is raised to whoever started the worker; its message stays there.
                logger.critical(
                    "the %s failed, and takes the worker down:\n%s", name, places(bug)
                )
                crash = WorkerCrashed(f"the worker's {name} failed with {type(bug).__name__}")
                crash.__cause__ = bug
                self._crashed(crash)
                return

    async def _lasts(self, lasting: Lasting) -> bool:
        """Whether the simplest call says so too."""
        try:
            with trio.fail_after(self._timings.call_timeout):
                await self._store.beat(self._parts.life.id or 0)
        except (StoreError, trio.TooSlowError) as second:
            return getattr(second, "lasting", None) is lasting
        return False

    async def _hear(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Hear news; a first connection that fails is the caller's to know."""
        await self._store.listen(self._heard, task_status.started)

    def _heard(self, news: News) -> None:
        self._parts.ledger.heard(news)
        match news:
            case GotWork(queue):
                self._parts.dispatcher.got_work(queue)
            case Overridden():
                self._parts.steering.heard()
            case Reconnected():
                self._parts.steering.heard()
                self._hears(True)
                self._parts.dispatcher.got_work()
            case Disconnected():
                self._hears(False)
                self._parts.dispatcher.got_work()
            case _:
                pass

    def _hears(self, connected: bool) -> None:
        self._parts.dispatcher.hears = connected
        if self._observers is not None:
            self._observers.tell(Listening(connected))


def _ending(lasting: Lasting, error: Exception) -> AwaError:
    """What a worker ends with that has nothing left to work with."""
    match lasting:
        case Lasting.SCHEMA:
            return SchemaMissing()
        case Lasting.DATABASE:
            ending: AwaError = DatabaseUnavailable(
                "the worker's database was dropped while it ran; create it again, with"
                " awa-trio migrate, or give another DSN"
            )
        case Lasting.RIGHTS:
            ending = ConfigurationError(
                f"the worker's role lost its rights while it ran ({error}); GRANT it USAGE on"
                " the awa schema, and rights on what is in it"
            )
    ending.__cause__ = error.__cause__ or error
    return ending


def _only(error: BaseException) -> BaseException:
    """The one exception in a group of one, as it was raised: our nurseries are our business."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

"""The client: put jobs in, look at them, cancel them, retry them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from typing import Any, Protocol, Unpack, final

import anyio
import psycopg

from .._core import events
from .._core.history import History
from .._core.job import PreparedInsert
from .._core.observer import Observer
from .._core.request import EnqueueOptions
from .._runtime.observing import Observers, enqueueing, observers_or_none, told
from .._seam.protocol import Store, WorkerStore
from .._seam.values import Enqueued
from . import calls
from .app import App, registry_of
from .callbacks import Callbacks
from .calls import public_errors, transaction_errors
from .dead_letters import DeadLetters
from .depth import Depths, WhenFull
from .jobs import Jobs
from .joining import (
    codec_of,
    enqueue_many_prepared,
    prepare,
    prepare_many,
)
from .moving import Mover
from .queues import Queues
from .schedules import Schedules
from .workers import Activity, Workers, read_activity, read_history


class Backend(Protocol):
    """What a client stands on."""

    @property
    def store(self) -> Store:
        """Where the client's own calls go."""
        ...

    def worker_store(self) -> AbstractAsyncContextManager[WorkerStore]:
        """Open a store for one worker, with connections of its own."""
        ...

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Borrow a connection."""
        ...


@final
class Client:
    """Puts jobs in and looks at them; `connect` makes one. Runs on Trio and on asyncio.

    ``client.jobs`` looks at jobs, cancels and retries them (`Jobs`); ``client.dlq`` does so
    with those that failed (`DeadLetters`); ``client.callbacks`` resolves what jobs wait for
    (`Callbacks`); ``client.queues`` looks at queues and steers them (`Queues`);
    ``client.cron`` looks at schedules, pauses and triggers them (`Schedules`);
    ``client.workers`` lists who runs them (`Workers`).

    Every method may be cancelled. Cancelled means that it did not happen, on Trio; on
    asyncio it may have.
    """

    def __init__(
        self, backend: Backend, app: App | None, observers: Sequence[Observer] = ()
    ) -> None:
        self._backend = backend
        self._app = app
        self._watching = tuple(observers)
        self._observers = observers_or_none(observers)
        mover = Mover(backend.store, app, self._observers)
        self.jobs = Jobs(backend.store, app, mover)
        self.dlq = DeadLetters(backend.store)
        self.callbacks = Callbacks(backend.store, mover)
        self.workers = Workers(backend.store)
        self.cron = Schedules(backend.store, app, self._enqueue)
        self._depths = Depths(backend.store, app)
        self.queues = Queues(backend.store, self._depths)

    async def enqueue(
        self,
        args: object,
        /,
        *,
        when_full: WhenFull = "raise",
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Enqueue a job, in a transaction of its own.

        Where the app sets a queue's ``max_depth``, its jobs that are due are counted before: at
        the first, then after half of the room that was found has been used, or a second. So the
        limit is a soft one, by as much as producers put in at the same time. Jobs of the future
        are not counted. Follow-ups are never refused.

        Args:
          args: its arguments: an instance of an args class, a dict, or an `EnqueueRequest`.
          when_full: ``"raise"``, or ``"wait"`` until the queue has room; a cancel scope bounds
              it.
          kind (str): default, as the class is registered, or its name in snake case.
          queue (str): default, its task's, else ``default``. At most 200 characters.
          priority (int): 1 runs first, 4 last. Default 2.
          max_attempts (int): attempts it may spend, 1 to 1000. Default 25.
          tags (Sequence[str]): at most 20.
          metadata (Mapping): a JSON object, passed on to the handler. Keys that begin with
              ``awa:`` are refused.
          run_at (datetime): earliest start, timezone-aware. Default, at once.
          unique_opts (UniqueOpts | Mapping): at most one such job among those in certain
              states; ``{}`` means the default options. Default, no deduplication.
          ordering_key (str): jobs of one queue with one key start in the order they became
              due, one at a time. At most 200 characters. Default, no order.
          limit_key (str): what ``max_per_key`` and ``rate_per_key`` of its queue count by: a
              customer, an account. At most 200 characters. Default, no limit.
          deadline (float): seconds an attempt may take; 0 for no limit. Default, its
              task's, else its queue's.

        Returns:
          The new job's ID; or, with ``inserted`` False, the ID of the job that holds the
          same unique key.

        Raises:
          InvalidRequest: the request breaks a rule; the message names the option, or the
              path to the value. Nothing was sent.
          UnknownKind: the client was given an app, which does not know the kind.
          QueueFull: the queue has no room below its ``max_depth``.
          QueueDraining: somebody drains the queue.
          ValueError: ``when_full`` is another word.
          DatabaseUnavailable: PostgreSQL could not be reached, or the answer was lost:
              then the job may exist. Enqueue with ``unique_opts`` to be able to repeat it.
        """
        return (await self._enqueue([prepare(self._app, args, options)], when_full))[0]

    async def enqueue_many(
        self,
        jobs: Iterable[object],
        /,
        *,
        when_full: WhenFull = "raise",
        **options: Unpack[EnqueueOptions],
    ) -> list[Enqueued]:
        """Enqueue many jobs in one transaction: all of them or none.

        More than a queue's ``max_depth`` are let in only while none of it is due.

        Args:
          jobs: arguments or `EnqueueRequest`\\ s, each as for `enqueue`.
          when_full: as for `enqueue`.
          options: as for `enqueue`, for every job that is not an `EnqueueRequest`.

        Returns:
          What became of each, in order. Of several with one unique key the first is
          inserted, and the others name it.

        Raises:
          InvalidRequest: one of the requests breaks a rule; nothing was sent.
          UnknownKind: as `enqueue`.
          QueueFull: as `enqueue`, of one of the queues.
          QueueDraining: as `enqueue`.
          ValueError: as `enqueue`.
          DatabaseUnavailable: as `enqueue`.
        """
        return await self._enqueue(prepare_many(self._app, jobs, options), when_full)

    async def _enqueue(
        self, jobs: list[PreparedInsert], when_full: WhenFull = "raise"
    ) -> list[Enqueued]:
        if self._app is not None and registry_of(self._app).limits_depth:
            await self._depths.admit(jobs, when_full)
        if self._observers is None or not jobs:
            with public_errors("enqueueing"):
                return await self._backend.store.enqueue(jobs)
        with enqueueing(self._observers, codec_of(self._app), jobs) as watched:
            with public_errors("enqueueing"):
                answers = await self._backend.store.enqueue(watched)
            self._observers.tell(told(watched, answers))
        return answers

    async def activity(self, seconds: float = 60.0) -> Activity:
        """Look at what has happened to jobs lately: for a screen that people watch.

        What it costs is bounded, whatever there is: of jobs that ended in each state, it
        looks at the latest 5,000, and of each queue it counts 10,000 jobs that are due.

        Args:
          seconds: how far to look back, up to an hour. Where more jobs ended, the figures are
              of a shorter time: `Activity.seconds`.

        Raises:
          ValueError: the seconds are out of range.
          TypeError: they are no number.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        return await read_activity(self._backend.store, seconds)

    async def history(self, seconds: float = 600.0, *, step: float = 5.0) -> History:
        """Look at what has happened to jobs lately, step by step: for plots.

        What it costs is bounded, whatever there is: of jobs that ended in each state, it looks
        at the latest 20,000.

        Args:
          seconds: how far to look back, up to an hour.
          step: seconds of each step, at least 1. Steps begin at multiples of it since 1970, so
              that those of one look are those of the next.

        Raises:
          ValueError: the seconds or the step are out of range.
          TypeError: they are no numbers.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        return await read_history(self._backend.store, seconds, step)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction in which jobs and rows of your own commit together.

        Leaving the block commits; an exception, or a cancellation, rolls back.

        Raises:
          DatabaseUnavailable: PostgreSQL could not be reached, or the connection was lost,
              while the transaction was opened or committed. In the latter case it may
              have committed.
          psycopg.Error: a deferred constraint refuses the commit. What your own statements
              raise is yours.
        """
        block = AsyncExitStack()
        try:
            with transaction_errors("opening a transaction"):
                connection = await block.enter_async_context(self._backend.connection())
                await block.enter_async_context(connection.transaction())
            transaction = Transaction(connection, self._app, self._observers)
            yield transaction
        except BaseException as error:
            # Rolling back is bounded too; a connection that cannot is closed, which does it.
            with anyio.move_on_after(calls.CALL_TIMEOUT), suppress(psycopg.Error):
                if await block.__aexit__(type(error), error, error.__traceback__):
                    return
            raise
        with transaction_errors("committing a transaction, which may have happened"):
            await block.aclose()
        transaction._committed()


@final
class Transaction:
    """An open transaction; `Client.transaction` makes one."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        app: App | None,
        observers: Observers | None = None,
    ) -> None:
        self.connection = connection
        """The connection, for statements of your own."""
        self._app = app
        self._observers = observers
        self._events: list[events.Enqueued] = []

    async def enqueue(self, args: object, /, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Enqueue a job that exists if and when this transaction commits.

        Arguments and results are those of `Client.enqueue`. A queue's ``max_depth`` is not
        looked at: what waits in a transaction keeps others waiting. `Queues.wait_for_room`
        before it does.

        Raises:
          InvalidRequest: the request breaks a rule; the transaction goes on.
          UnknownKind: the client was given an app, which does not know the kind; likewise.
          QueueDraining: somebody drains the queue; the transaction is lost.
          psycopg.Error: the database refused it, and the transaction with it.
        """
        return (await self._enqueue([prepare(self._app, args, options)]))[0]

    async def enqueue_many(
        self, jobs: Iterable[object], /, **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued]:
        """Enqueue many jobs that exist if and when this transaction commits.

        Arguments and results are those of `Client.enqueue_many`.

        Raises:
          InvalidRequest: as `enqueue`.
          UnknownKind: as `enqueue`.
          QueueDraining: as `enqueue`.
          psycopg.Error: as `enqueue`.
        """
        prepared = prepare_many(self._app, jobs, options)
        return await self._enqueue(prepared) if prepared else []

    async def _enqueue(self, jobs: list[PreparedInsert]) -> list[Enqueued]:
        if self._observers is None:
            return await enqueue_many_prepared(self.connection, jobs)
        with enqueueing(self._observers, codec_of(self._app), jobs) as watched:
            answers = await enqueue_many_prepared(self.connection, watched)
        self._events.append(told(watched, answers))
        return answers

    def _committed(self) -> None:
        """Tell observers, now that it is true."""
        if self._observers is not None:
            for event in self._events:
                self._observers.tell(event)

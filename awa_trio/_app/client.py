"""The client: put jobs in, look at them, cancel them, retry them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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
from .._core.arguments import check_type
from .._core.errors import InvalidTransition, JobNotFound
from .._core.job import JobDetails, JobState, PreparedInsert
from .._core.observer import Observer
from .._core.outcome import CancelRequested, RetryRequested
from .._core.request import EnqueueOptions
from .._core.unique import UniqueOpts
from .._runtime.observing import Observers, enqueueing, observers_or_none, told
from .._seam.protocol import Store, WorkerStore
from .._seam.values import Enqueued, JobFilter
from . import calls
from .app import App
from .asked import check_filter, check_job_id, check_page, word_of
from .callbacks import Callbacks
from .calls import public_errors, transaction_errors
from .dead_letters import DeadLetters
from .joining import (
    codec_of,
    enqueue_many_prepared,
    prepare,
    prepare_many,
    unique_key_of,
)
from .moving import Mover
from .schedules import Schedules


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
    (`Callbacks`); ``client.cron`` looks at schedules, pauses and triggers them (`Schedules`).

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
        self.cron = Schedules(backend.store, app, self._enqueue)

    async def enqueue(self, args: object, /, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Enqueue a job, in a transaction of its own.

        Args:
          args: its arguments: an instance of an args class, a dict, or an `EnqueueRequest`.
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
          deadline (float): seconds an attempt may take; 0 for no limit. Default, its
              task's, else its queue's.

        Returns:
          The new job's ID; or, with ``inserted`` False, the ID of the job that holds the
          same unique key.

        Raises:
          InvalidRequest: the request breaks a rule; the message names the option, or the
              path to the value. Nothing was sent.
          UnknownKind: the client was given an app, which does not know the kind.
          DatabaseUnavailable: PostgreSQL could not be reached, or the answer was lost:
              then the job may exist. Enqueue with ``unique_opts`` to be able to repeat it.
        """
        return (await self._enqueue([prepare(self._app, args, options)]))[0]

    async def enqueue_many(
        self, jobs: Iterable[object], /, **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued]:
        """Enqueue many jobs in one transaction: all of them or none.

        Args:
          jobs: arguments or `EnqueueRequest`\\ s, each as for `enqueue`.
          options: as for `enqueue`, for every job that is not an `EnqueueRequest`.

        Returns:
          What became of each, in order. Of several with one unique key the first is
          inserted, and the others name it.

        Raises:
          InvalidRequest: one of the requests breaks a rule; nothing was sent.
          UnknownKind: as `enqueue`.
          DatabaseUnavailable: as `enqueue`.
        """
        return await self._enqueue(prepare_many(self._app, jobs, options))

    async def _enqueue(self, jobs: list[PreparedInsert]) -> list[Enqueued]:
        if self._observers is None or not jobs:
            with public_errors("enqueueing"):
                return await self._backend.store.enqueue(jobs)
        with enqueueing(self._observers, codec_of(self._app), jobs) as watched:
            with public_errors("enqueueing"):
                answers = await self._backend.store.enqueue(watched)
            self._observers.tell(told(watched, answers))
        return answers

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

        Arguments and results are those of `Client.enqueue`.

        Raises:
          InvalidRequest: the request breaks a rule; the transaction goes on.
          UnknownKind: the client was given an app, which does not know the kind; likewise.
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


@final
class Jobs:
    """Look at jobs, cancel them, retry them: ``client.jobs``."""

    def __init__(self, store: Store, app: App | None, mover: Mover) -> None:
        self._store = store
        self._app = app
        self._mover = mover

    async def get(self, job_id: int) -> JobDetails:
        """Read one job.

        Raises:
          JobNotFound: there is none with this ID; retention may have removed it.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_job_id(job_id)
        with public_errors("reading a job"):
            found = await self._store.get([job_id])
        if not found:
            raise JobNotFound(job_id)
        return found[0]

    async def list(
        self,
        *,
        state: JobState | str | Sequence[JobState | str] | None = None,
        kind: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[JobDetails]:
        """Read a page of jobs, newest first.

        Args:
          state: only jobs in this state, or in one of these.
          kind: only of this kind.
          queue: only of this queue.
          tag: only with this tag.
          before_id: only with a smaller ID: for the next page, the last one's.
          limit: how many, at most.

        Raises:
          ValueError: no such state, a limit below 1, or a value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_page(limit, before_id)
        check_filter(kind=kind, queue=queue, tag=tag)
        states = None if state is None else _states(state)
        wanted = JobFilter(states, kind, queue, tag, before_id)
        with public_errors("listing jobs"):
            return await self._store.list(wanted, limit)

    async def cancel(
        self,
        job_id: int,
        *,
        reason: str = "cancelled by an operator",
        without_follow_ups: bool = False,
    ) -> bool:
        """Cancel a job, whatever it is doing; return whether this call did.

        False: it had ended already. A handler that is running is cancelled, and whatever
        it does after that changes nothing. Follow-ups registered with `App.on_cancelled`
        commit with it.

        Args:
          job_id: the job.
          reason: recorded on it.
          without_follow_ups: leave the registered ones out, or say that there are none.

        Raises:
          JobNotFound: there is none with this ID.
          FollowUpsUnknown: the client's app does not run its kind, or it has no app.
          FollowUpError: a registered follow-up could not be made; nothing has changed.
          UniqueConflict: another job holds its unique key, which it needs when cancelled.
          TypeError: the ID is no int, or the reason no str.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("reason", reason, str)
        while True:
            job = await self.get(job_id)
            if job.state.terminal:
                return False
            ended = CancelRequested(reason)
            if await self._mover.move(job, ended, without_follow_ups=without_follow_ups):
                return True

    async def cancel_by_key(
        self,
        key: object,
        /,
        *,
        kind: str | None = None,
        queue: str | None = None,
        unique_opts: UniqueOpts | Mapping[str, Any] | None = None,
        reason: str = "cancelled by an operator",
        without_follow_ups: bool = False,
    ) -> int | None:
        """Cancel the job that holds a unique key, whatever it is doing; return its ID.

        None: no job holds the key, or the one that does has ended. At most one holds it at a
        time; jobs that were enqueued with the key and have left its states are left alone.

        Args:
          key: the 16 bytes of the key; or what the job was enqueued with, from which they
              are computed: its arguments, a dict, or an `EnqueueRequest` with unique options.
          kind: as the job was enqueued with, if its arguments do not say.
          queue: likewise, where the unique options are by queue.
          unique_opts: as the job was enqueued with. Default, the default options.
          reason: recorded on the job.
          without_follow_ups: as for `cancel`.

        Raises:
          InvalidRequest: the key has not 16 bytes, or the arguments or options break a rule.
          UnknownKind: the client was given an app, which does not know the kind.
          FollowUpsUnknown: as `cancel`.
          FollowUpError: as `cancel`.
          UniqueConflict: as `cancel`.
          TypeError: the reason is no str.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("reason", reason, str)
        wanted = unique_key_of(self._app, key, kind=kind, queue=queue, unique_opts=unique_opts)
        while True:
            with public_errors("looking for the holder of a key"):
                holder = await self._store.holder(wanted)
                found = [] if holder is None else await self._store.get([holder])
            if not found or found[0].state.terminal:
                return None
            ended = CancelRequested(reason)
            if await self._mover.move(found[0], ended, without_follow_ups=without_follow_ups):
                return found[0].id

    async def retry(self, job_id: int) -> None:
        """Let a job that failed or was cancelled run again, with all its attempts.

        That is no outcome of an attempt, so no registered follow-up runs.

        Raises:
          JobNotFound: there is none with this ID.
          InvalidTransition: it has completed, and completed jobs are never reopened; or it
              is running, or about to.
          UniqueConflict: another job holds its unique key.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        while True:
            job = await self.get(job_id)
            if job.state is JobState.COMPLETED:
                raise InvalidTransition(
                    f"job {job_id} has completed, and completed jobs are never reopened;"
                    " enqueue a new one"
                )
            if job.state not in _RETRIED_FROM:
                raise InvalidTransition(
                    f"job {job_id} is {job.state}: it will run without a retry"
                )
            if await self._mover.move(job, RetryRequested()):
                return

    async def wait(self, job_id: int) -> JobDetails:
        """Wait until a job has completed, failed or been cancelled; return it.

        Waits for ever if the job is never run: give it a scope with a deadline.

        Raises:
          JobNotFound: there is none with this ID.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        pause = 0.02
        while True:
            job = await self.get(job_id)
            if job.state.terminal:
                return job
            await anyio.sleep(pause)
            pause = min(pause * 1.5, 1.0)


#: States a retry makes sense from.
_RETRIED_FROM = frozenset(
    {
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.RETRYABLE,
        JobState.SCHEDULED,
        JobState.WAITING_EXTERNAL,
    }
)


def _states(given: object) -> tuple[JobState, ...]:
    """The states in what `Jobs.list` was given: one, or several."""
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Iterable):
        check_type("state", given, str)
    assert isinstance(given, Iterable)
    return tuple(word_of("state", JobState, one) for one in given)

"""The client: put jobs in, look at them, cancel them, retry them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, Unpack, final

import anyio
import psycopg

from .._core.arguments import MAX_INT4, check_string, check_type, check_whole
from .._core.errors import (
    DatabaseUnavailable,
    InvalidTransition,
    JobNotFound,
    UniqueConflict,
)
from .._core.job import JobDetails, JobState
from .._core.jsontext import MAX_INT
from .._core.outcome import CancelRequested, Ended, RetryRequested
from .._core.registry import Registry
from .._core.request import EnqueueOptions
from .._runtime.planner import Planner
from .._seam.errors import KeyTaken, LockTimeout, Rejected, Transient
from .._seam.protocol import Store, WorkerStore
from .._seam.values import Enqueued, JobFilter
from .app import App, registry_of
from .joining import enqueue_many_prepared, prepare, prepare_many

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds any one call may take, so that a server that went silent is noticed.
CALL_TIMEOUT = 60.0

#: How often a call that was rolled back by a deadlock is made again.
TRIES = 4


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


@contextmanager
def _public_errors(doing: str) -> Iterator[None]:
    """Turn a store's errors into those that users know."""
    try:
        with anyio.fail_after(CALL_TIMEOUT):
            yield
    except TimeoutError as error:
        raise DatabaseUnavailable(
            f"{doing}: PostgreSQL did not answer within {CALL_TIMEOUT:g} s"
        ) from error
    except (Transient, LockTimeout) as error:
        raise DatabaseUnavailable(f"{doing}: {error}") from (error.__cause__ or error)
    except Rejected as error:
        # A trigger or a right of the user's own: the driver's error says which.
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


@contextmanager
def _transaction_errors(doing: str) -> Iterator[None]:
    """Turn the driver's errors into those that users know."""
    try:
        with anyio.fail_after(CALL_TIMEOUT):
            yield
    except TimeoutError as error:
        raise DatabaseUnavailable(
            f"{doing}: PostgreSQL did not answer within {CALL_TIMEOUT:g} s"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if error.sqlstate is not None and error.sqlstate[:2] not in ("08", "57"):
            raise
        reason = " ".join(str(error).split())
        raise DatabaseUnavailable(f"{doing}: {reason}") from error


@final
class Client:
    """Puts jobs in and looks at them; `connect` makes one. Runs on Trio and on asyncio.

    Every method may be cancelled. Cancelled means that it did not happen, on Trio; on
    asyncio it may have.
    """

    def __init__(self, backend: Backend, app: App | None) -> None:
        self._backend = backend
        self._app = app
        self.jobs = Jobs(backend, Planner(registry_of(app) if app else Registry(), Random()))

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
          ordering_key (str): stored; what it orders comes with a later release.
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

    async def _enqueue(self, jobs: list[Any]) -> list[Enqueued]:
        with _public_errors("enqueueing"):
            return await self._backend.store.enqueue(jobs)

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
            with _transaction_errors("opening a transaction"):
                connection = await block.enter_async_context(self._backend.connection())
                await block.enter_async_context(connection.transaction())
            yield Transaction(connection, self._app)
        except BaseException as error:
            # Rolling back is bounded too; a connection that cannot is closed, which does it.
            with anyio.move_on_after(CALL_TIMEOUT), suppress(psycopg.Error):
                if await block.__aexit__(type(error), error, error.__traceback__):
                    return
            raise
        with _transaction_errors("committing a transaction, which may have happened"):
            await block.aclose()


@final
class Transaction:
    """An open transaction; `Client.transaction` makes one."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], app: App | None) -> None:
        self.connection = connection
        """The connection, for statements of your own."""
        self._app = app

    async def enqueue(self, args: object, /, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Enqueue a job that exists if and when this transaction commits.

        Arguments and results are those of `Client.enqueue`.

        Raises:
          InvalidRequest: the request breaks a rule; the transaction goes on.
          UnknownKind: the client was given an app, which does not know the kind; likewise.
          psycopg.Error: the database refused it, and the transaction with it.
        """
        prepared = prepare(self._app, args, options)
        return (await enqueue_many_prepared(self.connection, [prepared]))[0]

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
        return await enqueue_many_prepared(self.connection, prepared) if prepared else []


@final
class Jobs:
    """Look at jobs, cancel them, retry them: ``client.jobs``."""

    def __init__(self, backend: Backend, planner: Planner) -> None:
        self._store = backend.store
        self._planner = planner

    async def get(self, job_id: int) -> JobDetails:
        """Read one job.

        Raises:
          JobNotFound: there is none with this ID; retention may have removed it.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("job_id", job_id, int, "an")
        if not 1 <= job_id <= MAX_INT:
            raise JobNotFound(job_id)
        with _public_errors("reading a job"):
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
        check_whole("limit", limit, most=MAX_INT4)
        if before_id is not None:
            check_whole("before_id", before_id)
        for name, value in (("kind", kind), ("queue", queue), ("tag", tag)):
            if value is not None:
                check_string(name, value)
        states = None if state is None else _states(state)
        wanted = JobFilter(states, kind, queue, tag, before_id)
        with _public_errors("listing jobs"):
            return await self._store.list(wanted, limit)

    async def cancel(self, job_id: int, *, reason: str = "cancelled by an operator") -> bool:
        """Cancel a job, whatever it is doing; return whether this call did.

        False: it had ended already. A handler that is running is cancelled, and whatever
        it does after that changes nothing.

        Raises:
          JobNotFound: there is none with this ID.
          TypeError: the ID is no int, or the reason no str.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("reason", reason, str)
        while True:
            job = await self.get(job_id)
            if job.state.terminal:
                return False
            if await self._move(job, CancelRequested(reason)):
                return True

    async def retry(self, job_id: int) -> None:
        """Let a job that failed or was cancelled run again, with all its attempts.

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
            if await self._move(job, RetryRequested()):
                return

    async def _move(self, job: JobDetails, ended: Ended) -> bool:
        """Apply what was decided from a row as it was read; False if it has moved since."""
        plan = self._planner.plan(ended, job)
        assert plan is not None
        try:
            with _public_errors("changing a job"):
                [settled] = await self._store.settle(
                    [plan], worker=None, patience=CALL_TIMEOUT, strict=True
                )
        except KeyTaken as error:
            raise UniqueConflict(job.id, error.holder_id) from error
        return settled.applied

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
    states = []
    for one in given:
        try:
            states.append(JobState(one))
        except ValueError:
            raise ValueError(
                f"state: there is no state {one!r}; there are {', '.join(JobState)}"
            ) from None
    return tuple(states)

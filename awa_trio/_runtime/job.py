"""What a handler holds: the job, its nursery, and what it may say, stage and leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, final

import attrs
import trio

from .._core.callbacks import DEFAULT_TIMEOUT, CallbackAnswer, read_answer
from .._core.errors import (
    ConfigurationError,
    InvalidRequest,
    LeaseLost,
    StagingInvalid,
    UndecodableArgs,
)
from .._core.job import JobRow, PreparedInsert
from .._core.output import encode_output
from .._core.progress import ProgressBuffer
from .._core.request import EnqueueOptions
from .._core.staging import StagingBuffer

if TYPE_CHECKING:
    from .completing import CompletionTransaction

ArgsT = TypeVar("ArgsT")
ConnectionT = TypeVar("ConnectionT")

Prepare = Callable[[object, EnqueueOptions, JobRow], PreparedInsert]
"""Prepares a follow-up, given its arguments, its options, and the job that stages it."""


@final
class FollowUps:
    """One attempt's staging buffer: pass it to code that should stage but not see the job."""

    __slots__ = ("_buffer", "_by", "_prepare")

    def __init__(self, buffer: StagingBuffer, prepare: Prepare, by: JobRow) -> None:
        self._buffer = buffer
        self._prepare = prepare
        self._by = by

    def enqueue_on_completion(self, args: object, /, **options: Unpack[EnqueueOptions]) -> None:
        """Enqueue a follow-up job if, and only if, this attempt completes.

        The follow-up is inserted by the transaction that completes the attempt. Every
        other ending discards it: an exception, `RetryAfter`, `Snooze`, `Cancel`,
        `WaitForCallback`, the deadline, shutdown, rescue, or a settlement from outside.

        Never blocks and is not a checkpoint. Any task of the attempt's nursery may call
        it, and any thread.

        Args:
          args: the follow-up's arguments, or an `EnqueueRequest`. Serialized now: later
              changes to the object are not seen.
          options: as for `Client.enqueue`: ``kind, queue, priority, max_attempts, tags,
              metadata, run_at, unique_opts, ordering_key, limit_key, deadline``.

        Raises:
          StagingInvalid: the request cannot be stored. ``problem`` says where.
          StagingTooMany: this attempt has staged 16 already.
          StagingTooLarge: with this one it would exceed 65,536 bytes.
          StagingSealed: the attempt's nursery has closed.

        Each of these but the last forbids this attempt to complete, even if the handler
        swallows it.

        Source: ADR-046, "Decision" and "Limits".
        """
        try:
            follow_up = self._prepare(args, options, self._by)
        except Exception as error:
            problem = error.problem if isinstance(error, InvalidRequest) else str(error)
            raise self._buffer.refuse(StagingInvalid(problem)) from error
        self._buffer.stage(follow_up)


@final
class Progress:
    """How far a job has come, for people and for its next attempt: ``job.progress``.

    It begins with what earlier attempts left. What is set is kept in memory, and written
    with the worker's next beat, with whatever becomes of the attempt, and by
    `Job.flush_progress`. A retry, a snooze, a rescue and a shutdown keep it; completing
    removes it. At most 65,536 bytes of JSON. Any task of the attempt may use it, and any
    thread; nothing here blocks or is a checkpoint.
    """

    __slots__ = ("_buffer",)

    def __init__(self, buffer: ProgressBuffer) -> None:
        self._buffer = buffer

    @property
    def percent(self) -> float | None:
        """From 0 to 100; None if no attempt has said."""
        return self._buffer.now.percent

    @property
    def message(self) -> str | None:
        """What it is doing, for people; None if no attempt has said."""
        return self._buffer.now.message

    @property
    def metadata(self) -> dict[str, Any]:
        """What attempts have noted, such as where to go on; a copy."""
        return self._buffer.now.metadata

    def set(
        self,
        *,
        percent: float | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Say something new; what is not given stays as it is.

        Args:
          percent: from 0 to 100.
          message: for people, at most 1,000 characters.
          metadata: a JSON object. Its keys are added to those that are there, one level
              deep. Copied now: later changes to the object are not seen.

        Raises:
          InvalidValue: it breaks a rule, or is too large; nothing has changed.
          LeaseLost: the attempt is over.
        """
        self._buffer.set(percent, message, metadata)

    def clear(self) -> None:
        """Forget everything, also what earlier attempts left.

        Raises:
          LeaseLost: the attempt is over.
        """
        self._buffer.clear()


@attrs.frozen
class Services:
    """What a worker does for handlers that ask for it; the same for all of its attempts."""

    flush_progress: Callable[[Job[Any]], Awaitable[None]]
    complete_in: Callable[
        [Job[Any], Any], AbstractAsyncContextManager[CompletionTransaction[Any]]
    ]
    register_callback: Callable[[Job[Any], float], Awaitable[str]]
    wait_for_callback: Callable[[Job[Any], str], Awaitable[Any]]


#: Two threads may ask for an attempt's progress at once, or its args, and must get the same.
_making = Lock()


_OVER = "the attempt is over, and its nursery closed; start tasks before the handler returns"
_IN_THREAD = (
    "a handler that is an ordinary function has no nursery; make it async, or use"
    " trio.from_thread.run"
)


class Job(Generic[ArgsT]):
    """One attempt of a job, as its handler sees it."""

    __slots__ = (
        "_args",
        "_buffer",
        "_decode",
        "_nursery",
        "_nursery_asked_for",
        "_output",
        "_prepare",
        "_progress",
        "_row",
        "_services",
    )

    def __init__(
        self,
        row: JobRow,
        decode: Callable[[bytes], ArgsT],
        buffer: StagingBuffer,
        prepare: Prepare,
    ) -> None:
        self._row = row
        self._decode = decode
        self._args: ArgsT | None = None
        self._buffer = buffer
        self._prepare = prepare
        self._nursery: trio.Nursery | None = None
        self._nursery_asked_for = False
        self._services: Services | None = None
        self._progress: ProgressBuffer | None = None
        self._output: bytes | None = None

    @property
    def args(self) -> ArgsT:
        """The job's arguments, decoded to the type in the handler's annotation when first read.

        Raises:
          UndecodableArgs: they do not fit it; a terminal failure of the job, even if the
              handler swallows it.
        """
        if self._args is None:
            with _making:
                if self._args is None:
                    try:
                        self._args = self._decode(self._row.raw_args)
                    except UndecodableArgs as error:
                        self._buffer.forbid(error)
                        raise
        return self._args

    @property
    def id(self) -> int:
        """The job's ID, the same at every attempt."""
        return self._row.id

    @property
    def kind(self) -> str:
        """The job's kind."""
        return self._row.kind

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._row.queue

    @property
    def priority(self) -> int:
        """1 runs first, 4 last."""
        return self._row.priority

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._row.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts the job may spend."""
        return self._row.max_attempts

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return self._row.tags

    @property
    def metadata(self) -> dict[str, Any]:
        """The job's metadata, without reserved keys, so that passing it on is safe."""
        return self._row.metadata

    @property
    def created_at(self) -> datetime:
        """When it was enqueued, by the database's clock."""
        return self._row.created_at

    @property
    def run_at(self) -> datetime:
        """When it became due."""
        return self._row.run_at

    @property
    def ordering_key(self) -> str | None:
        """Its ordering key: no other job of its queue with the same key runs meanwhile."""
        return self._row.ordering_key

    @property
    def limit_key(self) -> str | None:
        """What the limits per key of its queue count it by; None if they do not."""
        return self._row.limit_key

    @property
    def triggered_by(self) -> int | None:
        """The job whose settlement enqueued this one; None if none did."""
        return self._row.triggered_by

    @property
    def schedule(self) -> str | None:
        """The schedule that enqueued it; None if none did."""
        return self._row.schedule

    @property
    def scheduled_for(self) -> datetime | None:
        """The instant for which a schedule enqueued it, in UTC; None if none did.

        The same at every attempt, and of a fire that was late the instant that it was for.
        """
        return self._row.scheduled_for

    @property
    def traceparent(self) -> str | None:
        """The W3C ``traceparent`` of whoever enqueued it; None if nobody traced that."""
        return self._row.traceparent

    @property
    def follow_ups(self) -> FollowUps:
        """A handle for staging, for code that should not see the whole job."""
        return FollowUps(self._buffer, self._prepare, self._row)

    @property
    def nursery(self) -> trio.Nursery:
        """A nursery that the attempt waits for: its tasks may stage, and their errors are the
        attempt's.

        Raises:
          RuntimeError: the handler runs in a thread, or the attempt is over.
        """
        self._nursery_asked_for = True
        nursery = self._nursery
        if nursery is None:
            raise RuntimeError(_OVER if self._buffer.sealed else _IN_THREAD)
        return nursery

    def enqueue_on_completion(self, args: object, /, **options: Unpack[EnqueueOptions]) -> None:
        """Enqueue a follow-up job if, and only if, this attempt completes.

        Short for ``job.follow_ups.enqueue_on_completion``, which see for arguments and errors.
        """
        self.follow_ups.enqueue_on_completion(args, **options)

    @property
    def progress(self) -> Progress:
        """How far it has come: begins with what earlier attempts left."""
        if self._progress is None:
            with _making:
                if self._progress is None:
                    buffer = ProgressBuffer(self._row.raw_progress)
                    if self._buffer.sealed:
                        buffer.seal()
                    self._progress = buffer
        return Progress(self._progress)

    async def flush_progress(self) -> None:
        """Write the progress now, instead of with the worker's next beat.

        When it returns, everything that was set before is in the database. From an
        ordinary function: ``trio.from_thread.run(job.flush_progress)``.

        Raises:
          LeaseLost: the attempt is over, or its job is someone else's; nothing was written.
          DatabaseUnavailable: PostgreSQL could not be reached; the next beat tries again.
        """
        await self._require_services().flush_progress(self)

    def set_output(self, value: object) -> None:
        """Leave a value on the job for people to read, if this attempt completes.

        It is written with the completion, and gone when retention removes the job; every
        other ending discards it. The last call wins. Nothing reads it to decide anything:
        a value that another job needs belongs into that job's arguments. Never blocks and
        is not a checkpoint; any task of the attempt may call it, and any thread.

        Args:
          value: any plain JSON value, at most 65,536 bytes. Serialized now: later changes
              to it are not seen.

        Raises:
          InvalidValue: it is not JSON, or too large; the output is as it was.
          LeaseLost: the attempt is over.

        Source: ADR-046, "Retain the result on the job".
        """
        output = encode_output(value)
        if self._buffer.sealed:
            raise LeaseLost("the attempt is over: its output can no longer be set")
        self._output = output

    def complete_in(
        self, connection: ConnectionT
    ) -> AbstractAsyncContextManager[CompletionTransaction[ConnectionT]]:
        """Complete the job in a transaction of the handler's own, as an async context manager.

        Entering begins a transaction on the connection. Leaving completes the job in it,
        guarded by the attempt's lease, with registered follow-ups and the output, and
        commits: the handler's own rows and the completion happen together or not at all.
        An exception or a cancellation in the block rolls everything back, and the attempt
        goes on. Once it has committed the job is completed, whatever the handler does,
        returns or raises afterwards.

        If the connection is lost while it commits, the database is asked whether it did:
        then the block ends as if nothing had happened, or raises.

        Staging is not offered here: enqueue follow-ups with ``tx.enqueue``.

        Args:
          connection: an asynchronous psycopg connection, as of `awa_trio.pg.TrioConnection`,
              to the worker's database and not in a transaction.

        Raises:
          LeaseLost: the attempt is over, or its job is someone else's; rolled back.
          StagingNotOffered: follow-ups have been staged; enqueue them in the transaction.
          StagingError: one could not be staged, so the attempt must not complete; or one
              was staged inside the block, and all is rolled back.
          FollowUpError: a registered follow-up could not be made; nothing was begun.
          InvalidTransition: the attempt has completed, or is completing, in this way already.
          ConfigurationError: the connection is of another kind, is in a transaction or
              pipeline, or leads elsewhere; or the store is in memory.
          DatabaseUnavailable: the connection was lost. If that happened while it committed
              and the database could not be asked, it may have; the message says so.
          psycopg.Error: the database refused it, and rolled back.

        Source: ADR-046, "Relationship to other ADRs" (ADR-042).
        """
        return self._require_services().complete_in(self, connection)

    @property
    def last_callback(self) -> CallbackAnswer | None:
        """The latest answer to a callback that an earlier attempt had registered; None if none came.

        A job that parked with `WaitForCallback`, or whose worker stopped while it waited,
        runs again when its callback is resumed, and finds the answer here.
        """
        return read_answer(self._row.raw_callback_answer)

    async def register_callback(self, timeout: float = DEFAULT_TIMEOUT) -> str:
        """Expect a callback from an external system; return the token that names it.

        Hand the token to that system, then wait for it: ``await job.wait_for_callback(token)``,
        which keeps the handler and what it staged, or ``return awa.WaitForCallback(token)``,
        which ends the attempt and parks the job. An answer that comes earlier is kept.

        An attempt expects one callback at a time: another registration replaces the first,
        whose token is worth nothing from then on. A handler that is an ordinary function
        calls ``trio.from_thread.run(job.register_callback)``.

        Args:
          timeout: seconds, from 1 to a year, until it times out. A job that waits for it
              then has failed this attempt; while its handler is running nothing happens.

        Raises:
          CallbackInvalid: the timeout is out of range, or a wait is under way.
          CallbackSuperseded: the job is no longer this attempt's.
          DatabaseUnavailable: PostgreSQL could not be reached.

        Source: ADR-021 of the ancestor.
        """
        return await self._require_services().register_callback(self, timeout)

    async def wait_for_callback(self, token: str) -> Any:
        """Wait until a callback is resumed; return its payload.

        While it waits, another job has this one's slot, the attempt's deadline stands still,
        and what it staged stays staged. If the worker stops or dies, the job waits on
        without a handler, and runs again, unspent, when its callback is resumed: then
        `last_callback` has the answer. Cancelling the wait gives it up; it may be
        begun again.

        An attempt waits for one callback at a time, as often as it likes. A handler that is
        an ordinary function calls ``trio.from_thread.run(job.wait_for_callback, token)``.

        Args:
          token: of this attempt's latest `register_callback`.

        Returns:
          Any JSON value; None if the callback was resumed without one.

        Raises:
          CallbackInvalid: the token is another, or has been waited for; or another task of
              the attempt waits.
          CallbackSuperseded: the job was settled from outside, or timed out. What was
              staged is discarded, whatever the handler does now.

        Source: ADR-046, "When staged follow-ups commit".
        """
        return await self._require_services().wait_for_callback(self, token)

    def _require_services(self) -> Services:
        if self._services is None:
            raise ConfigurationError(
                "no worker runs this job; run it with run_worker, or in a test with work_one"
            )
        return self._services

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} attempt {self.attempt}>"


def lend_nursery(job: Job[Any], nursery: trio.Nursery | None) -> None:
    """Give a job the nursery of the attempt that is about to run; None if it may use none."""
    cast("Any", job)._nursery = nursery


def take_nursery_back(job: Job[Any]) -> bool:
    """Take its nursery from a job whose handler has returned.

    Returns:
      False if that has asked for it: then tasks may run in it, and references to it remain.
    """
    lent = cast("Any", job)
    nursery, lent._nursery = job._nursery, None
    if job._nursery_asked_for:  # Asked after the taking: a thread may be asking.
        lent._nursery = nursery
        return False
    return True


def lend_services(job: Job[Any], services: Services) -> None:
    """Give a job what its worker does for it."""
    job._services = services


def row_of(job: Job[Any]) -> JobRow:
    """The job as it was claimed."""
    return job._row


def args_of(job: Job[Any]) -> Any:
    """Its arguments, if its handler has read them; else None."""
    return job._args


def progress_of(job: Job[Any]) -> ProgressBuffer | None:
    """What a job has said of its progress; None if it was never asked for."""
    return job._progress


def output_of(job: Job[Any]) -> bytes | None:
    """The output it is to have, as JSON text; None for none."""
    return job._output

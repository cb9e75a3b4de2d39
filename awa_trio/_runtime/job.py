"""What a handler holds: the job, its nursery, and a way to stage follow-ups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar, Unpack, cast, final

import trio

from .._core.errors import InvalidRequest, StagingInvalid
from .._core.job import JobRow, PreparedInsert
from .._core.request import EnqueueOptions
from .._core.staging import StagingBuffer

ArgsT = TypeVar("ArgsT")

Prepare = Callable[[object, EnqueueOptions, int], PreparedInsert]
"""Prepares a follow-up, given its arguments, its options, and the job that stages it."""


@final
class FollowUps:
    """One attempt's staging buffer: pass it to code that should stage but not see the job."""

    __slots__ = ("_buffer", "_by", "_prepare")

    def __init__(self, buffer: StagingBuffer, prepare: Prepare, by: int) -> None:
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
              metadata, run_at, unique_opts, ordering_key, deadline``.

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


class Job(Generic[ArgsT]):
    """One attempt of a job, as its handler sees it."""

    __slots__ = ("_buffer", "_nursery", "_prepare", "_row", "args")

    args: ArgsT
    """The job's arguments, decoded to the type in the handler's annotation."""

    def __init__(
        self, row: JobRow, args: ArgsT, buffer: StagingBuffer, prepare: Prepare
    ) -> None:
        self._row = row
        self.args = args
        self._buffer = buffer
        self._prepare = prepare
        self._nursery: trio.Nursery | None = None

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
        """Its ordering key. Stored; what it orders comes with a later release."""
        return self._row.ordering_key

    @property
    def triggered_by(self) -> int | None:
        """The job whose settlement enqueued this one; None if none did."""
        return self._row.triggered_by

    @property
    def follow_ups(self) -> FollowUps:
        """A handle for staging, for code that should not see the whole job."""
        return FollowUps(self._buffer, self._prepare, self._row.id)

    @property
    def nursery(self) -> trio.Nursery:
        """A nursery that the attempt waits for: its tasks may stage, and their errors are the
        attempt's.

        Raises:
          RuntimeError: the handler runs in a thread.
        """
        if self._nursery is None:
            raise RuntimeError(
                "a handler that is an ordinary function has no nursery; make it async,"
                " or use trio.from_thread.run"
            )
        return self._nursery

    def enqueue_on_completion(self, args: object, /, **options: Unpack[EnqueueOptions]) -> None:
        """Enqueue a follow-up job if, and only if, this attempt completes.

        Short for ``job.follow_ups.enqueue_on_completion``, which see for arguments and errors.
        """
        self.follow_ups.enqueue_on_completion(args, **options)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} attempt {self.attempt}>"


def lend_nursery(job: Job[Any], nursery: trio.Nursery | None) -> None:
    """Give a job the nursery of the attempt that is about to run; None if it may use none."""
    cast("Any", job)._nursery = nursery

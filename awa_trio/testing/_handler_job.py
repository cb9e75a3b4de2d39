"""A stand-in for `Job`, for unit tests of handlers that touch no store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, final

import attrs
import trio

from .._app.app import App
from .._app.joining import prepare
from .._core.errors import StagingError
from .._core.job import JobRow, PreparedInsert
from .._core.request import EnqueueOptions, EnqueueRequest
from .._core.staging import StagingBuffer
from .._runtime.job import Job, lend_nursery

ArgsT = TypeVar("ArgsT")


@attrs.frozen
class Staged:
    """A follow-up as a handler staged it, with what its insert would hold."""

    args: Any
    """The arguments, as the handler gave them."""
    kind: str
    queue: str
    priority: int
    max_attempts: int
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    run_at: datetime | None
    unique_key: bytes | None
    """16 bytes; None if it never counts as a duplicate."""
    ordering_key: str | None
    deadline: float | None


@final
class HandlerJob(Job[ArgsT]):
    """A job to call a handler with: no store, the same validation and limits.

    Args:
      args: the arguments, as they are: nothing is encoded.
      app: knows the kinds and queues of follow-ups; kinds it does not know are refused.
          Default: any class may be staged.
      nursery: what ``job.nursery`` is.
      id: the job's ID.
      kind: its kind.
      queue: its queue.
      priority: its priority.
      attempt: the number of this attempt.
      max_attempts: how many it may spend.
      metadata: its metadata.
      tags: its tags.
    """

    __slots__ = ("_given",)

    def __init__(
        self,
        args: ArgsT,
        *,
        app: App | None = None,
        nursery: trio.Nursery | None = None,
        id: int = 1,  # noqa: A002
        kind: str = "test",
        queue: str = "default",
        priority: int = 2,
        attempt: int = 1,
        max_attempts: int = 25,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        row = JobRow(
            id=id,
            kind=kind,
            queue=queue,
            priority=priority,
            attempt=attempt,
            max_attempts=max_attempts,
            raw_args=b"{}",
            raw_metadata=json.dumps(dict(metadata)).encode() if metadata else None,
            raw_tags=tuple(tags),
            raw_created_at=0,
            raw_run_at=0,
            deadline=None,
            ordering_key=None,
            run_lease=attempt,
            raw_progress=None,
            raw_callback_answer=None,
        )
        self._given: list[tuple[PreparedInsert, Any]] = []

        def prepare_and_note(args: object, options: EnqueueOptions, by: int) -> PreparedInsert:
            prepared = prepare(app, args, options)
            given = args.args if isinstance(args, EnqueueRequest) else args
            self._given.append((prepared, given))
            return prepared

        super().__init__(row, args, StagingBuffer(), prepare_and_note)
        if nursery is not None:
            lend_nursery(self, nursery)

    @property
    def staged(self) -> list[Staged]:
        """What the handler has staged, in order; refused follow-ups are not in it."""
        return [
            Staged(
                args=given,
                kind=insert.kind,
                queue=insert.queue,
                priority=insert.priority,
                max_attempts=insert.max_attempts,
                tags=insert.tags,
                metadata=json.loads(insert.metadata or b"{}"),
                run_at=insert.run_at,
                unique_key=insert.unique_key,
                ordering_key=insert.ordering_key,
                deadline=insert.deadline,
            )
            for insert, given in self._given
            if any(insert is one for one in self._buffer.staged)
        ]

    @property
    def poison(self) -> StagingError | None:
        """The staging failure that forbids this attempt to complete; None if there was none."""
        return self._buffer.poison

    def seal(self) -> None:
        """End the attempt, as leaving its nursery does: staging raises `StagingSealed` from now on."""
        self._buffer.seal()

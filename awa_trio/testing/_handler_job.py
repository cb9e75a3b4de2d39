"""A stand-in for `Job`, for unit tests of handlers that touch no store."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, final

import anyio.lowlevel
import attrs
import trio

from .._app.app import App
from .._app.joining import prepare
from .._core.callbacks import (
    CallbackAnswer,
    Registered,
    answer_of,
    check_timeout,
    encode_payload,
)
from .._core.codec import Codec
from .._core.errors import InvalidTransition, LeaseLost, TerminalError
from .._core.job import SCHEDULE, SCHEDULED_FOR, JobRow, PreparedInsert
from .._core.progress import ProgressBuffer
from .._core.request import EnqueueOptions, EnqueueRequest
from .._core.staging import StagingBuffer
from .._runtime.completing import CompletionTransaction
from .._runtime.job import Job, Services, lend_nursery, lend_services
from .._seam.values import Enqueued

ArgsT = TypeVar("ArgsT")


@attrs.frozen
class Staged:
    """A follow-up as a handler staged it, with what its insert would hold."""

    args: Any
    """The arguments, as the handler gave them."""
    args_json: Any
    """The same as dicts, lists, strings and numbers."""
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
    limit_key: str | None
    deadline: float | None


@attrs.frozen
class RegisteredCallback:
    """A callback as a handler registered it."""

    token: str
    timeout: float


class _Script:
    """Answers to callbacks in the order in which they will be waited for."""

    def __init__(self, answers: Sequence[object]) -> None:
        self.registered: list[RegisteredCallback] = []
        self._answers = deque(answers)
        self._state = Registered()

    async def register(self, _: Job[Any], timeout: float) -> str:
        seconds = check_timeout(timeout)
        with self._state.registering():
            await anyio.lowlevel.checkpoint()
            made = RegisteredCallback(f"callback-{len(self.registered) + 1}", seconds)
            self.registered.append(made)
            self._state.token = made.token
        return made.token

    async def wait(self, _: Job[Any], token: str) -> Any:
        self._state.begin(token)
        answered = False
        try:
            await anyio.lowlevel.checkpoint()
            if not self._answers:
                raise RuntimeError(
                    "the handler waits for a callback that the test does not answer; give"
                    " HandlerJob(..., answers=[...]), a payload or an exception for each wait"
                )
            answer = self._answers.popleft()
            if isinstance(answer, BaseException):
                raise answer
            payload = json.loads(encode_payload(answer, Codec()))
            answered = True
            return payload
        finally:
            self._state.end(answered=answered)


@final
class HandlerJob(Job[ArgsT]):
    """A job to call a handler with: no store, the same validation and limits.

    Its `complete_in` is a stand-in: it takes any connection, opens no transaction on it,
    and notes what is enqueued. Whether the handler's rows and the job commit together is
    for a test on PostgreSQL, with `work_one`.

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
      scheduled_for: the instant for which a schedule enqueued it.
      progress: what earlier attempts left: ``percent``, ``message``, ``metadata``.
      answers: for each ``wait_for_callback``, in order, the payload it returns or the
          exception it raises, such as ``awa.CallbackSuperseded()``.
      last_callback: what an earlier attempt's callback was answered.
    """

    __slots__ = ("_app", "_completed", "_enqueued", "_given", "_script")

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
        scheduled_for: datetime | None = None,
        progress: Mapping[str, Any] | None = None,
        answers: Sequence[object] = (),
        last_callback: CallbackAnswer | None = None,
    ) -> None:
        left = ProgressBuffer(None)
        if progress is not None:
            left.set(**progress)
        stored = dict(metadata or {})
        if scheduled_for is not None:
            stored |= {SCHEDULE: kind, SCHEDULED_FOR: scheduled_for.astimezone(UTC).isoformat()}
        row = JobRow(
            id=id,
            kind=kind,
            queue=queue,
            priority=priority,
            attempt=attempt,
            max_attempts=max_attempts,
            raw_args=b"{}",
            raw_metadata=json.dumps(stored).encode() if stored else None,
            raw_tags=tuple(tags),
            raw_created_at=0,
            raw_run_at=0,
            deadline=None,
            ordering_key=None,
            run_lease=attempt,
            raw_progress=left.text(),
            raw_callback_answer=None
            if last_callback is None
            else answer_of(last_callback.token, encode_payload(last_callback.payload, Codec())),
            limit_key=None,
        )
        self._app = app
        self._script = _Script(answers)
        self._given: list[tuple[PreparedInsert, Any]] = []
        self._enqueued: list[PreparedInsert] = []
        self._completed = False

        def prepare_and_note(
            args: object, options: EnqueueOptions, by: JobRow
        ) -> PreparedInsert:
            prepared = prepare(app, args, options)
            given = args.args if isinstance(args, EnqueueRequest) else args
            self._given.append((prepared, given))
            return prepared

        super().__init__(row, lambda _: args, StagingBuffer(), prepare_and_note)
        script = self._script
        lend_services(self, Services(_flush, _complete_in, script.register, script.wait))
        if nursery is not None:
            lend_nursery(self, nursery)

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery that the test gave.

        Raises:
          RuntimeError: it gave none.
        """
        if self._nursery is None:
            raise RuntimeError(
                "the handler uses job.nursery, and the test gave none; give"
                " HandlerJob(..., nursery=...)"
            )
        return self._nursery

    @property
    def staged(self) -> list[Staged]:
        """What the handler has staged, in order; refused follow-ups are not in it."""
        return self._as_staged(self._buffer.staged)

    @property
    def enqueued(self) -> list[Staged]:
        """What the handler has enqueued in `complete_in`, in order, if that block ended well."""
        return self._as_staged(self._enqueued)

    def _as_staged(self, inserts: Sequence[PreparedInsert]) -> list[Staged]:
        return [
            Staged(
                args=given,
                args_json=json.loads(insert.args),
                kind=insert.kind,
                queue=insert.queue,
                priority=insert.priority,
                max_attempts=insert.max_attempts,
                tags=insert.tags,
                metadata=json.loads(insert.metadata or b"{}"),
                run_at=insert.run_at,
                unique_key=insert.unique_key,
                ordering_key=insert.ordering_key,
                limit_key=insert.limit_key,
                deadline=insert.deadline,
            )
            for insert, given in self._given
            if any(insert is one for one in inserts)
        ]

    @property
    def callbacks(self) -> list[RegisteredCallback]:
        """The callbacks that the handler has registered, in order; the last one counts."""
        return list(self._script.registered)

    @property
    def completed(self) -> bool:
        """Whether the handler has completed the job by itself, with `complete_in`."""
        return self._completed

    @property
    def output(self) -> Any:
        """The output the handler has set, as it would be read; None if it has set none."""
        return None if self._output is None else json.loads(self._output)

    @property
    def poison(self) -> TerminalError | None:
        """The failure that forbids this attempt to complete, such as of staging; None if none does."""
        return self._buffer.poison

    def seal(self) -> None:
        """End the attempt, as leaving its nursery does: staging raises `StagingSealed` from now on."""
        self._buffer.seal()
        if self._progress is not None:
            self._progress.seal()


async def _flush(job: Job[Any]) -> None:
    """Nothing to write to: only what a handler that has ended is told."""
    await anyio.lowlevel.checkpoint()
    if job._buffer.sealed:
        raise LeaseLost("the attempt is over: its progress was not written")


@asynccontextmanager
async def _complete_in(
    job: Job[Any], connection: Any
) -> AsyncIterator[CompletionTransaction[Any]]:
    assert isinstance(job, HandlerJob)
    await anyio.lowlevel.checkpoint()
    if job._completed:
        raise InvalidTransition("this attempt has completed its job already")
    inserted: list[PreparedInsert] = []
    ids = itertools.count(1)

    async def insert(inserts: Sequence[PreparedInsert]) -> list[Enqueued]:
        await anyio.lowlevel.checkpoint()
        inserted.extend(inserts)
        return [Enqueued(next(ids), True) for _ in inserts]

    job._buffer.withdraw()
    try:
        tx = CompletionTransaction(connection, job._row, job._prepare, insert)
        try:
            yield tx
        finally:
            tx._open = False
        if job.poison is not None:
            raise job.poison
        job._enqueued = inserted
        job._completed = True
        job.seal()
    finally:
        job._buffer.offer()

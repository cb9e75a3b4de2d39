"""What a job is, as values: its states, and the request that makes one."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import attrs

from .errors import UndecodableArgs
from .instants import instant
from .progress import JobProgress, read_progress


class JobState(enum.StrEnum):
    """Where a job is in its life. The value is the label of SQL's ``awa.job_state``."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    RUNNING = "running"
    COMPLETED = "completed"
    RETRYABLE = "retryable"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING_EXTERNAL = "waiting_external"

    @property
    def bit(self) -> int:
        """This state's bit in the mask ``UniqueOpts.states``."""
        return _BITS[self]

    @property
    def terminal(self) -> bool:
        """Whether nothing but a person moves a job out of this state."""
        return self in _TERMINAL


def holds(unique_states: int | None, state: JobState) -> bool:
    """Whether a job in this state holds its unique key.

    A job that waits for a callback counts as running: it has started, and will go on.
    """
    mask = state.bit
    if state is JobState.WAITING_EXTERNAL:
        mask |= JobState.RUNNING.bit
    return bool((unique_states or 0) & mask)


#: The order of the members is the order of SQL's enum and of the mask's bits.
_BITS = {state: 1 << n for n, state in enumerate(JobState)}
_TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})

#: The states of a job that is to be claimed, now or later.
WAITING = frozenset({JobState.SCHEDULED, JobState.AVAILABLE, JobState.RETRYABLE})

#: Those in which an attempt has it.
HELD = frozenset({JobState.RUNNING, JobState.WAITING_EXTERNAL})

#: scheduled, available, running, completed, retryable (ADR-046, "Guarantees").
DEFAULT_UNIQUE_STATES = 0b0001_1111


@attrs.frozen
class PreparedInsert:
    """A job ready to insert: validated, serialized, its unique key computed."""

    kind: str
    queue: str
    args: bytes = attrs.field(repr=False)
    """Compact JSON, as ASCII."""
    priority: int = 2
    max_attempts: int = 25
    metadata: bytes | None = attrs.field(default=None, repr=False)
    """A compact JSON object, as ASCII; None for an empty one."""
    tags: tuple[str, ...] = attrs.field(default=(), repr=False)
    run_at: datetime | None = None
    """Earliest start, timezone-aware; None for at once."""
    unique_key: bytes | None = None
    """16 bytes; None if the job never counts as a duplicate."""
    unique_states: int = 0
    """The states in which the job holds its key, as a mask of `JobState.bit`."""
    ordering_key: str | None = None
    limit_key: str | None = None
    deadline: float | None = None
    """Seconds an attempt may take; None for the task's or queue's own, 0 for no limit."""
    size: int = 0
    """Bytes of kind, queue, args, metadata, tags and keys, without reserved metadata."""


@attrs.define(eq=False, slots=False)
class JobRow:
    """A job, in what does not change while an attempt of it runs."""

    id: int
    kind: str
    queue: str
    priority: int
    """1 runs first, 4 last."""
    attempt: int
    """Attempts spent, with the one that runs."""
    max_attempts: int
    raw_args: bytes = attrs.field(repr=False)
    """Its arguments, as the JSON text that was enqueued."""
    raw_metadata: bytes | None = attrs.field(repr=False)
    """Its metadata with the reserved keys, as the text of a JSON object; None for none."""
    raw_tags: Sequence[str] | None = attrs.field(repr=False)
    raw_created_at: int = attrs.field(repr=False)
    raw_run_at: int = attrs.field(repr=False)
    """Instants, in microseconds since 2000-01-01 00:00 UTC."""
    deadline: float | None
    """Seconds an attempt may take; 0 for no limit, None for its task's or queue's own."""
    ordering_key: str | None
    run_lease: int
    """How often it was claimed; what gives an attempt the right to settle it."""
    raw_progress: bytes | None = attrs.field(repr=False)
    """What earlier attempts left of their progress, as the text of a JSON object."""
    raw_callback_answer: bytes | None = attrs.field(repr=False)
    """The latest answer to a callback: ``{"token": ..., "payload": ...}``."""
    limit_key: str | None
    """What the limits per key of its queue count it by."""

    @property
    def apart(self) -> bool:
        """Whether it waits by a key, and lets others of the key wait while it runs."""
        return self.ordering_key is not None or self.limit_key is not None

    @property
    def created_at(self) -> datetime:
        """When it was enqueued, by the database's clock."""
        return instant(self.raw_created_at)

    @property
    def run_at(self) -> datetime:
        """Earliest start."""
        return instant(self.raw_run_at)

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order given."""
        return tuple(self.raw_tags or ())

    @cached_property
    def args_json(self) -> Any:
        """Its arguments as dicts, lists, strings and numbers."""
        return json.loads(self.raw_args)

    @cached_property
    def all_metadata(self) -> dict[str, Any]:
        """Its metadata with the keys reserved for awa_trio, which begin with ``awa:``.

        Raises:
          UndecodableArgs: it cannot be read, such as what SQL has nested a thousand deep.
        """
        try:
            loaded: dict[str, Any] = json.loads(self.raw_metadata) if self.raw_metadata else {}
        except (ValueError, RecursionError) as error:
            raise UndecodableArgs(
                f"metadata: this cannot be read ({type(error).__name__})"
            ) from error
        return loaded

    def _reserved(self, name: str) -> object:
        """What a reserved key holds; what cannot be read holds nothing."""
        try:
            return self.all_metadata.get(name)
        except UndecodableArgs:
            return None

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata, without reserved keys, so that passing it on is safe."""
        return {k: v for k, v in self.all_metadata.items() if not k.startswith(RESERVED)}

    @property
    def metadata_text(self) -> str:
        """Its metadata as the text of a JSON object, for people to read.

        What Python will not read, as it was inserted, reserved keys and all: plain SQL may insert
        numbers of thousands of digits, and what is nested a thousand deep.
        """
        try:
            return json.dumps(self.metadata, ensure_ascii=False)
        except (UndecodableArgs, ValueError, RecursionError):
            return (self.raw_metadata or b"{}").decode()

    @property
    def progress(self) -> JobProgress:
        """How far it had come when that was last written; its completion removes it."""
        return read_progress(self.raw_progress)

    @property
    def triggered_by(self) -> int | None:
        """The job whose settlement inserted this one; None if none did."""
        value = self._reserved(TRIGGERED_BY)
        return value if isinstance(value, int) else None

    @property
    def schedule(self) -> str | None:
        """The schedule that enqueued it; None if none did."""
        value = self._reserved(SCHEDULE)
        return value if isinstance(value, str) else None

    @property
    def scheduled_for(self) -> datetime | None:
        """The instant for which a schedule enqueued it, in UTC; None if none did."""
        value = self._reserved(SCHEDULED_FOR)
        try:
            at = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            return None
        return None if at is None or at.tzinfo is None else at

    @property
    def trace(self) -> dict[str, str]:
        """The W3C trace context it was enqueued in: ``traceparent``, ``tracestate``; or empty."""
        if self.raw_metadata is None or _TRACED not in self.raw_metadata:
            return {}
        found = {name: self._reserved(RESERVED + name) for name in TRACE}
        return {name: value for name, value in found.items() if isinstance(value, str)}

    @property
    def traceparent(self) -> str | None:
        """The W3C ``traceparent`` of whoever enqueued it; None if nobody traced that."""
        return self.trace.get("traceparent")


#: Metadata keys that users may not set.
RESERVED = "awa:"
TRIGGERED_BY = "awa:triggered_by"
SCHEDULE = "awa:cron"
SCHEDULED_FOR = "awa:cron_at"

#: What a trace context consists of; kept under reserved keys of these names.
TRACE = ("traceparent", "tracestate")
_TRACED = b'"awa:traceparent"'


def reserved_trace(trace: Mapping[str, str] | None) -> dict[str, str | int]:
    """Return the reserved metadata that keeps a trace context."""
    if not trace:
        return {}
    return {RESERVED + name: trace[name] for name in TRACE if name in trace}


@attrs.frozen
class JobError:
    """One failure of a job."""

    error: str
    """What happened, with the user's frames that led to it."""
    attempt: int
    """The attempt it happened in."""
    at: datetime
    """When, by the database's clock."""
    terminal: bool
    """Whether the job ended with it."""


@attrs.define(eq=False, slots=False)
class JobDetails(JobRow):
    """A job as it was read, at one moment."""

    state: JobState
    errors: Sequence[JobError]
    """Its latest 25 failures, oldest first."""
    worker_id: int | None
    """The worker that runs it."""
    attempted_at: datetime | None
    """When it was last claimed."""
    deadline_at: datetime | None
    """When its present attempt is cut."""
    finalized_at: datetime | None
    """When it was completed, failed or cancelled."""
    unique_key: bytes | None
    """16 bytes; None if the job never counts as a duplicate."""
    unique_states: int | None
    """The states in which it holds its key, as a mask of `JobState.bit`."""
    raw_output: bytes | None = attrs.field(repr=False)
    """What its completing attempt left for people to read, as JSON text."""
    dead_letter: str | None
    """Why it is a dead letter; None if it is none."""
    callback_token: str | None = attrs.field(repr=False)
    """The callback it has registered, or waits for; the latest, if it has been resolved.
    Whoever has it can resolve the callback."""
    callback_until: datetime | None
    """When that times out; None if it has been answered, or there is none."""

    @property
    def moment(self) -> tuple[str, datetime | None]:
        """The instant that tells most of it in its state, after a word on what it is.

        ``("due", run_at)``, ``("started", attempted_at)``, ``("ended", finalized_at)``, or of one that
        waits for a callback ``("times out", callback_until)``; ``("about to go on", None)`` if that
        has come.
        """
        if self.state.terminal:
            return "ended", self.finalized_at
        if self.state is JobState.RUNNING:
            return "started", self.attempted_at
        if self.state is JobState.WAITING_EXTERNAL:
            until = self.callback_until
            return ("about to go on", None) if until is None else ("times out", until)
        return "due", self.run_at

    @property
    def output(self) -> Any:
        """What its completing attempt left for people to read; None if that is nothing."""
        return None if self.raw_output is None else json.loads(self.raw_output)

"""What a job is, as values: its states, and the request that makes one."""

from __future__ import annotations

import enum
from datetime import datetime

import attrs


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


#: The order of the members is the order of SQL's enum and of the mask's bits.
_BITS = {state: 1 << n for n, state in enumerate(JobState)}
_TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})

#: scheduled, available, running, completed, retryable (ADR-046, "Guarantees").
DEFAULT_UNIQUE_STATES = 0b0001_1111


@attrs.frozen
class PreparedInsert:
    """A job ready to insert: validated, serialized, its unique key computed."""

    kind: str
    queue: str
    args: bytes
    """Compact JSON, as ASCII."""
    priority: int = 2
    max_attempts: int = 25
    metadata: bytes | None = None
    """A compact JSON object, as ASCII; None for an empty one."""
    tags: tuple[str, ...] = ()
    run_at: datetime | None = None
    """Earliest start, timezone-aware; None for at once."""
    unique_key: bytes | None = None
    """16 bytes; None if the job never counts as a duplicate."""
    unique_states: int = 0
    """The states in which the job holds its key, as a mask of `JobState.bit`."""
    ordering_key: str | None = None
    deadline: float | None = None
    """Seconds an attempt may take; None for the task's or queue's own, 0 for no limit."""
    size: int = 0
    """Bytes of kind, queue, args, metadata, tags and ordering key, without reserved metadata."""

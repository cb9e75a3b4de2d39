"""The follow-ups one attempt has declared.

A buffer lives exactly as long as one attempt. It is open while the attempt's
nursery is open, and leaving the nursery seals it. What was sealed is what the
completion transaction inserts, every time that transaction is tried.

Nothing here awaits, so staging is atomic between Trio tasks; the lock makes it
atomic between threads too, because a synchronous handler stages from its own.

Elsewhere: whether a sealed buffer commits is `outcome.settle`; how a request
becomes bytes is `request.prepare`; who opens and seals it is `_runtime.attempt`.

Source: ADR-046, "Lifetime of the staging buffer" and "Limits".
"""

from __future__ import annotations

from threading import Lock
from typing import TypeVar

import attrs

from .errors import (
    StagingError,
    StagingNotOffered,
    StagingSealed,
    StagingTooLarge,
    StagingTooMany,
    TerminalError,
)
from .job import PreparedInsert

TerminalErrorT = TypeVar("TerminalErrorT", bound=TerminalError)

#: ADR-046's contract. It comes from engines that spend two subtransaction IDs on
#: each unique follow-up, of which a backend caches 64 before every other session's
#: snapshots slow down. Ours spends none, but the number is what users rely on.
MAX_FOLLOW_UPS = 16

#: Held from staging until the completion commits, by every running attempt and
#: every completion waiting for a finalizer, so it bounds a worker's memory.
MAX_STAGED_BYTES = 64 * 1024


@attrs.frozen
class Sealed:
    """What an attempt left behind when its nursery closed."""

    follow_ups: tuple[PreparedInsert, ...] = ()
    """In staging order."""
    poison: TerminalError | None = None
    """The first failure that forbids the attempt to complete, whatever its handler returns: of
    staging, or of reading its arguments."""
    callback: str | None = None
    """The token of the callback it registered last and did not wait for."""


NOTHING_STAGED = Sealed()


class StagingBuffer:
    """One attempt's follow-ups, until they are sealed."""

    __slots__ = ("_lock", "_offered", "_poison", "_sealed", "_size", "_staged")

    def __init__(self) -> None:
        self._lock = Lock()
        self._staged: list[PreparedInsert] = []
        self._size = 0
        self._poison: TerminalError | None = None
        self._sealed: Sealed | None = None
        self._offered = True

    @property
    def staged(self) -> tuple[PreparedInsert, ...]:
        """What has been staged so far, in order."""
        return tuple(self._staged)

    @property
    def poison(self) -> TerminalError | None:
        """The first failure so far that forbids the attempt to complete."""
        return self._poison

    def stage(self, follow_up: PreparedInsert) -> None:
        """Add one follow-up, or leave the buffer as it was and poison the attempt.

        Raises:
          StagingTooMany: the attempt holds 16 already.
          StagingTooLarge: with this one it would hold more than 65,536 bytes.
          StagingNotOffered: the attempt completes itself.
          StagingSealed: the attempt is over. It is not poisoned: it has ended.
        """
        with self._lock:
            if self._sealed is not None:
                raise StagingSealed
            if not self._offered:
                raise self._poisoned_by(
                    StagingNotOffered(
                        "staging is not offered where an attempt completes itself"
                    )
                )
            if len(self._staged) == MAX_FOLLOW_UPS:
                raise self._poisoned_by(StagingTooMany(MAX_FOLLOW_UPS))
            if self._size + follow_up.size > MAX_STAGED_BYTES:
                raise self._poisoned_by(StagingTooLarge(MAX_STAGED_BYTES))
            self._staged.append(follow_up)
            self._size += follow_up.size

    def refuse(self, error: StagingError) -> StagingError:
        """Poison the attempt because a follow-up could not even be prepared.

        Returns what to raise: ``error``, or `StagingSealed` if the attempt is over.
        """
        with self._lock:
            return self._poisoned_by(error) if self._sealed is None else StagingSealed()

    @property
    def sealed(self) -> bool:
        """Whether the attempt is over."""
        return self._sealed is not None

    def withdraw(self) -> None:
        """Refuse follow-ups from now on: the attempt is completing itself.

        Raises:
          StagingNotOffered: it holds some already, which nothing would insert.
          TerminalError: the attempt is poisoned, and must not complete.
        """
        with self._lock:
            if self._poison is not None:
                raise self._poison
            if self._staged:
                raise StagingNotOffered(
                    f"this attempt has staged {len(self._staged)} follow-ups, which completing"
                    " itself would not insert"
                )
            self._offered = False

    def offer(self) -> None:
        """Take follow-ups again: the attempt has not completed itself after all."""
        self._offered = True

    def forbid(self, error: TerminalError) -> None:
        """Poison the attempt for another reason, unless it is over."""
        with self._lock:
            if self._sealed is None:
                self._poisoned_by(error)

    def _poisoned_by(self, error: TerminalErrorT) -> TerminalErrorT:
        self._poison = self._poison or error
        return error

    def seal(self) -> Sealed:
        """Close the buffer for good; the same contents at every call."""
        with self._lock:
            if self._sealed is None:
                if self._staged or self._poison is not None:
                    self._sealed = Sealed(tuple(self._staged), self._poison)
                else:
                    self._sealed = NOTHING_STAGED
            return self._sealed

"""A worker as others see it: its row, for people."""

from __future__ import annotations

from datetime import datetime

import attrs


@attrs.frozen
class WorkerRow:
    """A worker as the database knows it, at one moment."""

    id: int
    name: str
    """Host and process, unless given."""
    started_at: datetime
    """When it registered, by the database's clock."""
    beat_at: datetime
    """When it last said that it lives."""
    silent: float
    """Seconds since then, by the database's clock."""
    lease: float
    """Seconds of silence after which it is presumed dead."""
    fenced: bool
    """Whether it was presumed dead, and nothing of it counts any more."""
    running: int
    """Attempts it runs."""
    waiting: int
    """Attempts that wait for a callback in its memory."""
    queues: tuple[str, ...] | None
    """The queues it serves; None if it did not say."""
    kinds: tuple[str, ...] | None
    """The kinds it runs; None if it did not say."""
    duties: tuple[str, ...] = ()
    """What it does for all workers: ``upkeep``."""

    @property
    def alive(self) -> bool:
        """Whether it is not presumed dead, and is about not to be."""
        return not self.fenced and self.silent <= self.lease

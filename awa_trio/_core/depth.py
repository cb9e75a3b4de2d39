"""How many jobs a producer may enqueue before it counts again what is in the queue."""

from __future__ import annotations

import attrs

#: Seconds for which a count is good: others enqueue too.
GOOD_FOR = 1.0


@attrs.frozen
class Allowance:
    """What is left of the room that was found in a queue."""

    room: int
    """Jobs that fitted when it was counted, less those enqueued since."""
    spend: int
    """Of these, so many may be enqueued without counting again: half of it, because others
    have counted too."""
    until: float
    empty: bool
    """Whether nothing was in the queue: then more than fit at all are let in."""

    @classmethod
    def counted(cls, depth: int, limit: int, now: float) -> Allowance:
        """Return what a count of ``depth`` jobs allows."""
        room = max(0, limit - depth)
        return cls(room, room // 2, now + GOOD_FOR, depth == 0)

    def fits(self, count: int) -> bool:
        """Whether so many may be enqueued upon this count."""
        return count <= self.room or self.empty

    def taken(self, count: int) -> Allowance:
        """Return what is left after so many."""
        return attrs.evolve(self, room=self.room - count, spend=self.spend - count, empty=False)

    def take(self, count: int, now: float) -> Allowance | None:
        """Return what is left after so many more; None if it is to be counted again."""
        return self.taken(count) if count <= self.spend and now < self.until else None

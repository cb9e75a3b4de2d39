"""How a worker's cap is shared between its queues.

What a queue is kept is its own; of the rest, each slot goes to the queue that has least for its weight,
counting what runs. So a queue that was idle comes first when it has work again, one that
is idle leaves its share to the others, and nobody is ever left out for good.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import attrs


@attrs.frozen
class Share:
    """A queue, as far as sharing goes."""

    running: int
    """Slots that it has."""
    most: int
    """How many more it could use at once; 0 if it has nothing to run."""
    weight: int = 1
    minimum: int = 0
    """Slots that are kept for it."""


def rooms(cap: int, shares: Sequence[Share]) -> list[int]:
    """Return how many more slots each queue may take.

    Together with what runs, never more than ``cap``, nor so many that another queue could not
    have its minimum. Minimums that do not fit under the cap together are cut in proportion.

    Args:
      cap: slots of the worker.
      shares: its queues, those with nothing to run too.
    """
    minimums = _fitting(cap, [share.minimum for share in shares])
    kept = [max(0, m - s.running) for m, s in zip(minimums, shares, strict=True)]
    free = cap - sum(share.running for share in shares)
    common = free - sum(kept)
    given = [0] * len(shares)

    def turn(n: int) -> tuple[bool, float, int]:
        """Whose turn it is: who is owed a minimum, then who has least for its weight."""
        return (given[n] >= kept[n], (shares[n].running + given[n]) / shares[n].weight, n)

    turns = [turn(n) for n, share in enumerate(shares) if share.most > 0]
    heapq.heapify(turns)
    while turns and free > 0:
        *_, n = heapq.heappop(turns)
        if given[n] >= kept[n]:
            if common <= 0:
                break  # all that are left have what is kept for them
            common -= 1
        given[n] += 1
        free -= 1
        if given[n] < shares[n].most:
            heapq.heappush(turns, turn(n))
    return given


def _fitting(cap: int, minimums: Sequence[int]) -> Sequence[int]:
    wanted = sum(minimums)
    if wanted <= cap:
        return minimums
    return [minimum * max(cap, 0) // wanted for minimum in minimums]

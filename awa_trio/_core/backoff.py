"""How long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: A day: the ancestor's cap, reached at attempt 17.
MAX_BACKOFF = 86_400.0

#: Seconds before the next attempt, given the number of the one that failed, from 1.
Backoff: TypeAlias = Callable[[int], float]


def exponential(attempt: int, fraction: float) -> float:
    """Return the default delay in seconds after attempt number ``attempt``.

    ``min(2**attempt * (1 + fraction / 4), 86_400)``: 2.0 to 2.5 s after the first,
    17 to 21 minutes after the tenth, a day from the seventeenth on.

    Args:
      attempt: the attempt that failed, from 1; any size.
      fraction: one random number from 0 to 1, so that jobs that failed together
          do not come back together.
    """
    # 2**17 is past the cap already; clamping first keeps 2.0**10_000 from overflowing.
    return min(2.0 ** min(max(attempt, 0), 17) * (1 + 0.25 * fraction), MAX_BACKOFF)


def delay(attempt: int, fraction: float, own: Backoff | None = None) -> float:
    """Return the delay in seconds after attempt ``attempt``: the task's own, or the default.

    What a task's own function returns is clamped to 0 seconds and a day.

    Raises:
      Exception: whatever the task's own function raises.
    """
    if own is None:
        return exponential(attempt, fraction)
    seconds = float(own(attempt))
    # A comparison with nan is false, so nan becomes the cap rather than a bad timestamp.
    return max(seconds, 0.0) if seconds <= MAX_BACKOFF else MAX_BACKOFF

"""How long to wait before the next attempt."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsFloat, TypeAlias

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


def usable(returned: object) -> tuple[float | None, str]:
    """Return the delay to use for what a task's own function returned, and what is wrong with it.

    No delay: there is no telling what was meant, and the default is used. Nothing wrong: an
    empty string.
    """
    if isinstance(returned, (bool, str, bytes)) or not isinstance(returned, SupportsFloat):
        return None, f"a {type(returned).__name__}"
    try:
        seconds = float(returned)
    except OverflowError:
        seconds = math.inf
    if math.isnan(seconds):
        return None, "NaN"
    if seconds < 0:
        return 0.0, "a negative number"
    if seconds > MAX_BACKOFF:
        return MAX_BACKOFF, "more than a day"
    return seconds, ""


def delay(attempt: int, fraction: float, own: Backoff | None = None) -> float:
    """Return the delay in seconds after attempt ``attempt``: the task's own, or the default.

    What a task's own function returns is used as `usable` says.

    Raises:
      Exception: whatever the task's own function raises.
    """
    seconds = None if own is None else usable(own(attempt))[0]
    return exponential(attempt, fraction) if seconds is None else seconds

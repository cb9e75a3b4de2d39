"""From rounds of numbers to medians, spreads and ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value that so many percent of some do not exceed (nearest rank).

    Args:
      ordered: at least one, ascending.
      percent: above 0, at most 100.
    """
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def short(value: float) -> str:
    """Write a number in as many digits as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return "0" if float(text) == 0 else text


def spread(values: Sequence[float]) -> str:
    """Write a median with the least and the most; ``-`` for nothing."""
    if not values:
        return "-"
    if len(values) == 1:
        return short(values[0])
    return f"{short(statistics.median(values))} ({short(min(values))}-{short(max(values))})"


def ratio(
    ours: Sequence[float | None],
    peers: Mapping[str, Sequence[float | None]],
    *,
    more_is_better: bool,
) -> tuple[float, str] | None:
    """Compare with the best peer, round by round, and return the median ratio.

    The rounds are interleaved, so both of each pair were measured on the same minute's
    machine. The best peer is the one whose median is.

    Args:
      ours: a value per round; None where the measure failed.
      peers: likewise, by name.
      more_is_better: which way is best.

    Returns:
      Ours divided by theirs, and the peer's name; None if there is nothing to compare.
    """
    best = best_of(peers, more_is_better=more_is_better)
    if best is None:
        return None
    quotients = [
        mine / theirs
        for mine, theirs in zip(ours, peers[best], strict=False)
        if mine is not None and theirs
    ]
    return (statistics.median(quotients), best) if quotients else None


def best_of(
    all_values: Mapping[str, Sequence[float | None]], *, more_is_better: bool
) -> str | None:
    """Return the name whose median is best; None if nobody has a value."""
    medians = {
        name: statistics.median(known)
        for name, values in all_values.items()
        if (known := [value for value in values if value is not None])
    }
    if not medians:
        return None
    return (max if more_is_better else min)(medians, key=lambda name: medians[name])

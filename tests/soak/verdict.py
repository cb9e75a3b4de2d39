"""Whether what was sampled is flat: decided from numbers alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from .app import SLOTS

Sample: TypeAlias = Mapping[str, float | None]
"""What was seen at a moment, by the names of `BOUNDS`; ``seconds`` says when. None for what
could not be seen then."""

#: The share of a run, at its beginning, in which things may still grow to their size.
WARM_UP = 0.2


@frozen
class Bound:
    """How much of something may come on top of itself in a run."""

    name: str
    title: str
    unit: str
    rise: float
    """As much is no growth but the noise of the machine, or one more of a pool."""
    share: float = 0.0
    """Or as much, relative to its middle value in the first third; whichever is more."""
    scale: float = 1.0
    """How many of what is sampled make one unit."""
    judged: bool = True
    """Whether it must be flat, or is only shown, because it rises with whatever else the machine
    does; what it is relative to that is judged then."""


BOUNDS = (
    Bound("memory", "memory of the worker", "MiB", 4 * 2**20, 0.05, 2**20),
    Bound("objects", "Python objects of the worker", "", 2_000, 0.05),
    # A slot that has been used once keeps its task, and a busy moment uses more of them.
    Bound("tasks", "Trio tasks", "", SLOTS),
    Bound("fds", "file descriptors", "", 2),
    Bound("threads", "threads", "", 3),
    Bound("connections", "connections to the database", "", 2),
    Bound("in_transaction", "connections idle in a transaction", "", 0.5),
    Bound("due", "jobs that are due and not claimed", "", 20),
    Bound("rows", "rows of all tables", "", 1_000, 0.15),
    Bound("size", "tables and their indexes", "MiB", 4 * 2**20, 0.15, 2**20),
    Bound("dead", "dead rows", "", 4_000, 0.5),
    Bound("cpu_per_job", "worker's CPU for each settlement", "ms", 0.0005, 0.2, 0.001),
    Bound("p50", "pickup, median", "ms", 0.005, 0.3, 0.001, judged=False),
    Bound("p95", "pickup, 95th percentile", "ms", 0.025, 0.5, 0.001, judged=False),
    Bound("machine", "a round trip to the database", "ms", 0.001, 0.3, 0.001, judged=False),
    Bound("p50_relative", "pickup, median, in such round trips", "", 5, 0.5),
    Bound("p95_relative", "pickup, 95th percentile, in such round trips", "", 10, 0.75),
)
"""What is looked at."""


@frozen
class Finding:
    """What became of one of them."""

    bound: Bound
    first: float
    """The middle value of the first third of what was judged."""
    last: float
    """And of the last third."""
    most: float
    per_hour: float
    """The slope: by how much it grows in an hour."""
    rise: float
    """By how much it grew in the time that was judged, by its slope."""
    allowed: float

    @property
    def flat(self) -> bool:
        """Whether both the slope and the thirds say so.

        The slope alone overlooks a step, the thirds alone a growth that the last third hides.
        """
        return self.rise <= self.allowed and self.last - self.first <= self.allowed

    @property
    def grows(self) -> bool:
        """Whether it should be flat, and is not."""
        return self.bound.judged and not self.flat


def judge(
    samples: Sequence[Sample], *, warm_up: float = WARM_UP, bounds: Iterable[Bound] = BOUNDS
) -> list[Finding]:
    """Find the slope of everything, and whether it is within its bound.

    Args:
      samples: in order, of one run.
      warm_up: the share of the run that is left out.
      bounds: what must be flat.

    Raises:
      ValueError: something has been seen fewer than six times after the warm-up, which says
          nothing. What this run did not look at at all is left out.
    """
    begun, ended = (samples[n]["seconds"] or 0.0 for n in (0, -1))
    after = begun + warm_up * (ended - begun)
    found = []
    for bound in bounds:
        if not any(bound.name in sample for sample in samples):
            continue
        seen = [
            (at, value)
            for sample in samples
            if (at := sample["seconds"]) is not None
            and at >= after
            and (value := sample.get(bound.name)) is not None
        ]
        if len(seen) < 6:
            raise ValueError(f"{bound.title}: {len(seen)} samples say nothing; run it longer")
        found.append(_finding(bound, seen))
    return found


def _finding(bound: Bound, seen: Sequence[tuple[float, float]]) -> Finding:
    values = [value for _, value in seen]
    third = len(seen) // 3
    per_second = slope(seen)
    first = statistics.median(values[:third])
    return Finding(
        bound,
        first,
        statistics.median(values[-third:]),
        max(values),
        per_second * 3600,
        per_second * (seen[-1][0] - seen[0][0]),
        max(bound.rise, bound.share * first),
    )


def slope(seen: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs: a few odd samples do not move it.

    Source: Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968.

    Args:
      seen: at least two moments and values; the moments ascend.
    """
    # So many are as good as all.
    step = -(-len(seen) // 200)
    few = seen[::step]
    return statistics.median(
        (value - earlier) / (at - before)
        for n, (at, value) in enumerate(few)
        for before, earlier in few[:n]
    )

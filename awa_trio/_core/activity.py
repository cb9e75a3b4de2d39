"""What has happened to jobs lately, as figures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs


@attrs.frozen
class Latency:
    """How long something took, over the jobs that were looked at; in seconds."""

    p50: float
    """Half of them took no longer."""
    p95: float
    """Of a hundred, ninety-five took no longer."""
    p99: float
    """Of a hundred, ninety-nine took no longer."""

    @classmethod
    def of(cls, percentiles: Sequence[float | None] | None) -> Latency | None:
        """Return percentiles as a latency; None if there are none."""
        if percentiles is None or None in percentiles:
            return None
        p50, p95, p99 = percentiles
        assert p50 is not None
        assert p95 is not None
        assert p99 is not None
        return cls(p50, p95, p99)


@attrs.frozen
class Figures:
    """What a store counts for an `Activity`."""

    at: datetime
    seconds: float
    completed: int
    failed: int
    cancelled: int
    pickup: Latency | None
    run: Latency | None
    newest_id: int | None
    failures: tuple[int, ...]
    """The jobs that failed last, newest first."""
    queues: tuple[str, ...]
    """Where jobs wait, or which live workers serve."""


def percentiles(values: Sequence[float]) -> Latency | None:
    """Return the percentiles of values, each of them one that occurs; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return Latency(
        *(ordered[max(0, -(-len(ordered) * part // 100) - 1)] for part in (50, 95, 99))
    )

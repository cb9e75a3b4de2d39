"""Durations and instants in words, for all that people read: errors, pages, the command line.

No layer: it knows nothing of jobs, and every layer may say how long something took.
"""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def measured(seconds: float) -> str:
    """Return a duration that was measured, to two digits or more: ``84 ms``, ``3.2 s``, ``5 min``."""
    size = abs(seconds)
    if size < 0.00005:
        return "0 ms"
    if size < 0.9995:
        return f"{size * 1000:.1f} ms" if size < 0.00995 else f"{size * 1000:.0f} ms"
    return f"{size:.1f} s" if size < 9.95 else in_words(size)


def in_words(seconds: float) -> str:
    """Return a duration in whole seconds, or in the largest unit of which it is two: ``90 s``."""
    size = round(abs(seconds))
    for unit, length in _UNITS:
        if size >= 2 * length:
            return f"{size / length:.0f} {unit}"
    return f"{size} s"


def ago(seconds: float) -> str:
    """Return how long ago something was, or if negative, in how long it will be: ``5 s ago``."""
    if abs(seconds) < 1:
        return "just now"
    return f"{in_words(seconds)} ago" if seconds > 0 else f"in {in_words(seconds)}"


def exact(instant: datetime) -> str:
    """Return an instant to the second: ``2026-01-01 12:00:00 UTC``."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def at_in_words(instant: datetime, present: datetime) -> str:
    """Return an instant and how far off it is: ``2026-01-01 12:00:00 UTC, in 5 min``."""
    return f"{exact(instant)}, {ago((present - instant).total_seconds())}"

"""Durations and instants in words, for sentences that people read."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def in_words(seconds: float) -> str:
    """Return a duration as people say it, in its largest unit: ``"5 min"``."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def at_in_words(instant: datetime, present: datetime) -> str:
    """Return an instant and how far off it is: ``"2026-01-01 12:00:00 UTC, in 5 min"``."""
    text = f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    seconds = (instant - present).total_seconds()
    return f"{text}, {ago(seconds)}"


def ago(seconds: float) -> str:
    """Return how far off something is, in the past if negative: ``"5 min ago"``."""
    return f"in {in_words(seconds)}" if seconds > 0 else f"{in_words(-seconds)} ago"

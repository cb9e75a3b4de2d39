"""Instants, as PostgreSQL counts them: microseconds since 2000-01-01 00:00 UTC.

Rows keep the count and become datetimes when somebody looks: two of them took a third
of the time it takes to read a claimed job.

Source: PostgreSQL's src/include/datatype/timestamp.h.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def instant(count: int) -> datetime:
    """Return the instant, in UTC whatever time zone the session has.

    One that is outside the years 1 to 9999, such as PostgreSQL's ``infinity``, which SQL may
    have put into a row, is the first or the last of them.
    """
    try:
        return EPOCH + timedelta(microseconds=count)
    except OverflowError:
        return _FIRST if count < 0 else _LAST


def count(at: datetime) -> int:
    """Return an aware datetime's count."""
    delta = at - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds

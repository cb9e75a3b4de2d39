"""Instants, as PostgreSQL counts them: microseconds since 2000-01-01 00:00 UTC.

Rows keep the count and become datetimes when somebody looks: two of them took a third
of the time it takes to read a claimed job.

Source: PostgreSQL's src/include/datatype/timestamp.h.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def instant(count: int) -> datetime:
    """Return the instant, in UTC whatever time zone the session has.

    Raises:
      OverflowError: it is outside the years 1 to 9999; rows hold none such.
    """
    return EPOCH + timedelta(microseconds=count)


def count(at: datetime) -> int:
    """Return an aware datetime's count."""
    delta = at - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds

"""A job's failures, out of what is stored.

A program that is none of ours may have written it: whatever it is, the job can be looked at.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from .instants import EPOCH
from .job import JobError
from .report import report


def job_errors(raw: bytes | None) -> list[JobError]:
    """Return the failures that a JSON array says, oldest first.

    Args:
      raw: the array; null or None for none. What is something else, or has entries that are,
          counts as failures too: of attempt 0, on the first day of 2000, with what is written
          there for their text.
    """
    if raw is None:
        return []
    try:
        found = json.loads(raw, parse_int=_number)
        entries = found if isinstance(found, list) else [] if found is None else [found]
        return [_entry(entry) for entry in entries]
    except (ValueError, RecursionError):
        # Too deep for Python.
        return [_foreign(raw.decode(errors="replace"))]


def _entry(entry: object) -> JobError:
    match entry:
        case {
            "error": str(error),
            "attempt": int(attempt),
            "at": str(at),
            "terminal": bool(terminal),
        } if (when := _instant(at)) is not None:
            return JobError(error, int(attempt), when, terminal)
        case {"error": str(error)}:
            return _foreign(error)
    return _foreign(json.dumps(entry, ensure_ascii=False))


def _number(digits: str) -> int | float:
    """Return an int; of one that Python refuses for its length, what a float makes of it."""
    return int(digits) if len(digits) < 20 else float(digits)


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _foreign(text: str) -> JobError:
    return JobError(report(text), 0, EPOCH, terminal=False)

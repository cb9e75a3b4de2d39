"""What the driver's errors mean to the runtime."""

from __future__ import annotations

import psycopg

from .._seam.errors import Fenced, KeyTaken, LockTimeout, Rejected, StoreError, Transient

#: Raised by our own functions; see functions/lock_worker.sql and settle.sql.
FENCED = "AW001"
KEY_TAKEN = "AW002"

#: Someone else's lock was waited for long enough, or the statement was cut for taking long.
_TIMEOUTS = frozenset({"55P03", "57014"})

#: Rolled back, or not reached, for reasons that pass: deadlock, serialization, a standby
#: after a failover, and whole classes: connection, resources, operator, system.
_TRANSIENT = frozenset({"40P01", "40001", "40003", "25006"})
_TRANSIENT_CLASSES = frozenset({"08", "53", "57", "58"})


def store_error(error: psycopg.Error) -> StoreError:
    """Return the store's error for one of the driver's, to be raised from it.

    Source: PostgreSQL documentation, Appendix A, "PostgreSQL Error Codes".
    """
    code = error.sqlstate
    # libpq's own messages have several lines; what becomes of this is one sentence.
    name = type(error).__name__
    message = f"{name}: {' '.join((error.diag.message_primary or str(error)).split())}"
    # What the server says may be what a trigger of the user's says, of a job.
    headline = message if code is None else f"{name} ({code})"
    if code == FENCED:
        return Fenced(message, headline)
    if code == KEY_TAKEN:
        return KeyTaken(int(error.diag.message_detail or 0))
    if code in _TIMEOUTS:
        return LockTimeout(message, headline)
    if code in _TRANSIENT or (code is not None and code[:2] in _TRANSIENT_CLASSES):
        return Transient(message, headline)
    if code is None and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        # The connection was lost, closed, or never made.
        return Transient(message, headline)
    return Rejected(message, headline)

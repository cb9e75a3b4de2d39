"""What the driver's errors mean to the runtime."""

from __future__ import annotations

import re

import psycopg

from .._seam.errors import (
    Draining,
    Fenced,
    KeyTaken,
    Lasting,
    LockTimeout,
    Rejected,
    StoreError,
    Transient,
)

#: Raised by our own functions; see functions/lock_worker.sql, settle.sql,
#: join_transaction.sql and refuse_drained.sql.
FENCED = "AW001"
KEY_TAKEN = "AW002"
IN_LANE = "AW003"
DRAINING = "AW004"


class InLane(StoreError):
    """A job must leave its lane before a transaction of this isolation begins; no caller of a
    store sees this."""


#: Someone else's lock was waited for long enough, or the statement was cut for taking long.
_TIMEOUTS = frozenset({"55P03", "57014"})

#: Rolled back, or not reached, for reasons that pass: deadlock, serialization, a standby
#: after a failover, and whole classes: connection, resources, operator, system.
_TRANSIENT = frozenset({"40P01", "40001", "40003", "25006", "3D000"})
_TRANSIENT_CLASSES = frozenset({"08", "53", "57", "58"})


#: Statements that were prepared on another connection than this one, or are already, or are
#: another client's of the same name, with other parameters: a pooler in transaction mode is in
#: between. Nothing that a job is to blame for.
_UNPREPARED = frozenset({"26000", "42P05", "08P01"})
_PREPARE = "; behind a pooler in transaction mode, leave out prepare=True"

#: invalid_schema_name, undefined_function, undefined_table; invalid_catalog_name;
#: insufficient_privilege.
_LASTING = {
    "3F000": Lasting.SCHEMA,
    "42883": Lasting.SCHEMA,
    "42P01": Lasting.SCHEMA,
    "3D000": Lasting.DATABASE,
    "42501": Lasting.RIGHTS,
}

#: A connection that fails has no SQLSTATE, only what the server said, in its language. Where that
#: is another than English, whoever opens connections asks its catalog: `NoDatabase`.
_NO_DATABASE = re.compile('FATAL: .*database ".*" does not exist', re.DOTALL)


#: Without a SQLSTATE, these say that the connection was lost, closed, or never made. psycopg's
#: internal error is about answers that nobody asked for: a pooler sends the client of a server
#: that died an error before it closes, which then comes as the first of two answers.
OF_THE_CONNECTION = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)


class NoDatabase(psycopg.OperationalError):
    """A connection that failed because there is no such database, as the server's catalog says."""

    sqlstate = "3D000"


def says_no_database(error: psycopg.Error) -> bool:
    """Whether a connection that failed says so in English."""
    return _NO_DATABASE.search(str(error)) is not None


def store_error(error: psycopg.Error) -> StoreError:
    """Return the store's error for one of the driver's, to be raised from it."""
    found = _classified(error)
    if error.sqlstate is not None:
        found.lasting = _LASTING.get(error.sqlstate)
    elif says_no_database(error):
        found.lasting = Lasting.DATABASE
    return found


def _classified(error: psycopg.Error) -> StoreError:
    """What it means to the runtime.

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
    if code == IN_LANE:
        return InLane(message, headline)
    if code == DRAINING:
        return Draining(error.diag.message_detail or "")
    if code == KEY_TAKEN:
        return KeyTaken(int(error.diag.message_detail or 0))
    if code in _UNPREPARED:
        return Transient(message + _PREPARE, headline + _PREPARE)
    if code in _TIMEOUTS:
        return LockTimeout(message, headline)
    if code in _TRANSIENT or (code is not None and code[:2] in _TRANSIENT_CLASSES):
        return Transient(message, headline)
    if code is None and isinstance(error, OF_THE_CONNECTION):
        return Transient(message, headline)
    return Rejected(message, headline)

"""Cursors that send and receive what the store's statements take and give.

What they adapt is theirs alone: the connection may be lent to a user, or be a user's own
with adapters of its own.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Loader
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.numeric import Int8BinaryLoader

from .._pg import arrays


class _RawJson(Loader):
    """JSON as the bytes that came; who reads it parses it."""

    format = pq.Format.BINARY

    def load(self, data: Any) -> bytes:
        return bytes(data)


class _RawJsonText(_RawJson):
    format = pq.Format.TEXT


class _RawJsonb(_RawJson):
    """In binary, the number of the format comes first."""

    def load(self, data: Any) -> bytes:
        return bytes(data[1:])


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    arrays.register(adapters)
    adapters.register_loader("json", _RawJson)
    adapters.register_loader("jsonb", _RawJsonb)
    for name in ("json", "jsonb"):
        adapters.register_loader(name, _RawJsonText)
    # Their counts. psycopg's datetimes are in the session's time zone, where the last day
    # of the year 9999 may not exist.
    adapters.register_loader("timestamptz", Int8BinaryLoader)
    return adapters


#: One for all: to copy and change a map for each cursor took 10 µs.
_ADAPTERS = _adapters()


class StoreCursor(psycopg.RawCursor[TupleRow]):
    """A cursor on a synchronous connection."""

    @property
    def adapters(self) -> AdaptersMap:
        """Those of the store's statements."""
        return _ADAPTERS

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)


class AsyncStoreCursor(psycopg.AsyncRawCursor[TupleRow]):
    """A cursor on an asynchronous connection."""

    @property
    def adapters(self) -> AdaptersMap:
        """Those of the store's statements."""
        return _ADAPTERS

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

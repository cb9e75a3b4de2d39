"""Arrays as parameters, packed for PostgreSQL's binary format.

psycopg writes lists as text unless told otherwise, which costs 6 to 16 microseconds an
item for bytea and JSON; packed here it is about 0.1. The type of an array is fixed by
its constructor rather than guessed from its items, so that one statement has one plan.

Source: PostgreSQL's array_recv in src/backend/utils/adt/arrayfuncs.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from psycopg import pq
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper

from awa_trio._core.instants import count

_INT = struct.Struct("!i").pack
_HEADER = struct.Struct("!iiIii").pack
_NULL = _INT(-1)


class Array:
    """One array parameter: its type's OID, its items' OID, and how to pack an item.

    Items may be None. Made by the constructors below.
    """

    __slots__ = ("item_oid", "items", "oid", "pack")

    def __init__(
        self,
        oid: int,
        item_oid: int,
        items: Sequence[Any],
        pack: Callable[[Any, str], bytes],
    ) -> None:
        self.oid = oid
        self.item_oid = item_oid
        self.items = items
        self.pack = pack

    def packed(self, encoding: str) -> bytes:
        """Return the array in binary format, its strings in the client's ``encoding``."""
        pack = self.pack
        parts = [b""]
        nulls = 0
        for item in self.items:
            if item is None:
                nulls = 1
                parts.append(_NULL)
            else:
                data = pack(item, encoding)
                parts.append(_INT(len(data)))
                parts.append(data)
        parts[0] = _HEADER(1, nulls, self.item_oid, len(self.items), 1)
        return b"".join(parts) if self.items else _HEADER(0, 0, self.item_oid, 0, 0)[:12]


class ArrayDumper(Dumper):
    """Hands an `Array` to libpq as it is."""

    format = pq.Format.BINARY

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        connection = self.connection
        self._encoding = "utf-8" if connection is None else connection.info.encoding

    def get_key(self, obj: Array, format: Any) -> Any:  # noqa: A002
        """One dumper for each type of array."""
        return (self.cls, obj.oid)

    def upgrade(self, obj: Array, format: Any) -> ArrayDumper:  # noqa: A002
        """Return the dumper for this type of array."""
        dumper = ArrayDumper(self.cls)
        dumper._encoding = self._encoding
        dumper.oid = obj.oid
        return dumper

    def dump(self, obj: Array) -> Buffer:
        """Pack the array."""
        return obj.packed(self._encoding)


def register(context: AdaptContext) -> None:
    """Let a connection or cursor take `Array` parameters."""
    context.adapters.register_dumper(Array, ArrayDumper)


def _packer(code: str) -> Callable[[Any, str], bytes]:
    pack = struct.Struct(code).pack
    return lambda item, encoding: pack(item)


_int2, _int4, _int8, _float8 = map(_packer, ("!h", "!i", "!q", "!d"))


def _text(item: str, encoding: str) -> bytes:
    return item.encode(encoding)


def _raw(item: bytes, encoding: str) -> bytes:
    return item


def _timestamptz(item: datetime, encoding: str) -> bytes:
    return _int8(count(item), encoding)


def int2s(items: Sequence[int | None]) -> Array:
    """A ``smallint[]``."""
    return Array(1005, 21, items, _int2)


def int4s(items: Sequence[int | None]) -> Array:
    """An ``integer[]``."""
    return Array(1007, 23, items, _int4)


def int8s(items: Sequence[int | None]) -> Array:
    """A ``bigint[]``."""
    return Array(1016, 20, items, _int8)


def float8s(items: Sequence[float | None]) -> Array:
    """A ``double precision[]``."""
    return Array(1022, 701, items, _float8)


def texts(items: Sequence[str | None]) -> Array:
    """A ``text[]``."""
    return Array(1009, 25, items, _text)


def byteas(items: Sequence[bytes | None]) -> Array:
    """A ``bytea[]``."""
    return Array(1001, 17, items, _raw)


def jsons(items: Sequence[bytes | None]) -> Array:
    """A ``json[]``, its items JSON text in ASCII."""
    return Array(199, 114, items, _raw)


def timestamptzs(items: Sequence[datetime | None]) -> Array:
    """A ``timestamptz[]``, its items timezone-aware."""
    return Array(1185, 1184, items, _timestamptz)

"""Arrays as parameters, packed for PostgreSQL's binary format.

psycopg writes lists as text unless told otherwise, which costs 6 to 16 microseconds an
item for bytea and JSON; packed here it is about 0.1. The type of an array is fixed by
its constructor rather than guessed from its items, so that one statement has one plan.

Source: PostgreSQL's array_recv in src/backend/utils/adt/arrayfuncs.c.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg import pq
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper

from awa_trio._core.instants import count

_INT = struct.Struct("!i").pack
_LAYOUT = "!iiIii"
_HEADER = struct.Struct(_LAYOUT).pack
_NULL = _INT(-1)


class Array:
    """One array parameter: its type's OID, its items' OID, and how to pack an item.

    Items may be None. Made by the constructors below.
    """

    __slots__ = ("item_oid", "items", "oid")

    def __init__(self, oid: int, item_oid: int, items: Sequence[Any]) -> None:
        self.oid = oid
        self.item_oid = item_oid
        self.items = items

    def packed(self, encoding: str) -> bytes:
        """Return the array in binary format, its strings in the client's ``encoding``."""
        parts = [b""]
        nulls = 0
        for item in self.items:
            if item is None:
                nulls = 1
                parts.append(_NULL)
            else:
                data = self.pack(item, encoding)
                parts.append(_INT(len(data)))
                parts.append(data)
        parts[0] = _HEADER(1, nulls, self.item_oid, len(self.items), 1)
        return b"".join(parts) if self.items else _HEADER(0, 0, self.item_oid, 0, 0)[:12]

    def pack(self, item: Any, encoding: str) -> bytes:
        """Return one item in binary format."""
        raise NotImplementedError


class _Numbers(Array):
    """An array whose items have one size; packed at once, which takes a fourth of the time."""

    __slots__ = ("code",)

    def __init__(self, oid: int, item_oid: int, code: str, items: Sequence[Any]) -> None:
        super().__init__(oid, item_oid, items)
        self.code = code

    def packed(self, encoding: str) -> bytes:
        """See `Array`."""
        many = len(self.items)
        if not many or None in self.items:
            return super().packed(encoding)
        fields: list[Any] = [struct.calcsize("!" + self.code)] * (2 * many)
        fields[1::2] = self.items
        layout = _LAYOUT + ("i" + self.code) * many
        return struct.pack(layout, 1, 0, self.item_oid, many, 1, *fields)

    def pack(self, item: Any, encoding: str) -> bytes:
        """See `Array`."""
        return struct.pack("!" + self.code, item)


class _Texts(Array):
    __slots__ = ()

    def pack(self, item: str, encoding: str) -> bytes:
        """See `Array`."""
        return item.encode(encoding)


class _Bytes(Array):
    __slots__ = ()

    def pack(self, item: bytes, encoding: str) -> bytes:
        """See `Array`."""
        return item


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


def int2s(items: Sequence[int | None]) -> Array:
    """A ``smallint[]``."""
    return _Numbers(1005, 21, "h", items)


def int4s(items: Sequence[int | None]) -> Array:
    """An ``integer[]``."""
    return _Numbers(1007, 23, "i", items)


def int8s(items: Sequence[int | None]) -> Array:
    """A ``bigint[]``."""
    return _Numbers(1016, 20, "q", items)


def float8s(items: Sequence[float | None]) -> Array:
    """A ``double precision[]``."""
    return _Numbers(1022, 701, "d", items)


def texts(items: Sequence[str | None]) -> Array:
    """A ``text[]``."""
    return _Texts(1009, 25, items)


def byteas(items: Sequence[bytes | None]) -> Array:
    """A ``bytea[]``."""
    return _Bytes(1001, 17, items)


def jsons(items: Sequence[bytes | None]) -> Array:
    """A ``json[]``, its items JSON text in ASCII."""
    return _Bytes(199, 114, items)


def timestamptzs(items: Sequence[datetime | None]) -> Array:
    """A ``timestamptz[]``, its items timezone-aware."""
    return instants([None if item is None else count(item) for item in items])


def instants(counts: Sequence[int | None]) -> Array:
    """A ``timestamptz[]``, its items as `_core.instants` counts them: infinities too."""
    return _Numbers(1185, 1184, "q", counts)

"""Array parameters arrive as they were given, on every kind of connection."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from awa_trio._pg import arrays
from awa_trio._pg.connection import TrioConnection

CASES: list[tuple[Any, list[Any], str]] = [
    (arrays.int2s, [1, None, -32768, 32767], "smallint[]"),
    (arrays.int4s, [2**31 - 1, -(2**31), None], "integer[]"),
    (arrays.int8s, [2**63 - 1, -(2**63), None, 0], "bigint[]"),
    (arrays.float8s, [0.1, -0.0, 1e300, None, float("inf")], "double precision[]"),
    (arrays.texts, ["", "a", None, "é🎉", 'q"\\,{}NULL'], "text[]"),
    (arrays.byteas, [b"", b"\x00\xff", None], "bytea[]"),
    (
        arrays.timestamptzs,
        [datetime(1, 1, 2, tzinfo=UTC), None, datetime(9999, 12, 30, 23, 59, 59, 999999, UTC)],
        "timestamp with time zone[]",
    ),
]


@pytest.mark.parametrize(("make", "items", "type_name"), CASES, ids=[c[2] for c in CASES])
def test_what_is_sent_is_what_arrives(
    dsn: str, make: Any, items: list[Any], type_name: str
) -> None:
    with psycopg.connect(dsn) as connection:
        arrays.register(connection)
        some = [item for item in items if item is not None]
        row = connection.execute(
            "SELECT %s, %s, pg_typeof(%s)::text", [make(items), make(some), make([])]
        ).fetchone()
    assert row == (items, some, type_name)


def test_negative_zero_keeps_its_sign(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        arrays.register(connection)
        row = connection.execute("SELECT %s::text", [arrays.float8s([-0.0])]).fetchone()
    assert row == ("{-0}",)


@pytest.mark.parametrize("items", [[], [b'{"a": 1.0,  "b": -0.0}', None]])
def test_json_is_kept_to_the_letter(dsn: str, items: list[Any]) -> None:
    with psycopg.connect(dsn) as connection:
        arrays.register(connection)
        row = connection.execute("SELECT %s::text[]", [arrays.jsons(items)]).fetchone()
    assert row == ([None if item is None else item.decode() for item in items],)


def test_instants_of_any_offset_are_the_same_instant(dsn: str) -> None:
    zone = timezone(timedelta(hours=12, minutes=45))
    instant = datetime(2026, 3, 1, 12, 30, 1, 5, zone)
    with psycopg.connect(dsn) as connection:
        arrays.register(connection)
        row = connection.execute("SELECT %s", [arrays.timestamptzs([instant])]).fetchone()
    assert row is not None
    assert row[0] == [instant]


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_strings_are_in_the_clients_encoding(dsn: str, encoding: str) -> None:
    with psycopg.connect(dsn, client_encoding=encoding) as connection:
        arrays.register(connection)
        row = connection.execute(
            "SELECT (%s)[1] = U&'\\00e9'", [arrays.texts(["é"])]
        ).fetchone()
    assert row == (True,)


async def test_they_work_on_a_trio_connection_and_on_a_cursor_alone(dsn: str) -> None:
    async with await TrioConnection.connect(dsn) as connection:
        cursor = psycopg.AsyncRawCursor(connection)
        arrays.register(cursor)
        await cursor.execute("SELECT $1, $2", [arrays.int8s([1, 2]), arrays.texts(["a"])])
        assert await cursor.fetchone() == ([1, 2], ["a"])

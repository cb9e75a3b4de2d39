"""One call of an SQL function, which is one transaction.

An engine is a folder of SQL: the functions have the same names and parameters in each,
so everything beside this file holds for all of them. Which locks a call takes, and what
its answer means, is said at the head of the function's own file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import psycopg

from ..cursors import AsyncStoreCursor
from ..failures import store_error


class Connections(Protocol):
    """Where a store borrows connections; `_pg.pool.Pool` is one."""

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Borrow one for a block."""
        ...


def call(function: str, parameters: int) -> bytes:
    """Return the statement that calls one of the engine's functions."""
    places = ", ".join(f"${n + 1}" for n in range(parameters))
    return f"SELECT * FROM awa.{function}({places})".encode()  # noqa: S608, names of ours


class Calls:
    """What calls the functions of the ``awa`` schema, one transaction each, on borrowed connections."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def _rows(self, statement: bytes, parameters: Sequence[Any]) -> list[Any]:
        try:
            async with self._connections.connection() as connection:
                cursor = AsyncStoreCursor(connection)
                await cursor.execute(statement, parameters, binary=True)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise store_error(error) from error

    async def _value(self, statement: bytes, parameters: Sequence[Any]) -> Any:
        return (await self._rows(statement, parameters))[0][0]

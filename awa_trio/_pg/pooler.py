"""Whether a connection is one to the server, or to a pooler in front of it."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row


async def pooled(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a pooler is in between.

    When a session begins, PostgreSQL tells the client its process, for cancellations. A
    pooler answers that itself, before it knows which of its own sessions will do the work,
    so what it tells is the process of none of them.

    Args:
      connection: idle, in autocommit mode.

    Raises:
      psycopg.Error: it was lost meanwhile.
    """
    cursor = connection.cursor(row_factory=tuple_row)
    await cursor.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False)
    row = await cursor.fetchone()
    return row is None or row[0] != connection.pgconn.backend_pid

"""Bugs, planted in the functions of a test's own database."""

from __future__ import annotations

import psycopg


def plant(dsn: str, function: str, right: str, wrong: str) -> None:
    """Change a function of the ``awa`` schema: what is right in its text, into what is wrong."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT pg_get_functiondef(to_regproc(%s))", [f"awa.{function}"]
        ).fetchone()
        assert row is not None
        assert right in row[0], f"{function} is not what the bug is planted in"
        connection.execute(row[0].replace(right, wrong).encode())

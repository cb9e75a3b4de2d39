"""Bugs, planted in the functions of a test's own database."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg


def plant(dsn: str, functions: Sequence[str], right: str, wrong: str) -> None:
    """Change the first of some functions of the ``awa`` schema that there is.

    What is right in its text becomes what is wrong.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT pg_get_functiondef(f) FROM unnest(%s::text[]) WITH ORDINALITY AS n (name, number)"
            " CROSS JOIN to_regproc('awa.' || name) AS f WHERE f IS NOT NULL ORDER BY number",
            [list(functions)],
        ).fetchone()
        assert row is not None
        assert right in row[0], f"{functions} are not what the bug is planted in"
        connection.execute(row[0].replace(right, wrong).encode())

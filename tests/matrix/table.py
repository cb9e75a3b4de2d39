"""What came of the rows, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bench.tables import Table
from .rows import Row

_HEADER = (
    "row", "Python", "trio", "psycopg", "PostgreSQL", "pooler", "engine", "tests", "passed",
    "failed", "skipped",
)  # fmt: skip


def failed(result: Mapping[str, Any]) -> bool:
    """Whether a row that could run did not end well."""
    if "missing" in result:
        return False
    counted = result["counts"] or {}
    return not counted.get("passed") or bool(counted.get("failed") or counted.get("error"))


def table(rows: Sequence[Row], results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Write a line for each row, those that could not run with why."""
    title = "The tests, by what they ran on"
    return Table(title, _HEADER, tuple(_line(row, results[row.name]) for row in rows))


def _line(row: Row, result: Mapping[str, Any]) -> tuple[str, ...]:
    pooler = "transaction mode" if row.pooled else "no"
    if "missing" in result:
        why = f"not run: {result['missing']}"
        return (row.name, row.python, "", "", row.server, pooler, row.engine, why, "", "", "")
    has = result["versions"]
    counted = result["counts"] or {}
    wrong = counted.get("failed", 0) + counted.get("error", 0)
    return (
        row.name,
        has["python"],
        has["trio"],
        has["psycopg"],
        has["server"],
        pooler,
        row.engine,
        result["tests"],
        str(counted.get("passed", 0)),
        str(wrong) if result["counts"] else "did not end",
        str(counted.get("skipped", 0)),
    )

"""Record what is committed in a database, whoever commits it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from attrs import frozen

RECORD = Path(__file__).parent / "record.sql"


@frozen
class Event:
    """One thing that a transaction did."""

    number: int
    xid: int
    what: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"#{self.number} in transaction {self.xid}: {self.what} {facts}"


def install(dsn: str) -> None:
    """Record from now on, in a database that has the ``awa`` schema and no jobs as yet."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(RECORD.read_bytes())


def recorded(dsn: str) -> list[Event]:
    """Return what has been recorded."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT number, xid::text::bigint, what, facts FROM trace.events ORDER BY number"
        ).fetchall()
    return [Event(*row) for row in rows]


def save(events: Iterable[Event], path: Path) -> None:
    """Write events into a file, a line of JSON each."""
    with path.open("w") as file:
        for event in events:
            file.write(json.dumps([event.number, event.xid, event.what, event.facts]) + "\n")


def load(path: Path) -> Iterator[Event]:
    """Read what `save` wrote."""
    with path.open() as file:
        for line in file:
            yield Event(*json.loads(line))

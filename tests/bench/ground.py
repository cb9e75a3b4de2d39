"""The server that everything is measured on, and what it has spent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from attrs import field, frozen

from awa_trio.pg import DevServer

from .parent import cpu_of

SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    # Says when each row's transaction committed, which is when a completion is durable.
    "track_commit_timestamp": "on",
}
"""Beside the defaults, which are durable: what any server of this size would have."""


def cpu_of_server(postmaster: int) -> float:
    """Seconds of CPU of all of PostgreSQL's processes, those that have ended too."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid, parent = int(stat.parent.name), int(fields[1])
        if pid == postmaster:
            total += cpu_of(pid) + sum(map(int, fields[13:15])) / ticks
        elif parent == postmaster:
            total += cpu_of(pid)
    return total


@frozen
class Spent:
    """What the server spent between two moments."""

    wal: float
    """Bytes of WAL."""
    cpu: float
    """Seconds of CPU."""


@frozen
class Wear:
    """What the server's own statistics say was done in a database between two moments."""

    commits: float
    dead: float
    """Versions of rows that were made dead, by updates and deletes."""


class Database:
    """An empty database, and an observer's connection to it."""

    def __init__(self, connection: psycopg.Connection[Any], dsn: str, postmaster: int) -> None:
        self.connection = connection
        self.dsn = dsn
        self._postmaster = postmaster
        self._asked = 0

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the database something."""
        self._asked += 1
        return self.connection.execute(statement.encode(), parameters or None).fetchall()

    def one(self, statement: str, *parameters: object) -> Any:
        """Ask it for one value."""
        return self.rows(statement, *parameters)[0][0]

    def now(self) -> Any:
        """The server's clock."""
        return self.one("SELECT clock_timestamp()")

    def counters(self) -> tuple[str, float]:
        """Where the WAL is, and the CPU spent so far."""
        lsn: str = self.one("SELECT pg_current_wal_insert_lsn()")
        return lsn, cpu_of_server(self._postmaster)

    def spent_since(self, counters: tuple[str, float]) -> Spent:
        """What was spent since `counters`."""
        lsn, cpu = counters
        wal = self.one("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", lsn)
        return Spent(float(wal), cpu_of_server(self._postmaster) - cpu)

    def wear(self) -> Wear:
        """What was done so far. Sessions report it when they end, or after a second.

        This session's own statements are not counted; it reports late, too.
        """
        self.one("SELECT count(pg_stat_force_next_flush())")
        self.one("SELECT count(pg_stat_clear_snapshot())")
        [(commits, dead)] = self.rows(
            "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),"
            "       (SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables)"
        )
        return Wear(commits - self._asked, float(dead or 0))

    def completed(self, source: str, since: object) -> tuple[int, float, float]:
        """How many jobs were completed since a moment, when on average, and when the last.

        Args:
          source: a contender's ``completed``.
          since: by the server's clock.
        """
        [(count, mean, last)] = self.rows(
            f"SELECT coalesce(sum(c.jobs), 0)::int,"
            f"       extract(epoch FROM %s::timestamptz)"
            f"       + sum(c.jobs * extract(epoch FROM c.at - %s::timestamptz)) / sum(c.jobs),"
            f"       extract(epoch FROM max(c.at))"
            f"  FROM ({source}) AS c (jobs, at) WHERE c.at > %s",
            since,
            since,
            since,
        )
        return count, float(mean or 0), float(last or 0)

    def settle_down(self) -> None:
        """Begin from a clean slate: nothing left to write for what came before."""
        self.one("SELECT 1")
        self.connection.execute("CHECKPOINT")
        self._asked += 1

    def analyze(self) -> None:
        """Let the planner know what is in the tables."""
        self.connection.execute("ANALYZE")
        self._asked += 1


@frozen
class Server:
    """A PostgreSQL, started for this run."""

    dev: DevServer
    postmaster: int

    _templates: set[str] = field(factory=set)

    @contextmanager
    def database(self, name: str, install: Callable[[str], None]) -> Iterator[Database]:
        """Make a database, and drop it after the block.

        Args:
          name: whose it is.
          install: puts a schema into the database with this DSN; done once for a name.
        """
        template = f"template of {name}"
        if name not in self._templates:
            install(self.dev.create_database(template))
            self._templates.add(name)
        dsn = self.dev.create_database("bench", template)
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                yield Database(connection, dsn, self.postmaster)
        finally:
            self.dev.drop_database("bench")

    def facts(self) -> Mapping[str, str]:
        """What the figures depend on."""
        with psycopg.connect(self.dev.dsn(), autocommit=True) as connection:
            facts = {}
            for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers"):
                row = connection.execute(f"SHOW {name}".encode()).fetchone()
                assert row is not None
                facts[name] = str(row[0])
        return {**facts, "fdatasync_ms": f"{_fdatasync(self.dev.root):.2f}"}


@contextmanager
def server() -> Iterator[Server]:
    """Start a server for as long as the block runs."""
    with DevServer(settings=SETTINGS) as dev:
        pid = (dev.root / "data" / "postmaster.pid").read_text().split()[0]
        yield Server(dev, int(pid))


def _fdatasync(folder: Path) -> float:
    """Milliseconds in which this disk makes 8 KiB durable: the median of a hundred."""
    path = folder / "fdatasync"
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(100):
            file.write(b"\0" * 8192)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    path.unlink()
    return sorted(times)[50] * 1000

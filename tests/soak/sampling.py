"""What a soak looks at from outside: the database, and the worker's own account."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from ..bench.figures import percentile

#: All tables of the queue with their indexes; rows that are dead; rows in all, by the
#: statistics, which cost nothing to read; sessions of the worker's; and which of them sit in
#: a transaction for no reason.
_LOOK = """
SELECT sum(pg_total_relation_size(s.relid))::float8 AS size,
       sum(s.n_dead_tup)::float8 AS dead,
       sum(s.n_live_tup)::float8 AS rows,
       (SELECT count(*) FROM pg_stat_activity AS a
         WHERE a.datname = current_database() AND a.application_name = %(worker)s)::float8
       AS connections,
       (SELECT count(*) FROM pg_stat_activity AS a
         WHERE a.datname = current_database() AND a.application_name = %(worker)s
           AND a.state LIKE 'idle in transaction%%'
           AND a.state_change < clock_timestamp() - interval '1 second')::float8
       AS in_transaction
  FROM pg_stat_user_tables AS s WHERE s.schemaname = 'awa'
"""

_ERRORS = """
SELECT DISTINCT regexp_replace(e ->> 'error', '\\n.*', '')
  FROM awa.jobs AS j CROSS JOIN LATERAL jsonb_array_elements(j.errors) AS e
"""

_DUE = "SELECT sum(due)::float8 FROM awa.backlogs(%s::text[], 10000)"


class Observer:
    """Looks at one database.

    Args:
      dsn: the database.
      worker: the application's name in the worker's connections.
      queues: whose backlog counts.
    """

    def __init__(self, dsn: str, worker: str, queues: Sequence[str]) -> None:
        self._worker = worker
        self._queues = list(queues)
        self._connection = psycopg.connect(dsn, autocommit=True)

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def errors(self) -> list[str]:
        """The first lines of what jobs have recorded, those that are still kept."""
        return [str(error) for (error,) in self._connection.execute(_ERRORS)]

    def look(self) -> dict[str, float]:
        """Read the database's part of a sample."""
        cursor = self._connection.execute(_LOOK, {"worker": self._worker})
        names = [column.name for column in cursor.description or ()]
        row = cursor.fetchone()
        assert row is not None
        machine = statistics.median(self._round_trip() for _ in range(21))
        due = self._connection.execute(_DUE, (self._queues,)).fetchone()
        assert due is not None
        return dict(zip(names, row, strict=True)) | {
            "due": due[0] or 0.0,
            "machine": machine,
        }

    def _round_trip(self) -> float:
        """Seconds for the least that there is to ask, by two processes that have been asleep.

        Nothing of the queue's is in it: what it takes longer is what the machine's other work
        costs everybody.
        """
        time.sleep(0.002)
        begun = time.perf_counter()
        self._connection.execute("SELECT 1")
        return time.perf_counter() - begun


def sample(
    seconds: float,
    told: Mapping[str, Any],
    seen: Mapping[str, float],
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Put a sample together.

    Args:
      seconds: since the beginning.
      told: the worker's line.
      seen: what `Observer.look` saw.
      before: the worker's line before this one; None if it is the first.
    """
    pickups = sorted(told["pickups"])
    p50, p95 = (percentile(pickups, n) if pickups else None for n in (50, 95))
    settled = 0
    if before is not None:
        settled = sum(told["worker"]["settled"].values())
        settled -= sum(before["worker"]["settled"].values())
    machine = seen["machine"]
    own = {key: value for key, value in told.items() if key not in ("pickups", "worker")}
    return {
        "seconds": seconds,
        **own,
        **seen,
        "cpu_per_job": (told["cpu"] - before["cpu"]) / settled if before and settled else None,
        "p50": p50,
        "p95": p95,
        "p50_relative": None if p50 is None else p50 / machine,
        "p95_relative": None if p95 is None else p95 / machine,
    }

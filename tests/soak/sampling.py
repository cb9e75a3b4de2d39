"""What a soak looks at from outside: the database, and the worker's own account."""

from __future__ import annotations

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
        due = self._connection.execute(_DUE, (self._queues,)).fetchone()
        assert due is not None
        return dict(zip(names, row, strict=True)) | {"due": due[0] or 0.0}


def sample(
    seconds: float, told: Mapping[str, Any], seen: Mapping[str, float]
) -> dict[str, Any]:
    """Put a sample together.

    Args:
      seconds: since the beginning.
      told: the worker's line.
      seen: what `Observer.look` saw.
    """
    pickups = sorted(told["pickups"])
    own = {key: value for key, value in told.items() if key not in ("pickups", "worker")}
    return {
        "seconds": seconds,
        **own,
        **seen,
        "p50": percentile(pickups, 50) if pickups else None,
        "p95": percentile(pickups, 95) if pickups else None,
    }

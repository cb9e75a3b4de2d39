"""What can be done to workers from outside, by hand."""

from __future__ import annotations

from ..._app.client import Client
from ..._app.connect import PgBackend
from ..._core.errors import ConfigurationError
from ..._store.memory.store import MemoryStore


async def expire_leases(client: Client) -> int:
    """Let all workers that there are be presumed dead at once; return how many.

    As when none of their beats has come through for the time of a lease: others take over their
    jobs, and nothing that they write is accepted. Those that live notice, and begin again.

    Args:
      client: of their database; on PostgreSQL with a role that may update ``awa.workers``.

    Raises:
      psycopg.Error: the role may not.
    """
    store = client._backend.store
    if isinstance(store, MemoryStore):
        return store.fence_all()
    async with client._backend.connection() as connection:
        done = await connection.execute(
            "UPDATE awa.workers SET fenced_at = pg_catalog.clock_timestamp()"
            " WHERE fenced_at IS NULL"
        )
        return done.rowcount


async def cut_connections(client: Client, *, named: str = "") -> int:
    """End the other sessions of a client's database, as an operator or a failover would; return how many.

    Whatever they had not committed is rolled back. Workers go on; of a client, the next call on each
    connection that was cut raises `awa_trio.DatabaseUnavailable`, and those after it connect again.

    Args:
      client: of the database; its other connections are cut too.
      named: only those with this ``application_name``; default, all.

    Raises:
      ConfigurationError: the client's jobs are in memory.
      psycopg.Error: the role may not end other roles' sessions.
    """
    if not isinstance(client._backend, PgBackend):
        raise ConfigurationError(
            "a store in memory has no connections to cut; test this against PostgreSQL, with"
            " the fixtures in awa_trio.testing.fixtures"
        )
    async with client._backend.connection() as connection:
        cursor = await connection.execute(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity"
            " WHERE datname = pg_catalog.current_database()"
            " AND pid <> pg_catalog.pg_backend_pid()"
            " AND (%(named)s = '' OR application_name = %(named)s)",
            {"named": named},
        )
        return len(await cursor.fetchall())

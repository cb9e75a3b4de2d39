"""Claims while a session holds an old snapshot, so that nothing can be vacuumed away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from awa_trio._seam.values import Claimed, Passed, Want
from awa_trio._store.sql.store import SqlStore
from awa_trio.pg import Pool, TrioConnection

from .test_ordering_on_canonical import register

pytestmark = pytest.mark.untouched

Connection = psycopg.Connection[Any]
BATCH = 200


@pytest.fixture
def connection(canonical: str) -> Iterator[Connection]:
    with psycopg.connect(canonical, autocommit=True) as connection:
        yield connection


@pytest.fixture
def old_snapshot(canonical: str) -> Iterator[None]:
    with psycopg.connect(canonical) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        yield


def insert(connection: Connection, jobs: int, kind: str = "k", priority: int = 2) -> list[int]:
    rows = connection.execute(
        "INSERT INTO awa.jobs (kind, queue, args, priority)"
        " SELECT %s, 'q', '{}', %s FROM generate_series(1, %s) RETURNING id",
        (kind, priority, jobs),
    )
    return [row[0] for row in rows]


def pages_read(connection: Connection) -> int:
    """Pages of the lanes' index that have been read so far.

    The counter of entries leaves out those that are read and turn out to be beyond a bound.
    """
    connection.execute("SELECT pg_stat_clear_snapshot()")
    [found] = connection.execute(
        "SELECT idx_blks_hit + idx_blks_read FROM pg_statio_user_indexes"
        " WHERE indexrelname = 'jobs_waiting'"
    ).fetchone() or (0,)
    return int(found)


def passed(jobs: list[Claimed]) -> tuple[Passed, ...]:
    lanes = {(job.kind, job.priority): job for job in jobs}
    return tuple(Passed(*lane, job.raw_run_at, job.id) for lane, job in lanes.items())


async def test_a_claim_that_goes_on_where_the_last_ended_reads_no_remains(
    canonical: str, connection: Connection, old_snapshot: None
) -> None:
    insert(connection, 60 * BATCH)

    async def connect() -> TrioConnection[Any]:
        return await TrioConnection.connect(**conninfo_to_dict(canonical), autocommit=True)  # type: ignore[arg-type]

    async with Pool(connect, size=1) as pool:
        store = SqlStore(pool)
        worker = await store.register("w", 3600)

        async def claim(*after: Passed) -> tuple[list[Claimed], int]:
            before = pages_read(connection)
            jobs = await store.claim(worker, [Want("q", BATCH, 0, after=after)], {"k": None})
            async with pool.connection() as own:
                await own.execute("SELECT pg_stat_force_next_flush()")
            return jobs, pages_read(connection) - before

        claimed, first = await claim()
        for _ in range(40):
            claimed, going_on = await claim(*passed(claimed))
            assert len(claimed) == BATCH
        claimed, from_the_head = await claim()
        assert len(claimed) == BATCH
    assert going_on < 2 * first, (first, going_on)
    # Or this test would show nothing.
    assert from_the_head > 3 * going_on, (going_on, from_the_head)


def claim(
    connection: Connection, worker: int, most: int, *after: tuple[str, int, int]
) -> list[int]:
    """Claim of kinds k and l, after a job of each lane."""
    columns = list(zip(*after, strict=True)) or [(), (), ()]
    rows = connection.execute(
        "SELECT id FROM awa.claim(%s, '{q}', ARRAY[%s::int], '{0}', '{60}', '{k,l}', '{NULL,NULL}',"
        " array_fill('q'::text, ARRAY[%s::int]), %s::text[], %s::smallint[],"
        " ARRAY(SELECT j.run_at FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (id, n)"
        "         JOIN awa.jobs AS j USING (id) ORDER BY u.n), %s::bigint[])",
        (worker, most, len(after), *map(list, columns), list(columns[2])),
    )
    return [row[0] for row in rows]


def test_lanes_that_are_not_named_are_read_from_their_heads(connection: Connection) -> None:
    """Whatever comes before, between and after those that are, in any order."""
    worker = register(connection)
    ids = {
        (kind, priority): insert(connection, 4, kind, priority)
        for kind in ("k", "l", "stranger")
        for priority in (1, 2, 4)
    }
    named = [("l", 2, ids["l", 2][1]), ("k", 2, ids["k", 2][2]), ("k", 4, ids["k", 4][3])]
    got = set(claim(connection, worker, 100, *named))
    assert got == {
        *ids["k", 1],
        *ids["k", 2][3:],
        *ids["l", 1],
        *ids["l", 2][2:],
        *ids["l", 4],
    }
    rest = claim(connection, worker, 100)
    assert rest == [*ids["k", 2][:3], *ids["l", 2][:2], *ids["k", 4]]


def test_a_lane_that_is_named_and_empty_hides_no_other(connection: Connection) -> None:
    worker = register(connection)
    [gone] = insert(connection, 1, "k", 1)
    assert claim(connection, worker, 1) == [gone]
    later = [*insert(connection, 1, "k", 2), *insert(connection, 1, "l", 3)]
    assert claim(connection, worker, 10, ("k", 1, gone)) == later

"""No hot call ever scans a table, or wades through an index, however much is there.

Not the plans of copies of its statements, but what PostgreSQL says that the call itself has
read: every statement of it, in whatever function, with the parameters that it really has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import trio
from psycopg.conninfo import make_conninfo

from awa_trio._app.connections import Opener
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._pg.pool import Pool
from awa_trio._seam.values import Claimed, JobFilter, Want
from awa_trio._store.sql.store import SqlWorkerStore
from awa_trio.testing.fixtures import fresh_database

from .contract import job, plan

#: Rows of each sort that are in the way.
IN_THE_WAY = 5_000

#: Jobs in one call.
JOBS = 10

#: Rows and index entries that a call may read: a tenth of any sort that is in the way. Where
#: jobs have ordering keys, a claim looks at as many as 128 keys beside those it wants.
MOST_READ = 500

KINDS = {"k": None, "unique": None, "ordered": None, "limited": None}


def key(n: int) -> bytes:
    """A unique key of its own."""
    return n.to_bytes(16, "big")


class Watched:
    """A store on one connection, and what its calls read."""

    worker = 1

    def __init__(self, pool: Pool, store: SqlWorkerStore) -> None:
        self._pool = pool
        self.store = store

    async def fill(self) -> None:
        """Put in the way what a database of some age has, and vacuum it."""
        assert await self.store.register("w", 3600) == self.worker
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        jobs = [
            [job("k", queue="done") for _ in range(IN_THE_WAY)],
            [job("unique", queue="done", key=key(n)) for n in range(IN_THE_WAY)],
            [job("unique", key=key(IN_THE_WAY + n)) for n in range(IN_THE_WAY)],
            [job("k") for _ in range(IN_THE_WAY)],
            [job("k", run_at=tomorrow) for _ in range(IN_THE_WAY)],
            [job("a stranger", priority=1) for _ in range(IN_THE_WAY)],
            [
                job("ordered", queue="in order", ordering_key=f"key {n % 500}")
                for n in range(IN_THE_WAY)
            ],
        ]
        jobs += [
            [job("limited", queue="one key", limit_key="it") for _ in range(IN_THE_WAY)],
            [
                job("limited", queue="keys", limit_key=f"key {n % 500}", priority=1 + n % 4)
                for n in range(IN_THE_WAY)
            ],
        ]
        for queue in ("one key", "keys"):
            await self.store.override_queue(queue, {"max_per_key": 1}, [])
        for batch in jobs:
            await self.store.enqueue(batch, notify=False)
        while done := await self.claim("done", 500):
            await self.store.settle([plan(j, JobState.COMPLETED) for j in done], worker=None)
        for _ in range(4):
            assert await self.claim("q", 500)
        assert len(await self.claim("one key", 500)) == 1
        async with self._pool.connection() as connection:
            await connection.execute("VACUUM ANALYZE")

    async def claim(self, queue: str, most: int = JOBS) -> list[Claimed]:
        return await self.store.claim(self.worker, [Want(queue, most, 300.0, 60.0)], KINDS)

    async def reads(
        self, call: Callable[[], Awaitable[Any]]
    ) -> tuple[dict[str, int], int, Any]:
        """Return the scans of large tables, the tuples read from anything, and the answer."""
        scans, read = await self._read()
        answer = await call()
        scans_then, read_then = await self._read()
        made = {table: n - scans[table] for table, n in scans_then.items() if n > scans[table]}
        return made, read_then - read, answer

    async def _read(self) -> tuple[dict[str, int], int]:
        async with self._pool.connection() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            tables = await connection.execute(
                "SELECT s.relname, s.seq_scan, s.seq_tup_read FROM pg_stat_user_tables AS s"
                " JOIN pg_class AS c ON c.oid = s.relid"
                " WHERE s.schemaname = 'awa' AND c.reltuples > 100"
            )
            rows: list[Any] = await tables.fetchall()
            indexes = await connection.execute(
                "SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes"
                " WHERE schemaname = 'awa'"
            )
            [(entries,)] = await indexes.fetchall()
        return {row[0]: row[1] for row in rows}, entries + sum(row[2] for row in rows)


@asynccontextmanager
async def watching(dsn: str) -> AsyncIterator[Watched]:
    opener = Opener.of(dsn, prepare=None)
    async with Pool(opener, size=1) as pool:
        yield Watched(pool, SqlWorkerStore(pool, opener, opener))


@pytest.fixture(scope="module", params=["canonical_template", "segmented_template"])
def aged(awa_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a database with much in it, to copy."""
    awa_template = request.getfixturevalue(request.param)

    async def fill(dsn: str) -> None:
        async with watching(dsn) as watched:
            await watched.fill()

    with fresh_database(awa_server, template=awa_template) as name:
        trio.run(fill, make_conninfo(awa_server, dbname=name))
        yield name


@pytest.fixture
async def watched(awa_server: str, aged: str) -> AsyncIterator[Watched]:
    with fresh_database(awa_server, template=aged) as name:
        async with watching(make_conninfo(awa_server, dbname=name)) as watched:
            yield watched


async def check(watched: Watched, call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call, which must scan nothing and read little; return its answer."""
    scans, read, answer = await watched.reads(call)
    assert not scans
    assert read <= MOST_READ
    return answer


def follow_up(n: int) -> PreparedInsert:
    return job("unique", key=key(n))


async def test_the_reading_is_seen(watched: Watched) -> None:
    """The test's own test: a scan, and an index read from end to end."""

    async def scan(statement: str) -> None:
        async with watched._pool.connection() as connection:
            await connection.execute("SET enable_indexscan = off")
            await connection.execute("SET enable_indexonlyscan = off")
            await connection.execute(statement.encode())

    scans, read, _ = await watched.reads(lambda: scan("SELECT count(args) FROM awa.jobs"))
    assert scans.keys() == {"jobs"}
    assert read > IN_THE_WAY


@pytest.mark.parametrize("queue", ["q", "in order"])
async def test_claiming(watched: Watched, queue: str) -> None:
    claimed = await check(watched, lambda: watched.claim(queue))
    assert len(claimed) == JOBS


async def test_claiming_by_limit_key(watched: Watched) -> None:
    claimed = await check(watched, lambda: watched.claim("keys"))
    assert len({one.limit_key for one in claimed}) == JOBS


async def test_jobs_of_a_key_that_has_no_room_cost_a_claim_nothing(watched: Watched) -> None:
    assert await check(watched, lambda: watched.claim("one key")) == []
    await check(watched, lambda: watched.store.next_due(["one key"], list(KINDS)))
    [other] = await watched.store.enqueue(
        [job("limited", queue="one key", limit_key="another")]
    )
    [claimed] = await check(watched, lambda: watched.claim("one key"))
    assert claimed.id == other.id
    await watched.store.override_queue(
        "one key", {"rate_per_key": {"count": 1, "per": 1000, "burst": 1}}, ["max_per_key"]
    )
    assert len(await watched.claim("one key")) == 1
    assert await check(watched, lambda: watched.claim("one key")) == []
    await check(watched, lambda: watched.store.next_due(["one key"], list(KINDS)))


async def test_how_full_a_queue_is(watched: Watched) -> None:
    """Jobs are counted, and keys looked at for the oldest: of these, a thousand at most."""
    for queue in ("q", "one key"):
        assert await check(watched, partial(watched.store.depth, queue, 100)) == (100, 100)


async def test_claiming_from_a_queue_that_has_nothing(watched: Watched) -> None:
    assert await check(watched, lambda: watched.claim("empty")) == []


@pytest.mark.parametrize("queue", ["q", "in order", "empty"])
async def test_asking_when_the_next_is_due(watched: Watched, queue: str) -> None:
    await check(watched, lambda: watched.store.next_due([queue], list(KINDS)))


async def test_looking(watched: Watched) -> None:
    """What a screen asks every second, and people of one job."""
    store = watched.store
    figures = await check(watched, lambda: store.activity(3600, 50))
    assert figures.completed == 50
    failed = JobFilter(states=(JobState.FAILED, JobState.CANCELLED))
    assert await check(watched, lambda: store.list(failed, 50)) == []
    assert await check(watched, lambda: store.list_from(failed, 50)) == []
    assert await check(watched, lambda: store.count(failed, 50)) == 0
    [job] = await store.list(JobFilter(states=(JobState.AVAILABLE,), kind="k"), 1)
    facts = await check(watched, lambda: store.facts(job.id, 50))
    assert facts.ahead == 50
    [done] = await store.list(JobFilter(states=(JobState.COMPLETED,)), 1)
    assert await check(watched, lambda: store.follow_ups(done.id, 50)) == []
    queues = ["q", "in order", "keys", "empty"]
    kinds = await check(watched, lambda: store.waiting_kinds(queues))
    waiting = {("q", "k"), ("q", "a stranger"), ("in order", "ordered"), ("keys", "limited")}
    assert waiting <= set(kinds)


@pytest.mark.parametrize("jobs", [1, JOBS])
@pytest.mark.parametrize("taken", [False, True])
async def test_enqueueing(watched: Watched, jobs: int, taken: bool) -> None:
    first = 0 if taken else 10 * IN_THE_WAY
    unique = [follow_up(first + n) for n in range(jobs)]
    answers = await check(watched, lambda: watched.store.enqueue(unique))
    assert [answer.inserted for answer in answers] == [not taken] * jobs
    await check(watched, lambda: watched.store.enqueue([job("k")] * jobs))


@pytest.mark.parametrize("queue", ["q", "in order"])
@pytest.mark.parametrize(
    ("to", "changes"),
    [
        (JobState.COMPLETED, {}),
        (JobState.RETRYABLE, {"seconds": 5.0, "error": '{"error": "e"}'}),
        (JobState.FAILED, {"error": '{"error": "e"}', "dead_letter": "exhausted"}),
        (JobState.AVAILABLE, {}),
    ],
)
async def test_settling(
    watched: Watched, queue: str, to: JobState, changes: dict[str, Any]
) -> None:
    claimed = await watched.claim(queue)
    plans = [plan(found, to, **changes) for found in claimed]
    settle = watched.store.settle
    answers = await check(watched, lambda: settle(plans, worker=watched.worker))
    assert all(answer.applied for answer in answers)
    answers = await check(watched, lambda: settle(plans, worker=watched.worker))
    assert not any(answer.applied for answer in answers)


async def test_settling_with_follow_ups_new_and_taken(watched: Watched) -> None:
    claimed = await watched.claim("q")
    plans = [
        plan(found, JobState.COMPLETED, follow_up(n), follow_up(10 * IN_THE_WAY + n))
        for n, found in enumerate(claimed)
    ]
    answers = await check(watched, lambda: watched.store.settle(plans, worker=watched.worker))
    for answer in answers:
        assert [insertion.id is None for insertion in answer.insertions] == [True, False]


async def test_settling_lets_go_of_keys_and_takes_them_back(watched: Watched) -> None:
    """Keys that are held while a job runs, and not while it waits."""
    running = JobState.RUNNING.bit
    await watched.store.enqueue(
        [job("unique", queue="keys", key=key(10**6 + n), mask=running) for n in range(JOBS)]
    )
    claimed = await check(watched, lambda: watched.claim("keys"))
    assert len(claimed) == JOBS
    plans = [plan(found, JobState.COMPLETED) for found in claimed]
    answers = await check(watched, lambda: watched.store.settle(plans, worker=watched.worker))
    assert all(answer.applied for answer in answers)


async def test_what_a_screen_asks_again_and_again(watched: Watched) -> None:
    """Bounded by how much it may look at, here 50 of each sort, whatever there is."""
    store = watched.store
    seen = await check(watched, lambda: store.activity(600, 50))
    assert seen.completed
    assert {"q", "in order"} <= set(seen.queues)
    assert await check(watched, lambda: store.history(600, 5, 50))
    [last] = await store.enqueue([job("k")])
    # Asked once, of one job: in a segment it reads the lane that is before it.
    scans, _, facts = await watched.reads(lambda: store.facts(last.id, 50))
    assert not scans
    assert facts.ahead == 50

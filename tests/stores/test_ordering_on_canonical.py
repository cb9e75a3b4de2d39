"""Ordering keys where transactions meet: what only a server with several clients can show."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

CLAIM = "SELECT id FROM awa.claim(%s, '{q}', ARRAY[%s::int], '{0}', '{60}', '{k}', '{NULL}')"

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(canonical: str) -> Iterator[Connection]:
    with psycopg.connect(canonical, autocommit=True) as connection:
        yield connection


@pytest.fixture
def other(canonical: str) -> Iterator[Connection]:
    with psycopg.connect(canonical, autocommit=True) as connection:
        yield connection


def one(connection: Connection, statement: str, *parameters: object) -> Any:
    row = connection.execute(statement.encode(), parameters).fetchone()
    assert row is not None
    return row[0]


def register(connection: Connection) -> int:
    worker = one(connection, "SELECT awa.register('w', 3600)")
    assert isinstance(worker, int)
    return worker


def enqueue(connection: Connection, key: str | None = None, ago: float = 0) -> int:
    job_id = one(
        connection,
        "SELECT id FROM awa.enqueue('k', '{}', queue => 'q', ordering_key => %s,"
        " run_at => now() - make_interval(secs => %s))",
        key,
        ago,
    )
    assert isinstance(job_id, int)
    return job_id


def claim(connection: Connection, worker: int, most: int = 10) -> list[int]:
    rows = connection.execute(CLAIM.encode(), (worker, most)).fetchall()
    return [row[0] for row in rows]


def complete(connection: Connection, *ids: int) -> None:
    connection.execute(
        "UPDATE awa.jobs SET state = 'completed', worker_id = NULL, finalized_at = now()"
        " WHERE id = ANY (%s)",
        [list(ids)],
    )


def test_a_claim_under_way_has_the_key(connection: Connection, other: Connection) -> None:
    first, second = register(connection), register(connection)
    ids = [enqueue(connection, key) for key in ("a", "a", "b")]
    with connection.transaction():
        assert claim(connection, first, 1) == [ids[0]]
        assert claim(other, second) == [ids[2]], "it waits for nobody, and takes no second"
    assert claim(other, second) == []
    complete(connection, ids[0])
    assert claim(other, second) == [ids[1]]


def test_a_claim_that_rolls_back_gives_the_key_back(
    connection: Connection, other: Connection
) -> None:
    first, second = register(connection), register(connection)
    ids = [enqueue(connection, "a") for _ in range(2)]
    with connection.transaction(force_rollback=True):
        assert claim(connection, first) == [ids[0]]
    assert claim(other, second) == [ids[0]]


def test_a_settlement_under_way_keeps_the_key(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    ids = [enqueue(connection, "a") for _ in range(2)]
    assert claim(connection, worker) == [ids[0]]
    with connection.transaction():
        complete(connection, ids[0])
        assert claim(other, worker) == []
    assert claim(other, worker) == [ids[1]]


def test_a_head_that_is_locked_holds_its_key(connection: Connection, other: Connection) -> None:
    worker = register(connection)
    ids = [enqueue(connection, "a") for _ in range(2)]
    with connection.transaction():
        connection.execute("SELECT FROM awa.jobs WHERE id = %s FOR UPDATE", [ids[0]])
        assert claim(other, worker) == []
    assert claim(other, worker) == [ids[0]]


def test_producers_do_not_wait_for_each_other(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    other.execute("SET lock_timeout = '1s'")
    with connection.transaction():
        early = enqueue(connection, "a")
        late = enqueue(other, "a")
        assert claim(other, worker) == [late], "nor does a claim wait for a producer"
    assert claim(other, worker) == []
    complete(connection, late)
    assert claim(other, worker) == [early]


@contextmanager
def claiming(dsn: str, worker: int) -> Iterator[list[list[int]]]:
    """A claim in a thread, because it will have to wait; its answer, afterwards."""
    answers: list[list[int]] = []

    def run() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            answers.append(claim(connection, worker))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield answers
    finally:
        thread.join()


@pytest.mark.parametrize("commits", [True, False])
def test_a_key_taken_since_it_was_found_free_is_left_and_the_rest_is_claimed(
    canonical: str, connection: Connection, commits: bool
) -> None:
    """A job with an earlier run_at came and started between two statements of a claim."""
    worker = register(connection)
    plain, later = enqueue(connection), enqueue(connection, "a")
    with psycopg.connect(canonical) as first:
        earlier = enqueue(first, "a", ago=60)
        first.execute(
            "SELECT id FROM awa.start_jobs(%s, %s, false, '{k}', '{NULL}', 0, 0, now(), 50)",
            [worker, [earlier]],
        )
        with claiming(canonical, worker) as answers:
            waits = (
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
            )
            while not one(connection, waits):
                pass
            if commits:
                first.commit()
            else:
                first.rollback()
    assert sorted(answers[0]) == ([plain] if commits else [plain, later])
    assert one(connection, "SELECT count(*) FROM awa.jobs WHERE state = 'running'") == 2


@pytest.mark.parametrize("changed", ["run_lease - 1", "run_lease"])
def test_a_head_that_has_started_or_moved_since_it_was_found_is_left(
    connection: Connection, changed: str
) -> None:
    """By then another may be the head: the lease and the run_at it was found with guard it."""
    worker = register(connection)
    job_id = enqueue(connection, "a")
    moved = "run_at" if "-" in changed else "run_at - interval '1 s'"
    connection.execute("ALTER FUNCTION awa.key_heads RENAME TO true_key_heads")
    connection.execute(
        "CREATE FUNCTION awa.key_heads(text, text[], int, timestamptz, int, float8, float8)"
        " RETURNS TABLE (id bigint, kind text, priority smallint, run_at timestamptz,"
        " run_lease bigint, limit_key text, room int)"
        f" LANGUAGE sql AS $$SELECT id, kind, priority, {moved}, {changed}, limit_key, room"
        " FROM awa.true_key_heads($1, $2, $3, $4, $5, $6, $7)$$".encode()
    )
    assert claim(connection, worker) == []
    connection.execute("DROP FUNCTION awa.key_heads")
    connection.execute("ALTER FUNCTION awa.true_key_heads RENAME TO key_heads")
    assert claim(connection, worker) == [job_id]


def test_the_database_refuses_a_second_running_job_of_a_key(connection: Connection) -> None:
    worker = register(connection)
    ids = [enqueue(connection, "a") for _ in range(2)]
    claim(connection, worker)
    with pytest.raises(psycopg.errors.UniqueViolation, match="jobs_taken_keys"):
        connection.execute(
            "UPDATE awa.jobs SET state = 'running', worker_id = %s WHERE id = %s",
            [worker, ids[1]],
        )


# ---- what a claim costs


def pages_of_a_claim(connection: Connection, worker: int) -> tuple[int, int]:
    """How many jobs a claim gets, and how many pages of the table and its indexes it reads."""

    def blocks() -> int:
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        return int(
            one(
                connection,
                "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int"
                " FROM pg_statio_user_tables WHERE schemaname = 'awa' AND relname = 'jobs'",
            )
        )

    before = blocks()
    claimed = claim(connection, worker)
    return len(claimed), blocks() - before


BEHIND = "INSERT INTO awa.jobs (kind, queue, args, ordering_key, known_due, run_at)"


@pytest.mark.parametrize(
    "backlog",
    [
        pytest.param("'k', 'q', '{}', 'hot', true, now() - interval '1 day'", id="one key"),
        pytest.param(
            "'k', 'q', '{}', 'key ' || n, false, now() + interval '1 day'", id="the future"
        ),
        pytest.param(
            "'stranger', 'q', '{}', 'key ' || n, true, now() - interval '1 day'",
            id="an unknown kind",
        ),
        pytest.param("'stranger', 'q', '{}', NULL, false, now()", id="no key, unknown kind"),
        pytest.param("'k', 'r', '{}', 'key ' || n, true, now()", id="another queue"),
    ],
)
def test_a_million_jobs_that_cannot_start_cost_the_others_nothing(
    connection: Connection, backlog: str
) -> None:
    """The short form: the pages that a claim reads do not grow with what waits beside it."""
    worker = register(connection)
    enqueue(connection, "hot", ago=2e5)
    claim(connection, worker)

    def pages() -> int:
        ids = [enqueue(connection, key) for key in ("x", None, "y", None, "z")]
        got, pages = pages_of_a_claim(connection, worker)
        assert got == len(ids)
        complete(connection, *ids)
        return pages

    pages()
    few = pages()
    connection.execute(f"{BEHIND} SELECT {backlog} FROM generate_series(1, 50000) n".encode())
    connection.execute("ANALYZE awa.jobs")
    many = pages()
    # Deeper indexes: 5,000 rows cost 190 more, and 200,000 cost 207.
    assert many < few + 250, (few, many)


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "jobs"), [(200_000, 200_000), (1, 200_000)])
def test_a_claim_reads_no_more_of_many_keys_than_of_some(
    connection: Connection, keys: int, jobs: int
) -> None:
    """All of them may start, or wait behind one that may."""
    worker = register(connection)

    def pages() -> tuple[int, int]:
        """What the second claim reads: the first finds out about statistics and plans."""
        for _ in range(2):
            got, read = pages_of_a_claim(connection, worker)
            running = connection.execute("SELECT id FROM awa.jobs WHERE state = 'running'")
            complete(connection, *(row[0] for row in running.fetchall()))
        return got, read

    def fill(first: int, last: int) -> None:
        connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args, ordering_key, known_due, run_at)"
            " SELECT 'k', 'q', '{}', 'key ' || n %% %s::int, true, now() FROM generate_series(%s::int, %s::int) n",
            [keys, first, last],
        )
        connection.execute("ANALYZE awa.jobs")

    fill(1, 1000)
    claimed, few = pages()
    fill(1001, jobs)
    # Deeper indexes: of a thousand keys 1,130 pages with those of functions, of a million 1,445.
    for _ in range(2):
        again, many = pages()
        assert again == claimed
        assert many < 1.5 * few, (few, many)
        connection.execute("VACUUM awa.jobs")

"""Lanes where transactions meet: what only a server with several clients can show."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

CLAIM = (
    "SELECT id FROM awa.claim(%s, '{q}', ARRAY[%s::int], '{60}', '{0}', '{k,l}', '{NULL,NULL}')"
)

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(segmented: str) -> Iterator[Connection]:
    with psycopg.connect(segmented, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        yield connection


@pytest.fixture
def other(segmented: str) -> Iterator[Connection]:
    with psycopg.connect(segmented, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        yield connection


def one(connection: Connection, statement: str, *parameters: object) -> Any:
    row = connection.execute(statement.encode(), parameters).fetchone()
    assert row is not None
    return row[0]


def register(connection: Connection, lease: float = 3600) -> int:
    worker = one(connection, "SELECT awa.register('w', %s)", lease)
    assert isinstance(worker, int)
    return worker


def enqueue(connection: Connection, kind: str = "k", **options: object) -> int:
    job_id = one(
        connection,
        "SELECT id FROM awa.enqueue(%s, '{}', queue => 'q', unique_key => %s)",
        kind,
        options.get("unique_key"),
    )
    assert isinstance(job_id, int)
    return job_id


def enqueue_many(connection: Connection, count: int) -> list[int]:
    rows = connection.execute(
        "SELECT id FROM awa.enqueue_many("
        " array_fill('k'::text, ARRAY[%(n)s]), array_fill('q'::text, ARRAY[%(n)s]),"
        " array_fill('{}'::json, ARRAY[%(n)s]), array_fill(2::smallint, ARRAY[%(n)s]),"
        " array_fill(25::smallint, ARRAY[%(n)s]), NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        {"n": count},
    ).fetchall()
    return [row[0] for row in rows]


def claim(connection: Connection, worker: int, most: int = 10) -> list[int]:
    rows = connection.execute(CLAIM.encode(), (worker, most)).fetchall()
    return [row[0] for row in rows]


def settle(
    connection: Connection,
    worker: int | None,
    ids: list[int],
    to: str = "completed",
    *,
    was: str = "running",
    lease: int = 1,
) -> list[int]:
    """Settle jobs; return those that were stale."""
    n = len(ids)
    nothing = ", ".join(["NULL"] * 21)
    statement = (
        "SELECT stale FROM awa.settle(%s, 1000, false, %s, %s::bigint[], %s::awa.job_state[],"
        f" %s::awa.job_state[], %s::int[], {nothing}, true)"
    )
    stale = one(
        connection, statement, worker, ids, [lease] * n, [was] * n, [to] * n, [lease] * n
    )
    return [ids[number - 1] for number in stale or ()]


def states(connection: Connection) -> dict[int, str]:
    rows = connection.execute(
        "SELECT id, state FROM awa.list_jobs(NULL, NULL, NULL, NULL, NULL, 100000)"
    ).fetchall()
    assert len(rows) == len(dict(rows)), "a job is in one place"
    return dict(rows)


def in_rows(connection: Connection) -> set[int]:
    return {row[0] for row in connection.execute("SELECT id FROM awa.jobs").fetchall()}


# ---- claims and transactions


def test_a_producer_that_commits_late_is_waited_for_by_nobody_and_missed_by_nobody(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    with connection.transaction():
        early = enqueue(connection)
        late = [enqueue(other) for _ in range(3)]
        assert claim(other, worker) == late
        more = enqueue(other)
        assert claim(other, worker) == [more]
        assert claim(other, worker) == []
        assert one(other, "SELECT awa.next_due('{q}', '{k}')") is None
    assert one(other, "SELECT awa.next_due('{q}', '{k}')") == 0
    assert claim(other, worker) == [early]
    assert claim(other, worker) == []


def test_a_producer_that_rolls_back_leaves_nothing_to_look_for(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    with connection.transaction(force_rollback=True):
        enqueue(connection)
        early = one(connection, "SELECT pg_current_xact_id()::text")
        late = enqueue(other)
        assert claim(other, worker) == [late]
    assert claim(other, worker) == []
    assert one(other, "SELECT awa.next_due('{q}', '{k}')") is None
    last = enqueue(other)
    assert claim(other, worker) == [last]
    noted = other.execute(
        "SELECT coalesce(%s::xid8 = ANY (open_xids), false) FROM awa.lane_claims ORDER BY number",
        [early],
    ).fetchall()
    # Not that there be none: other databases of the server have transactions, too.
    assert noted == [(True,), (False,)]


def test_a_late_transaction_of_many_jobs_is_claimed_a_few_at_a_time(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    with connection.transaction():
        early = enqueue_many(connection, 25)
        late = enqueue(other)
        assert claim(other, worker) == [late]
    new = enqueue_many(other, 5)
    claimed = [claim(other, worker, 10) for _ in range(4)]
    assert [len(ids) for ids in claimed] == [10, 10, 10, 0]
    assert sorted(job_id for ids in claimed for job_id in ids) == sorted(early + new)
    assert claimed[0] == early[:10]


def test_subtransactions_and_what_they_roll_back(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    with connection.transaction():
        with connection.transaction():
            first = enqueue(connection)
        with connection.transaction(force_rollback=True):
            enqueue(connection)
        assert claim(other, worker) == []
        late = enqueue(other)
        assert claim(other, worker) == [late]
        with connection.transaction():
            second = enqueue(connection)
    assert claim(other, worker) == [first, second]


def test_a_claim_that_rolls_back_leaves_the_jobs(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    ids = enqueue_many(connection, 5)
    with connection.transaction(force_rollback=True):
        assert claim(connection, worker, 3) == ids[:3]
    assert claim(other, worker) == ids


def test_producers_wait_for_no_claim_and_for_no_producer(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    enqueue(connection)
    with connection.transaction():
        assert claim(connection, worker)
        enqueue(connection)
        other.execute("SET lock_timeout = '1s'")
        enqueue(other)
        enqueue_many(other, 3)


@pytest.mark.parametrize("seed", range(6))
def test_every_job_that_is_committed_is_claimed_once_however_transactions_interleave(
    segmented: str, seed: int
) -> None:
    """Producers that begin, append, commit or roll back in any order; two claimers; rotations."""
    chance = random.Random(seed)
    with ExitStack() as stack:

        def connect() -> Connection:
            made = stack.enter_context(psycopg.connect(segmented, autocommit=True))
            made.execute("SET lock_timeout = '5s'")
            return made

        claimers = [connect(), connect()]
        workers = [register(claimer) for claimer in claimers]
        producers = [connect() for _ in range(5)]
        pending: list[list[int]] = [[] for _ in producers]
        committed: list[int] = []
        claimed: list[int] = []

        def turn() -> None:
            """As upkeep does, with no retention to speak of."""
            one(claimers[0], "SELECT nextval('awa.segment_numbers')")

        for step in range(300):
            n = chance.randrange(len(producers))
            match chance.choice(
                ["begin", "append", "append", "append", "end", "claim", "claim"]
            ):
                case "begin" | "append":
                    if not pending[n]:
                        producers[n].execute(
                            chance.choice(["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"])
                        )
                    if chance.random() < 0.3:
                        pending[n] += enqueue_many(producers[n], chance.randrange(1, 8))
                    else:
                        pending[n].append(enqueue(producers[n], chance.choice("kkl")))
                case "end":
                    if not pending[n]:
                        continue
                    if chance.random() < 0.2:
                        producers[n].execute("ROLLBACK")
                    else:
                        producers[n].execute("COMMIT")
                        committed += pending[n]
                    pending[n] = []
                case "claim":
                    which = chance.randrange(2)
                    claimed += claim(claimers[which], workers[which], chance.randrange(1, 9))
            if step in (100, 200):
                turn()
        for n, producer in enumerate(producers):
            producer.execute("COMMIT")
            committed += pending[n]
        while more := claim(claimers[0], workers[0], 7):
            claimed += more
        assert sorted(claimed) == sorted(committed)
        assert len(committed) > 50


def test_claimers_and_completers_at_once_do_each_job_once(segmented: str) -> None:
    """Four of them in threads, while producers commit late."""
    stop = threading.Event()
    produced: list[int] = []
    done: list[int] = []
    failures: list[BaseException] = []

    def produce(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(segmented) as connection:
            for _ in range(60):
                ids = enqueue_many(connection, chance.randrange(1, 30))
                if chance.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    produced.extend(ids)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(segmented, autocommit=True) as connection:
            worker = register(connection)
            held: list[int] = []
            while True:
                last = stop.is_set()
                found = claim(connection, worker, chance.randrange(1, 40))
                held += found
                chance.shuffle(held)
                some = held[: len(held) if last else chance.randrange(len(held) + 1)]
                if some:
                    assert settle(connection, worker, some) == []
                    done.extend(some)
                    held = [job_id for job_id in held if job_id not in set(some)]
                if last and not found and not held:
                    return

    def run(target: Any, seed: int) -> None:
        try:
            target(seed)
        except BaseException as error:
            failures.append(error)
            stop.set()

    producers = [threading.Thread(target=run, args=(produce, n)) for n in range(3)]
    workers = [threading.Thread(target=run, args=(work, n)) for n in range(4)]
    for thread in producers + workers:
        thread.start()
    for thread in producers:
        thread.join()
    stop.set()
    for thread in workers:
        thread.join()
    assert failures == []
    assert sorted(done) == sorted(produced)
    with psycopg.connect(segmented, autocommit=True) as connection:
        assert set(states(connection).values()) == {"completed"}
        assert in_rows(connection) == set()


# ---- out of the ordinary


def test_what_is_ordinary_stays_in_its_lane_and_what_is_not_moves(
    connection: Connection,
) -> None:
    worker = register(connection)
    ids = enqueue_many(connection, 6)
    assert claim(connection, worker, 5) == ids[:5]
    assert settle(connection, worker, ids[:2]) == []
    assert in_rows(connection) == set()
    assert settle(connection, worker, [ids[2]], "failed") == []
    assert settle(connection, worker, [ids[3]], "retryable") == []
    assert settle(connection, None, [ids[4]], "cancelled") == []
    assert settle(connection, None, [ids[5]], "cancelled", was="available", lease=0) == []
    assert in_rows(connection) == set(ids[2:])
    assert [states(connection)[job_id] for job_id in ids] == [
        "completed", "completed", "failed", "retryable", "cancelled", "cancelled",
    ]  # fmt: skip
    assert claim(connection, worker) == [ids[3]], "it is due again, and nothing else is"
    assert settle(connection, worker, ids[:3] + ids[4:]) == ids[:3] + ids[4:]


def test_one_set_may_have_all_of_it(connection: Connection) -> None:
    worker = register(connection)
    ids = enqueue_many(connection, 4)
    job_id = one(
        connection, "SELECT id FROM awa.enqueue('k', '{}', queue => 'q', ordering_key => 'o')"
    )
    assert sorted(claim(connection, worker)) == [*ids, job_id]
    assert settle(connection, worker, [job_id, *ids[::-1], 10**12]) == [10**12]
    assert set(states(connection).values()) == {"completed"}


def test_who_cancels_and_who_claims_agree(connection: Connection, other: Connection) -> None:
    """A claim under way has the job: the cancellation waits for it, and finds it running."""
    worker = register(connection)
    [job_id] = enqueue_many(connection, 1)
    answers: list[list[int]] = []

    def cancel() -> None:
        answers.append(settle(other, None, [job_id], "cancelled", was="available", lease=0))

    with connection.transaction():
        assert claim(connection, worker) == [job_id]
        thread = threading.Thread(target=cancel)
        thread.start()
        until_somebody_waits(connection)
    thread.join()
    assert answers == [[job_id]]
    assert states(connection) == {job_id: "running"}
    assert settle(connection, worker, [job_id]) == []


def until_somebody_waits(connection: Connection) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while datetime.now(UTC) < deadline:
        if one(connection, "SELECT count(*) FROM pg_locks WHERE NOT granted"):
            return
    raise AssertionError("nobody waits")


def test_of_two_that_end_one_attempt_one_does(
    connection: Connection, other: Connection
) -> None:
    worker = register(connection)
    ids = enqueue_many(connection, 3)
    claim(connection, worker)
    answers: list[list[int]] = []
    with connection.transaction():
        assert settle(connection, worker, ids[:2]) == []
        thread = threading.Thread(
            target=lambda: answers.append(settle(other, None, ids, "failed"))
        )
        thread.start()
        until_somebody_waits(connection)
    thread.join()
    assert answers == [ids[:2]]
    assert [states(connection)[job_id] for job_id in ids] == [
        "completed",
        "completed",
        "failed",
    ]


def test_a_unique_job_in_a_lane_holds_its_key_until_it_is_pruned(
    connection: Connection,
) -> None:
    worker = register(connection)
    key = bytes(16)
    job_id = enqueue(connection, unique_key=key)
    assert enqueue(connection, unique_key=key) == job_id
    assert claim(connection, worker) == [job_id]
    settle(connection, worker, [job_id])
    assert enqueue(connection, unique_key=key) == job_id
    assert in_rows(connection) == set()
    assert one(connection, "SELECT awa.prune(0, 0, 0, 10)") == 1
    assert enqueue(connection, unique_key=key) != job_id


def test_what_waits_and_what_runs_is_listed_among_much_that_has_completed(
    connection: Connection,
) -> None:
    worker = register(connection)
    done = enqueue_many(connection, 50)
    settle(connection, worker, claim(connection, worker, 50))
    running, waiting = enqueue_many(connection, 4), enqueue_many(connection, 4)
    assert claim(connection, worker, 4) == running
    strangers = [enqueue(connection, "stranger") for _ in range(2)]

    def listed(states: str, kind: str | None = None, before: int | None = None) -> list[int]:
        rows = connection.execute(
            "SELECT id FROM awa.list_jobs(%s, %s, 'q', NULL, %s, 6)", [states, kind, before]
        )
        return [row[0] for row in rows]

    assert listed("{running}") == running[::-1]
    assert listed("{available}") == [*strangers[::-1], *waiting[::-1]]
    assert listed("{available}", "k") == waiting[::-1]
    assert listed("{available}", before=waiting[2]) == waiting[1::-1]
    assert listed("{available,running}", "k") == [*waiting[::-1], *running[:1:-1]]
    assert listed("{completed,running}") == [*running[::-1], *done[:-3:-1]]
    assert listed("{failed,retryable}") == []
    more = enqueue_many(connection, 10_010)
    assert listed("{available}") == more[:-7:-1]


# ---- the sweep


def test_an_attempt_of_a_minute_gets_a_row_and_goes_on(connection: Connection) -> None:
    worker = register(connection)
    ids = enqueue_many(connection, 3)
    claim(connection, worker)
    connection.execute("UPDATE awa.lane_claims SET claimed_at = claimed_at - interval '61 s'")
    settle(connection, worker, ids[:1])
    assert connection.execute("SELECT * FROM awa.rescue(9, 10, '{k}', 60)").fetchall() == []
    assert in_rows(connection) == set(ids[1:])
    assert (
        sorted(row[0] for row in connection.execute("SELECT id FROM awa.running(%s)", [worker]))
        == ids[1:]
    )
    assert settle(connection, worker, ids[1:]) == []
    assert connection.execute("SELECT * FROM awa.open_claims()").fetchall() == []


def test_a_sweep_does_not_pass_a_claim_that_has_not_committed(
    connection: Connection, other: Connection
) -> None:
    first, second = register(connection, 0.001), register(other)
    enqueue(connection, "k")
    enqueue(connection, "l")

    def claim_kind(kind: str, connection: Connection, worker: int) -> int:
        statement = CLAIM.replace("{k,l}", f"{{{kind}}}").replace("{NULL,NULL}", "{NULL}")
        [(job_id,)] = connection.execute(statement.encode(), (worker, 1)).fetchall()
        assert isinstance(job_id, int)
        return job_id

    with connection.transaction():
        early = claim_kind("k", connection, first)
        late = claim_kind("l", other, second)
        settle(other, second, [late])
        other.execute("SELECT awa.sweep(10)")
        assert one(other, "SELECT upto_number FROM awa.lane_sweep") > 0
    assert one(other, "SELECT id FROM awa.running(%s)", first) == early
    rescued = other.execute("SELECT id, reason FROM awa.rescue(9, 10, '{k}', 60)").fetchall()
    assert rescued == [(early, "STALE_WORKER")]


def test_a_sweep_waits_for_nobody(connection: Connection, other: Connection) -> None:
    worker = register(connection, 0.001)
    ids = enqueue_many(connection, 2)
    claim(connection, worker)
    with connection.transaction():
        connection.execute("SELECT FROM awa.lane_claims FOR UPDATE")
        other.execute("SET lock_timeout = '1s'")
        assert other.execute("SELECT id FROM awa.rescue(9, 10, '{k}', 60)").fetchall() == []
    rescued = other.execute("SELECT id FROM awa.rescue(9, 10, '{k}', 60)").fetchall()
    assert sorted(row[0] for row in rescued) == ids


# ---- segments


def turn(connection: Connection, *, age: float = 1e6) -> None:
    """Let upkeep come round when the current segment is old."""
    connection.execute(
        "UPDATE awa.segments SET opened_at = opened_at - make_interval(secs => %s)", [age]
    )
    one(connection, "SELECT awa.prune(1e5, 0, 0, 100)")


def ring(connection: Connection) -> list[tuple[int, bool, bool]]:
    return connection.execute(
        "SELECT number, drained, over FROM awa.segments ORDER BY number"
    ).fetchall()


def current(connection: Connection) -> int:
    number = one(connection, "SELECT last_value FROM awa.segment_numbers")
    assert isinstance(number, int)
    return number


def age_ends(connection: Connection) -> None:
    connection.execute("UPDATE awa.lane_ends SET at = at - interval '200000 s'")


def test_a_segment_is_rotated_drained_and_truncated(connection: Connection) -> None:
    worker = register(connection)
    # More than are removed one by one.
    ids = enqueue_many(connection, 10_100)
    turn(connection)
    assert current(connection) == 1
    fresh = enqueue_many(connection, 2)
    assert one(connection, "SELECT count(*) FROM awa.lane_jobs WHERE segment = 1") == 2
    turn(connection)
    assert ring(connection)[0] == (0, False, False), "its jobs wait"
    claimed: list[int] = []
    while len(claimed) < len(ids):
        claimed += claim(connection, worker, 5000)
    assert claimed[: len(ids)] == ids, "the older segment first"
    turn(connection, age=0)
    assert ring(connection)[0] == (0, True, False), "its jobs run"
    settle(connection, worker, claimed)
    turn(connection, age=0)
    assert ring(connection)[0] == (0, True, True), "its jobs are kept for a while"
    assert len(states(connection)) == len(ids) + 2
    age_ends(connection)
    assert one(connection, "SELECT awa.prune(1e5, 0, 0, 100)") >= len(ids)
    assert (6, False, False) in ring(connection)
    assert one(connection, "SELECT pg_relation_size('awa.lane_jobs_0')") == 0
    assert set(states(connection)) <= set(fresh) | set(claimed[len(ids) :])


def test_an_empty_segment_is_not_rotated(connection: Connection) -> None:
    turn(connection)
    turn(connection)
    assert current(connection) == 0


def test_the_ring_goes_round_and_loses_nothing(connection: Connection) -> None:
    worker = register(connection)
    for _ in range(20):
        ids = enqueue_many(connection, 3)
        assert claim(connection, worker) == ids
        assert settle(connection, worker, ids) == []
        turn(connection)
        age_ends(connection)
    assert current(connection) >= 12
    assert len(states(connection)) <= 6


def test_jobs_that_nobody_claims_do_not_stop_the_ring(connection: Connection) -> None:
    worker = register(connection)
    strangers = [enqueue(connection, "stranger") for _ in range(5)]
    for _ in range(20):
        ids = enqueue_many(connection, 3)
        assert claim(connection, worker) == ids
        settle(connection, worker, ids)
        turn(connection)
        age_ends(connection)
    assert current(connection) >= 8
    assert in_rows(connection) == set(strangers)
    assert {states(connection)[job_id] for job_id in strangers} == {"available"}


def test_who_moves_jobs_out_of_lanes_holds_no_key_yet(
    segmented: str, connection: Connection
) -> None:
    """A settlement locks lanes first and keys last: upkeep must not do the opposite."""
    worker, key = register(connection), b"k" * 16
    for _ in range(5):
        enqueue(connection, "stranger")
        turn(connection)
    old = enqueue(connection, unique_key=key)
    assert claim(connection, worker) == [old]
    assert settle(connection, worker, [old]) == []
    age_ends(connection)
    with connection.transaction():
        connection.execute("SELECT awa.lock_lanes('q', '{stranger}', '{2}')")

        def prune() -> None:
            with psycopg.connect(segmented, autocommit=True) as upkeep:
                upkeep.execute("SELECT awa.prune(1e5, 0, 0, 100)")

        thread = threading.Thread(target=prune)
        thread.start()
        until_somebody_waits(connection)
        connection.execute("SET LOCAL lock_timeout = '500ms'")
        taken = "SELECT holder_id FROM awa.exchange_keys(NULL, NULL, '{999}', ARRAY[%s::bytea])"
        assert one(connection, taken, key) == old
    thread.join()
    assert one(connection, "SELECT count(*) FROM awa.unique_claims") == 0
    assert len(in_rows(connection)) == 1, "the oldest segment has room"


def test_upkeep_lets_go_of_keys_in_one_pass(
    segmented: str, connection: Connection, other: Connection
) -> None:
    """Those of rows and those of lanes in one byte order, so that nobody waits in a circle."""
    worker = register(connection)
    low, high = b"a" * 16, b"z" * 16
    in_lane, in_row = enqueue(connection, unique_key=low), enqueue(connection, unique_key=high)
    connection.execute("SELECT awa.carry(ARRAY[%s::bigint])", [in_row])
    assert sorted(claim(connection, worker)) == [in_lane, in_row]
    assert settle(connection, worker, [in_lane, in_row]) == []
    age_ends(connection)
    connection.execute("UPDATE awa.jobs SET finalized_at = finalized_at - interval '200000 s'")
    assert in_rows(connection) == {in_row}
    with connection.transaction():
        connection.execute(
            "SELECT FROM awa.unique_claims WHERE unique_key = %s FOR UPDATE", [low]
        )

        def prune() -> None:
            with psycopg.connect(segmented, autocommit=True) as upkeep:
                upkeep.execute("SELECT awa.prune(1e5, 0, 0, 100)")

        thread = threading.Thread(target=prune)
        thread.start()
        until_somebody_waits(other)
        connection.execute(
            "SELECT FROM awa.unique_claims WHERE unique_key = %s FOR UPDATE NOWAIT", [high]
        )
    thread.join()
    assert one(connection, "SELECT count(*) FROM awa.unique_claims") == 0


def test_a_producer_that_is_open_across_a_rotation_is_not_overlooked(
    connection: Connection, other: Connection
) -> None:
    worker = register(other)
    with connection.transaction():
        early = enqueue(connection)
        for _ in range(8):
            ids = enqueue_many(other, 3)
            assert claim(other, worker) == ids
            settle(other, worker, ids)
            turn(other)
            age_ends(other)
        assert current(other) == 5, "its segment cannot be emptied, so the ring is full"
        late = enqueue(connection)
        assert one(connection, "SELECT segment FROM awa.lane_jobs WHERE id = %s", late) == 5
    assert claim(other, worker) == [early, late]


def test_one_that_began_to_append_before_the_rotation_takes_it_back(
    segmented: str, connection: Connection, other: Connection
) -> None:
    """It has read which segment is the current one, and stands still before it appends to it."""
    worker = register(other)
    # A lock on the partition holds up the append, and nothing before it.
    with connection.transaction():
        connection.execute("LOCK TABLE awa.lane_jobs_0 IN SHARE ROW EXCLUSIVE MODE")
        appended: list[int] = []

        def append() -> None:
            with psycopg.connect(segmented, autocommit=True) as producer:
                appended.append(enqueue(producer))

        thread = threading.Thread(target=append)
        thread.start()
        until_somebody_waits(connection)
        other.execute("SELECT nextval('awa.segment_numbers')")
        other.execute("UPDATE awa.segments SET drained = true WHERE segment = 0")
    thread.join()
    assert one(other, "SELECT segment FROM awa.lane_jobs") == 1
    assert claim(other, worker) == appended


def test_a_long_reader_delays_truncation_and_nobody_else(
    connection: Connection, other: Connection
) -> None:
    worker = register(other)
    ids = enqueue_many(other, 3)
    claim(other, worker)
    settle(other, worker, ids)
    turn(other)
    turn(other)
    age_ends(other)
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        before = states(connection)
        for _ in range(3):
            turn(other)
        assert ring(other)[0][0] == 0
        assert connection.execute("SELECT id FROM awa.lane_jobs").fetchall() != []
        assert states(connection) == before
        more = enqueue_many(other, 3)
        assert claim(other, worker) == more
        assert settle(other, worker, more) == []
    turn(other)
    assert ring(other)[0][0] == 1


# ---- plans


PLANS = {
    "claim": ("SELECT * FROM awa.claim(1, '{q}', '{10}', '{60}', '{0}', '{k}', '{NULL}')"),
    "running": "SELECT * FROM awa.running(1)",
    "next_due": "SELECT awa.next_due('{q}', '{k}')",
    "get_jobs": "SELECT * FROM awa.get_jobs('{7}')",
    "sweep": "SELECT awa.sweep(10)",
    "enqueue": "SELECT * FROM awa.enqueue('k', '{}', queue => 'q')",
}


@pytest.mark.parametrize("name", [*PLANS, "settle", "carry"])
def test_no_hot_statement_scans_a_table(name: str, connection: Connection) -> None:
    worker = register(connection)
    ids = enqueue_many(connection, 3000)
    for _ in range(20):
        settle(connection, worker, claim(connection, worker, 100)[::2])
    connection.execute("ANALYZE")
    connection.execute("LOAD 'auto_explain'")
    for setting in (
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_nested_statements = on",
        "auto_explain.log_format = json",
        "client_min_messages = log",
    ):
        connection.execute(f"SET {setting}".encode())
    plans: list[str] = []
    connection.add_notice_handler(lambda d: plans.append(d.message_primary or ""))
    if name == "settle":
        settle(connection, worker, ids[1:200:2])
    elif name == "carry":
        settle(connection, worker, ids[1:20:2], "failed")
        settle(connection, None, ids[-5:], "cancelled", was="available", lease=0)
    else:
        connection.execute(PLANS[name].replace("(1", f"({worker}").encode())
    trees = [json.loads(plan.split("plan:", 1)[1])["Plan"] for plan in plans if "plan:" in plan]
    scanned = [found for tree in trees for found in scans(tree)]
    # A plan that seems to cost more is compiled first, which takes longer than to run it.
    assert max(tree["Total Cost"] for tree in trees) < 100_000 or name in {"running", "sweep"}
    assert len(plans) >= 2
    assert [of for of in scanned if of not in SMALL] == []


#: Of one row, or a handful.
SMALL = {"segments", "lane_sweep", "workers", "lane_turns"}


def scans(plan: dict[str, Any]) -> Iterator[str]:
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for child in plan.get("Plans", ()):
        yield from scans(child)


# ---- everything at once


def test_nothing_is_lost_or_done_twice_while_the_ring_turns(segmented: str) -> None:
    """Producers, workers that complete, fail, cancel and die, upkeep that prunes at once, and
    one who reads for long: each job that was committed ends once."""
    stop = threading.Event()
    produced: list[int] = []
    ended: list[int] = []
    failures: list[BaseException] = []

    def connect() -> Connection:
        connection = psycopg.connect(segmented, autocommit=True)
        connection.execute("SET lock_timeout = '20s'")
        return connection

    def produce(chance: random.Random) -> None:
        with connect() as connection:
            for _ in range(60):
                connection.execute(
                    chance.choice(["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"])
                )
                ids = enqueue_many(connection, chance.randrange(1, 30))
                ids += [enqueue(connection, "l") for _ in range(chance.randrange(3))]
                if chance.random() < 0.2:
                    connection.execute("ROLLBACK")
                else:
                    connection.execute("COMMIT")
                    produced.extend(ids)

    def applied(stale: list[int], ids: list[int]) -> list[int]:
        return [job_id for job_id in ids if job_id not in set(stale)]

    def work(chance: random.Random) -> None:
        with connect() as connection:
            worker = register(connection, 0.2)
            while True:
                last = stop.is_set()
                try:
                    held = connection.execute(
                        CLAIM.replace("SELECT id", "SELECT id, run_lease").encode(),
                        (worker, chance.randrange(1, 40)),
                    ).fetchall()
                    if chance.random() < 0.1:
                        worker = register(connection, 0.2)  # and never says what became of them
                        continue
                    for lease in {lease for _, lease in held}:
                        ids = [job_id for job_id, of in held if of == lease]
                        chance.shuffle(ids)
                        for to in ("completed", "failed", "retryable", "cancelled"):
                            some = (
                                ids[:: chance.choice([1, 1, 2, 5])]
                                if to == "completed"
                                else ids[:1]
                            )
                            ids = [job_id for job_id in ids if job_id not in set(some)]
                            if some:
                                who = None if to == "cancelled" else worker
                                stale = settle(connection, who, some, to, lease=lease)
                                if to != "retryable":
                                    ended.extend(applied(stale, some))
                    assert one(connection, "SELECT awa.beat(%s)", worker)
                except (psycopg.DatabaseError, AssertionError) as error:
                    if isinstance(error, psycopg.DatabaseError) and error.sqlstate != "AW001":
                        raise
                    worker = register(connection, 0.2)
                    continue
                if last and not held and not unsettled(connection):
                    return

    def unsettled(connection: Connection) -> bool:
        return bool(
            connection.execute(
                "SELECT FROM awa.list_jobs('{available,running,retryable}', NULL, NULL, NULL, NULL, 1)"
            ).fetchall()
        )

    def rescue(chance: random.Random) -> None:
        with connect() as connection:
            while not over.is_set():
                lost = connection.execute(
                    "SELECT id, run_lease FROM awa.rescue(100, 1, '{k,l}', 'infinity')"
                ).fetchall()
                for job_id, lease in lost:
                    settle(connection, None, [job_id], "retryable", lease=lease)

    def cancel(chance: random.Random) -> None:
        with connect() as connection:
            while not over.is_set():
                waiting = connection.execute(
                    "SELECT id FROM awa.list_jobs('{available}', NULL, NULL, NULL, NULL, 5)"
                    " WHERE run_lease = 0"
                ).fetchall()
                ids = [row[0] for row in waiting]
                if ids:
                    stale = settle(connection, None, ids, "cancelled", was="available", lease=0)
                    ended.extend(applied(stale, ids))

    def upkeep(chance: random.Random) -> None:
        with connect() as connection:
            while not over.is_set():
                connection.execute("UPDATE awa.segments SET opened_at = '-infinity'")
                one(connection, "SELECT awa.prune(0, 0, 0, 50)")

    def read(chance: random.Random) -> None:
        with connect() as connection:
            while not over.is_set():
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                states(connection)
                over.wait(0.05)
                states(connection)
                connection.execute("COMMIT")

    over = threading.Event()

    def run(target: Any, seed: int) -> None:
        try:
            target(random.Random(seed))
        except BaseException as error:
            failures.append(error)
            stop.set()
            over.set()

    def begin(*targets: Any) -> list[threading.Thread]:
        threads = [threading.Thread(target=run, args=(t, n)) for n, t in enumerate(targets)]
        for thread in threads:
            thread.start()
        return threads

    others = begin(rescue, cancel, upkeep, read)
    producers = begin(produce, produce, produce)
    workers = begin(work, work, work)
    for thread in producers:
        thread.join()
    stop.set()
    for thread in workers:
        thread.join()
    over.set()
    for thread in others:
        thread.join()
    assert failures == []
    assert sorted(ended) == sorted(produced)
    assert len(produced) > 500
    with connect() as connection:
        assert current(connection) >= 3, "the ring turned"

"""What others write into our tables, and say on our channels, by hand.

A worker that meets it fails those jobs, loudly, and goes on with the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import psycopg
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._store.sql.hearing import CALLBACKS_CHANNEL, CUT_CHANNEL, JOBS_CHANNEL, parse

from .nasty import text

TIMINGS = awa.Timings(rescue_interval=0.1, poll_interval=0.1, reconcile_interval=0.2)


@frozen
class Good:
    n: int


app = awa.App()
ran: list[int] = []


@app.task(max_attempts=1)
async def good(job: awa.Job[Good]) -> None:
    ran.append(job.args.n)
    job.metadata  # noqa: B018, decodes it
    job.progress.set(message="on")


@frozen
class Waits:
    pass


@app.task
async def waits(job: awa.Job[Waits]) -> None:
    await job.wait_for_callback(await job.register_callback(timeout=60))


@pytest.fixture(params=["canonical", "segmented"])
def dsn(request: pytest.FixtureRequest) -> str:
    ran.clear()
    dsn: str = request.getfixturevalue(request.param)
    return dsn


@asynccontextmanager
async def working(dsn: str) -> AsyncIterator[awa.Client]:
    """A client, and a worker that lives until the end of the block, and must."""
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(partial(awa.run_worker, app, client, timings=TIMINGS))
        yield client
        worker.stop()


async def until(client: awa.Client, job_id: int, *states: awa.JobState) -> awa.JobDetails:
    with trio.fail_after(30):
        while (job := await client.jobs.get(job_id)).state not in states:
            await trio.sleep(0.02)
    return job


#: Rows of a job that no program of ours would write: what is not the default.
GARBAGE: dict[str, dict[str, object]] = {
    "arguments that are no object": {"args": "7"},
    "arguments of another type": {"args": '{"n": "seven"}'},
    "arguments with too little": {"args": "{}"},
    "arguments with too much": {"args": '{"n": -1, "m": 2}'},
    "a lone surrogate": {"args": '{"n": "\\ud800"}'},
    "an escaped NUL": {"args": '{"n": "\\u0000"}'},
    "a number without end": {"args": '{"n": 1e999999}'},
    "a number of many digits": {"args": '{"n": ' + "9" * 10_000 + "}"},
    "one key twice": {"args": '{"n": 1, "n": "two"}'},
    "deep arguments": {"args": '{"n": ' + "[" * 2000 + "]" * 2000 + "}"},
    "large arguments": {"args": json.dumps({"n": "x" * 10_000_000})},
    "null": {"args": "null"},
    "metadata of ours": {"metadata": '{"awa:triggered_by": "x", "awa:traceparent": 7}'},
    "deep metadata": {"metadata": '{"a": ' + "[" * 2000 + "]" * 2000 + "}"},
    "metadata that is no text": {"metadata": '{"a": "\\ud800"}'},
    "progress that is no object": {"progress": "7"},
    "progress of another shape": {"progress": '{"percent": "x", "message": 7, "metadata": []}'},
    "progress with a number without end": {"progress": '{"percent": 1e999}'},
    "an answer that is no object": {"callback_answer": "[]"},
    "an answer of another shape": {"callback_answer": '{"token": 7}'},
    "errors that are none": {"errors": "[]"},
    "errors that are null": {"errors": "null"},
    "errors that are a number": {"errors": "7"},
    "errors that are one object": {"errors": '{"error": "x"}'},
    "errors of another shape": {"errors": '[7, null, {"error": 7, "attempt": "x", "at": []}]'},
    "errors at no time": {
        "errors": '[{"error": "x", "attempt": 1, "at": "soon", "terminal": false}]'
    },
    "errors with a number of many digits": {"errors": "[" + "9" * 10_000 + "]"},
    "deep errors": {"errors": "[" * 2000 + "]" * 2000},
    "many errors": {"errors": json.dumps(list(range(10_000)))},
    "too many attempts": {"attempt": 1, "max_attempts": 1},
    "a lease far ahead": {"run_lease": 2**62},
    "the last lease of all": {"run_lease": 2**63 - 1},
    "a lease below all": {"run_lease": -(2**63)},
    "a start long ago": {"run_at": "0001-01-01 00:00+00"},
    "a creation before all": {"created_at": "-infinity"},
    "a creation after all": {"created_at": "infinity"},
    "tags with everything": {"tags": ["\x1b[2J", "", "'", '"', "\\", "{}", "NULL"]},
    "an empty tag list's opposite": {"tags": ["x" * 100_000]},
    "a deadline of no time": {"deadline": 1e-300},
    "a deadline that is none": {"deadline": 0},
    "a token that nobody knows": {"callback_token": "tok"},
}


def nests_so_deep(levels: int) -> bool:
    """Whether this Python reads lists in lists in lists; from 3.13 on it reads more of them."""
    try:
        json.loads("[" * levels + "]" * levels)
    except RecursionError:
        return False
    return True


@pytest.mark.parametrize("seed", [1])
async def test_a_worker_fails_garbage_and_goes_on(
    dsn: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    chance = Random(seed)
    # What is wrong with its failures does not keep a job from another.
    made = GARBAGE | {
        f"{name}, and it fails": columns | {"args": "{}"}
        for name, columns in GARBAGE.items()
        if "errors" in columns
    }
    names = list(made)
    chance.shuffle(names)
    ids: dict[str, int] = {}
    good_ids: list[int] = []
    async with working(dsn) as client:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for n, name in enumerate(names):
                columns = {"kind": "good", "args": '{"n": -1}', "max_attempts": 1}
                columns |= made[name]
                statement = psycopg.sql.SQL(
                    "INSERT INTO awa.jobs ({}) VALUES ({}) RETURNING id"
                ).format(
                    psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, columns)),
                    psycopg.sql.SQL(", ").join(map(psycopg.sql.Literal, columns.values())),
                )
                ids[name] = connection.execute(statement).fetchone()[0]  # type: ignore[index]
                good_ids.append((await client.enqueue(Good(n))).id)
        for job_id in good_ids:
            await until(client, job_id, awa.JobState.COMPLETED)
        ended: dict[str, awa.JobState] = {}
        with psycopg.connect(dsn, autocommit=True) as connection, trio.fail_after(60):
            # By SQL: not everything that was written by hand can be read by a client.
            while len(ended) < len(ids):
                rows = connection.execute(
                    "SELECT id, state::text FROM awa.jobs WHERE id = ANY (%s) AND state IN"
                    " ('completed', 'failed', 'cancelled')",
                    [list(ids.values())],
                ).fetchall()
                states: dict[int, str] = dict(rows)
                ended = {
                    name: awa.JobState(states[job_id])
                    for name, job_id in ids.items()
                    if job_id in states
                }
                await trio.sleep(0.05)
        listed = {job.id: job for job in await client.jobs.list(limit=1000)}
        assert len(listed) == len(ids) + len(good_ids)
        for name, job_id in ids.items():
            if ended[name] is awa.JobState.FAILED:
                latest = listed[job_id].errors[-1]
                assert latest.error, name
                # What is too deep for this Python is shown as it is written, all of it.
                ours = not name.startswith("deep errors") or nests_so_deep(2000)
                assert (latest.attempt, latest.terminal) == (int(ours), ours), name
    # What a handler cannot be given fails; the rest is none of its business.
    unread = {"a deadline of no time", *(() if nests_so_deep(2000) else ("deep metadata",))}
    for name, state in ended.items():
        fails = "args" in made[name] or name in unread
        if name != "arguments with too much":
            assert state is (awa.JobState.FAILED if fails else awa.JobState.COMPLETED), name
    assert sorted(n for n in ran if n >= 0) == list(range(len(names)))


#: What the database itself refuses, from whoever calls the functions that programs in other
#: languages call, or writes rows: it would stop others, or could not be read.
REFUSED: dict[str, str] = {
    "a start before all": "run_at => '-infinity'",
    "a start after all": "run_at => 'infinity'",
    "a start before Christ": "run_at => '0001-01-01 BC'",
    "a start in the year 10000": "run_at => '10000-01-01 00:00+00'",
    "no kind": "kind => ''",
    "a long kind": "kind => repeat('x', 201)",
    "an empty queue": "queue => ''",
    "a long queue": "queue => repeat('x', 201)",
    "priority 0": "priority => 0",
    "priority 5": "priority => 5",
    "priority 99999": "priority => 99999",
    "no attempts": "max_attempts => 0",
    "1001 attempts": "max_attempts => 1001",
    "a tag that is null": "tags => ARRAY['a', NULL]",
    "tags of tags": "tags => ARRAY[ARRAY['a'], ARRAY['b']]",
    "21 tags": "tags => ARRAY(SELECT 'x' FROM generate_series(1, 21))",
    "metadata that is no object": "metadata => '[]'",
    "a short unique key": "unique_key => 'x'",
    "a long unique key": "unique_key => convert_to(repeat('x', 17), 'UTF8')",
    "a mask of nothing": "unique_key => sha256('x')::bytea, unique_states => 0",
    "a mask of too much": "unique_key => '0123456789abcdef', unique_states => 256",
    "a mask below": "unique_key => '0123456789abcdef', unique_states => -1",
    "an empty ordering key": "ordering_key => ''",
    "an empty limit key": "limit_key => ''",
    "a long ordering key": "ordering_key => repeat('x', 201)",
    "a negative deadline": "deadline => -1",
    "a deadline that is no number": "deadline => 'NaN'",
    "an endless deadline": "deadline => 'infinity'",
    "no arguments": "args => NULL",
    "arguments that are no JSON": "args => '{'",
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_sql_is_refused_what_a_program_is(dsn: str, name: str) -> None:
    given = REFUSED[name]
    defaults = {"kind": "'good'", "args": "'{}'"}
    parts = [given, *(f"{k} => {v}" for k, v in defaults.items() if f"{k} =>" not in given)]
    with psycopg.connect(dsn) as connection:
        with pytest.raises((psycopg.DataError, psycopg.IntegrityError)):
            connection.execute(f"SELECT * FROM awa.enqueue({', '.join(parts)})".encode())
        connection.rollback()
        assert connection.execute("SELECT * FROM awa.list_jobs(NULL, NULL, NULL, NULL, NULL, 9)").fetchall() == []  # fmt: skip


# ---- channels


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 50))]
)
def test_what_a_notification_says_is_understood_or_not(seed: int) -> None:
    chance = Random(seed)
    channels = [JOBS_CHANNEL, CUT_CHANNEL, CALLBACKS_CHANNEL, "other"]
    for _ in range(3000):
        words = [
            chance.choice(
                [text(chance), str(chance.randrange(-(2**70), 2**70)), "1", "running", "٣", "1_0",
                 "9" * 5000, " ", "+1", "1e3", "nan"]
            )
            for _ in range(chance.randrange(5))
        ]  # fmt: skip
        payload = chance.choice([" ", "", "\n"]).join(words)[:8000]
        parse(chance.choice(channels), payload)


@pytest.mark.parametrize("seed", [1])
async def test_a_flood_of_notifications_holds_nothing_up(
    dsn: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Any role may NOTIFY; a worker stays at work, and its log can be read."""
    caplog.set_level(logging.INFO)
    chance = Random(seed)
    async with working(dsn) as client:
        waiting = (await client.enqueue(Waits())).id
        await until(client, waiting, awa.JobState.WAITING_EXTERNAL)
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(20):
                payloads = [
                    (
                        chance.choice([JOBS_CHANNEL, CUT_CHANNEL, CALLBACKS_CHANNEL]),
                        chance.choice(
                            [
                                text(chance).replace("\0", "").encode(errors="ignore").decode(),
                                f"{waiting} 1 cancelled",
                                f"{waiting} 1",
                                f"{chance.randrange(100)} {chance.randrange(3)} failed",
                                "default",
                            ]
                        )[:2000],
                    )
                    for _ in range(200)
                ]
                connection.execute(
                    "SELECT pg_notify(c, p) FROM unnest(%s::text[], %s::text[]) AS n (c, p)",
                    [[c for c, _ in payloads], [p for _, p in payloads]],
                )
        done = (await client.enqueue(Good(1))).id
        await until(client, done, awa.JobState.COMPLETED)

        def ignored() -> int:
            return sum("makes no sense" in r.getMessage() for r in caplog.records)

        # The job may have been found by polling, before any of it was heard.
        with trio.fail_after(30):
            while not ignored():
                await trio.sleep(0.02)
        # Nobody was believed: it may have looked whether it was answered, and waits again.
        job = await until(client, waiting, awa.JobState.WAITING_EXTERNAL)
        assert (job.attempt, job.errors) == (1, [])
    assert ignored() < 16

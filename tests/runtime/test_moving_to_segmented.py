"""A database moves from the canonical to the segmented engine while it is at work."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio._app.schema import schema
from awa_trio.testing.fixtures import fresh_database

from .app_for_processes import Source, app
from .test_processes import ROOT, check, client_of, until_done, worker_process

S = awa.JobState

MIGRATE = [sys.executable, "-m", "awa_trio", "migrate", "--engine", "segmented", "--dsn"]


@pytest.fixture
def canonical(awa_server: str) -> Iterator[str]:
    """The DSN of a database with the canonical engine, whatever the others have."""
    with fresh_database(awa_server) as name:
        dsn = make_conninfo(awa_server, dbname=name)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(schema().script().encode())
        yield dsn


async def engine(dsn: str) -> awa.Engine:
    return (await awa.storage_status(dsn)).engine


async def test_it_moves_under_load_and_nothing_is_lost_or_doubled(canonical: str) -> None:
    """Workers claim, stage and complete, producers enqueue, kills happen: as if nothing were."""
    chance = random.Random(4)
    sources = 0
    over = False

    async def produce(client: awa.Client) -> None:
        nonlocal sources
        while not over:
            items = [chance.randrange(60) for _ in range(chance.randrange(1, 15))]
            await client.enqueue(Source(sources, items, seconds=0.01), max_attempts=1000)
            sources += 1
            await trio.sleep(0.01)

    async with client_of(canonical) as client:
        with worker_process(canonical) as first, worker_process(canonical):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce, client)
                nursery.start_soon(produce, client)
                while sources < 100:
                    await trio.sleep(0.01)
                moved = await trio.run_process(
                    [*MIGRATE, canonical], cwd=ROOT, capture_stdout=True
                )
                assert b"0002_lanes" in moved.stdout
                before = sources
                while sources < before + 100:
                    await trio.sleep(0.01)
                first.send_signal(signal.SIGKILL)
                while sources < before + 200:
                    await trio.sleep(0.01)
                over = True
            jobs = await until_done(client, within=120)
    check(jobs, sources)
    assert await engine(canonical) is awa.Engine.SEGMENTED
    parts = {part.part: part for part in (await awa.storage_status(canonical)).parts}
    assert {"rows", "segment 0"} <= set(parts)
    with psycopg.connect(canonical) as connection:
        [(appended,)] = connection.execute("SELECT count(*) FROM awa.lane_jobs").fetchall()
        [(rows,)] = connection.execute("SELECT count(*) FROM awa.jobs").fetchall()
    assert appended > 100
    assert rows > 100


async def test_killed_in_the_middle_it_has_not_moved_and_can_again(canonical: str) -> None:
    async with client_of(canonical) as client:
        with worker_process(canonical):
            with psycopg.connect(canonical) as holder:
                # What it is about to replace: it stops there, in the middle of its transaction.
                holder.execute(
                    "SELECT FROM pg_proc WHERE pronamespace = 'awa'::regnamespace"
                    " AND proname = 'insert_jobs' FOR UPDATE"
                )
                process = subprocess.Popen([*MIGRATE, canonical], cwd=ROOT)
                with trio.fail_after(30):
                    while not held_up(canonical, holder):
                        await trio.sleep(0.02)
                process.send_signal(signal.SIGKILL)
                process.wait()
            await client.enqueue_many([Source(n, [n]) for n in range(20)])
            check(await until_done(client), 20)
            assert await engine(canonical) is awa.Engine.CANONICAL
            applied, _ = await awa.migrate(canonical, engine="segmented")
            assert applied == ["0002_lanes"]
            await client.enqueue_many([Source(n, [n]) for n in range(20, 40)])
            check(await until_done(client), 40)
    latest = schema(awa.Engine.SEGMENTED).version
    assert await awa.migrate(canonical, engine="segmented") == ([], latest)
    assert await awa.migrate(canonical) == ([], latest)


def held_up(dsn: str, by: psycopg.Connection[Any]) -> bool:
    """Whether a session waits for that one."""
    with psycopg.connect(dsn) as observer:
        row = observer.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
            by.execute("SELECT pg_backend_pid()").fetchone(),
        ).fetchone()
    return row != (0,)


async def test_there_is_no_way_back(segmented: str) -> None:
    with pytest.raises(awa.ConfigurationError, match="jobs in it that the canonical one"):
        await awa.migrate(segmented, engine="canonical")
    assert await engine(segmented) is awa.Engine.SEGMENTED
    with pytest.raises(
        awa.ConfigurationError, match="no engine 'fast'; choose one of canonical"
    ):
        await awa.migrate(segmented, engine="fast")


async def test_a_new_database_has_the_engine_it_is_given(dsn: str) -> None:
    applied, version = await awa.migrate(dsn, engine=awa.Engine.SEGMENTED)
    assert applied[:3] == [
        "0001_jobs",
        "0002_callbacks_progress_output_dead_letters",
        "0002_lanes",
    ]
    assert version == schema(awa.Engine.SEGMENTED).version
    async with awa.connect(dsn, app=app) as client:
        answer = await client.enqueue(Source(1, []))
        assert (await client.jobs.get(answer.id)).state is S.AVAILABLE

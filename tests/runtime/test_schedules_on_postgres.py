"""Schedules on real servers: workers that race, processes that are killed, locks that are held."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta

import psycopg
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._core.job import PreparedInsert
from awa_trio._core.schedules import Definition
from awa_trio._seam.values import Enqueued

from ..engines import job_tables
from .scheduled_app import app as killed_app
from .test_processes import worker_process

SERVERS = ["canonical", "segmented"]

#: What fires is the same on both; what inserts is the contract's.
FIRST = pytest.mark.parametrize(
    "dsn_of", ["canonical", pytest.param("segmented", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(params=SERVERS)
def dsn_of(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


async def test_ten_that_fire_at_once_fire_once(dsn_of: str) -> None:
    """good_job#731, #743, #1446, solid_queue#636, pgqueuer#345: double fires."""
    answers: list[list[Enqueued] | None] = []
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(awa.connect(dsn_of)) for _ in range(10)]
        stores = [client._backend.store for client in clients]
        await stores[0].register_schedules([Definition("s", "* * * * *", "UTC", "k", "skip")])
        for _ in range(5):
            [row] = await stores[0].schedules()
            upto = row.now
            ready = trio.Event()

            async def fire(store, ready=ready, cursor=row.cursor, upto=upto) -> None:  # type: ignore[no-untyped-def]
                await ready.wait()
                jobs = [PreparedInsert("k", "q", b"{}")]
                answers.append(await store.fire("s", cursor, upto, jobs, patience=10))

            async with trio.open_nursery() as nursery:
                for store in stores:
                    nursery.start_soon(fire, store)
                ready.set()
        assert len(await clients[0].jobs.list()) == 5
        assert sum(answer is not None for answer in answers) == 5
        assert len(answers) == 50
        [row] = await stores[0].schedules()
        assert (row.fires, row.cursor) == (5, upto)


@pytest.mark.real_time
@FIRST
async def test_processes_that_are_killed_leave_no_second_out_and_fire_for_none_twice(
    dsn_of: str,
) -> None:
    """Whoever leads, wherever it is when it is killed, and whatever its own clock says."""
    async with awa.connect(dsn_of, app=killed_app) as client:

        async def upto(seconds: int) -> None:
            with trio.fail_after(60):
                while True:
                    rows = {row.name: row for row in await client.cron.list()}
                    if "seconds" in rows and rows["seconds"].fires >= seconds:
                        return
                    await trio.sleep(0.05)

        with ExitStack() as stack:
            workers = [
                stack.enter_context(worker_process(dsn_of, "tests.runtime.scheduled_app"))
            ]
            await upto(1)
            for n in range(2):
                workers.append(
                    stack.enter_context(
                        worker_process(
                            dsn_of, "tests.runtime.scheduled_app", clock_off=(-3600, 3600)[n]
                        )
                    )
                )
                workers[n].kill()  # the one that led, or the one that followed it
                await upto(2 * n + 3)
        rows = {row.name: row for row in await client.cron.list()}
        jobs = await client.jobs.list(limit=10_000)
    for name in ("seconds", "period"):
        instants = sorted(
            j.scheduled_for for j in jobs if j.schedule == name and j.scheduled_for
        )
        assert rows[name].fired_for is not None
        if name == "seconds":
            assert len(instants) == rows[name].fires >= 5
            first = instants[0]
            assert instants == [first + timedelta(seconds=n) for n in range(len(instants))]
            assert instants[-1] == rows[name].fired_for
            assert first - rows[name].since <= timedelta(seconds=1)
        else:
            assert len(instants) == 1, "of all its fires, one at a time"
            assert rows[name].fires > 1


@frozen
class Held:
    n: int = 0


@pytest.mark.real_time
@FIRST
async def test_a_key_that_a_transaction_holds_keeps_nothing_else_from_firing(
    dsn_of: str,
) -> None:
    app = awa.App()

    @app.cron("* * * * * *", name="blocked", unique_opts={})
    @app.cron("* * * * * *", name="free", args=Held(1))
    @app.task
    async def held(job: awa.Job[Held]) -> None: ...

    async with awa.connect(dsn_of, app=app) as client, trio.open_nursery() as nursery:
        async with client.transaction() as transaction:
            await transaction.enqueue(Held(), unique_opts={})
            worker = await nursery.start(awa.run_worker, app, client)
            with trio.fail_after(30):
                while not ((await _row(client, "free")).fires > 2):
                    await trio.sleep(0.05)
            blocked = await _row(client, "blocked")
            assert (blocked.fires, blocked.error) == (0, None)
        with trio.fail_after(30):
            while not (await _row(client, "blocked")).fires:
                await trio.sleep(0.05)
        worker.stop()


async def _row(client: awa.Client, name: str) -> awa.ScheduleRow:
    found = {row.name: row for row in await client.cron.list()}
    with trio.fail_after(10):
        while name not in found:
            await trio.sleep(0.05)
            found = {row.name: row for row in await client.cron.list()}
    return found[name]


@pytest.mark.real_time
async def test_a_table_that_refuses_the_jobs_is_told_and_stops_no_other(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF NEW.queue = 'refused' THEN PERFORM FROM no_such_table; END IF;"
            " RETURN NEW; END $$"
        )
        for table in job_tables(connection):
            connection.execute(
                f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW"
                " EXECUTE FUNCTION public.refuse()".encode()
            )
    app = awa.App()

    @app.cron("* * * * * *", name="a refused one", queue="refused")
    @app.cron("* * * * * *", name="free")
    @app.task
    async def held(job: awa.Job[Held]) -> None: ...

    async with awa.connect(migrated, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        with trio.fail_after(30):
            while (await _row(client, "free")).fires < 2:
                await trio.sleep(0.05)
        refused = await _row(client, "a refused one")
        assert refused.error is not None
        assert "no_such_table" in refused.error
        assert refused.fires == 0
        worker.stop()


@pytest.mark.real_time
async def test_a_row_that_sql_has_made_up_stops_nobody(canonical: str) -> None:
    with psycopg.connect(canonical, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO awa.schedules (name, expression, timezone, missed, since, cursor, seen_at,"
            " fired_for, fired_at, paused_at, fires, error) VALUES"
            " ('far', 'x', 'y', 'z', '0001-01-01 00:00+00', '9999-12-31 23:59:59.999999+00',"
            "  'infinity', 'infinity', '-infinity', NULL, -1, ''),"
            " ('period', 'every nan s', NULL, 'z', '9999-12-31 00:00+00', '0001-01-01 00:00+00',"
            "  '-infinity', NULL, NULL, '-infinity', 9223372036854775807, NULL),"
            " ('free', '', '', '', '9999-12-31 00:00+00', '0001-01-01 00:00+00', '-infinity',"
            "  NULL, NULL, NULL, 0, NULL)"
        )
        for column in ("since", "cursor"):
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(f"UPDATE awa.schedules SET {column} = 'infinity'".encode())
    app = awa.App()

    @app.cron("* * * * * *", name="far")
    @app.cron("* * * * * *", name="free")
    @app.periodic(1, name="period")
    @app.task
    async def held(job: awa.Job[Held]) -> None: ...

    async with awa.connect(canonical, app=app) as client, trio.open_nursery() as nursery:
        assert [row.next_at for row in await client.cron.list()] == [None] * 3
        worker = await nursery.start(awa.run_worker, app, client)
        with trio.fail_after(30):
            while (await _row(client, "free")).fires < 2:
                await trio.sleep(0.05)
        assert (await _row(client, "far")).fires == -1
        await client.cron.resume("period")
        worker.stop()

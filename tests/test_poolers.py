"""Through a PgBouncer in transaction mode: what works, and what goes another way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
import trio
from attrs import frozen
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio import events
from awa_trio._pg.pooler import pooled
from awa_trio.pg import TrioConnection
from awa_trio.testing.fixtures import fresh_database

from .pooler import MISSING, PROGRAM, Pooler, pooler

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

#: A poll would find a job only after the test has failed.
NO_POLLS = awa.Timings(poll_interval=600.0)

app = awa.App()


@frozen
class Work:
    n: int


@app.task
async def work(job: awa.Job[Work]) -> None: ...


@frozen
class Stay:
    """Until somebody else ends it."""

    how: str


@app.task
async def stay(job: awa.Job[Stay]) -> None:
    if job.args.how == "running":
        await trio.sleep_forever()
    await job.wait_for_callback(await job.register_callback())


@pytest.fixture(scope="session")
def in_front(awa_server: str) -> Iterator[Pooler]:
    """A pooler in front of the server."""
    with pooler(awa_server) as running:
        yield running


@pytest.fixture
def straight(awa_server: str, awa_template: str) -> Iterator[str]:
    """The DSN of a database of the test's own, without a pooler whatever AWA_TEST_POOLER says."""
    with fresh_database(awa_server, template=awa_template) as name:
        yield make_conninfo(awa_server, dbname=name)


@pytest.fixture
def through(in_front: Pooler, straight: str) -> str:
    """The DSN of the same database, through the pooler."""
    return in_front.dsn(straight)


async def done(client: awa.Client, count: int) -> None:
    with trio.fail_after(30):
        while len(await client.jobs.list(state="completed", limit=1000)) < count:
            await trio.sleep(0.01)


async def test_it_is_noticed(straight: str, through: str) -> None:
    for dsn, is_pooled in ((straight, False), (through, True)):
        async with await TrioConnection.connect(dsn, autocommit=True) as connection:
            assert await pooled(connection) is is_pooled


async def test_many_at_once_share_what_sessions_there_are(through: str) -> None:
    """Statements that were prepared would be missing in one session, or in another twice."""
    async with awa.connect(through, app=app, pool_size=20) as client:
        async with trio.open_nursery() as nursery:
            for n in range(60):
                nursery.start_soon(client.enqueue, Work(n))
        async with trio.open_nursery() as nursery:
            worker: awa.Worker = await nursery.start(partial(awa.run_worker, app, client))
            await done(client, 60)
            worker.stop()
        assert worker.statistics().settled[awa.JobState.COMPLETED] == 60
        assert worker.statistics().given_up == worker.statistics().stale == 0


def deaf(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "listen_dsn" in each.message]


class Watching(awa.Observer):
    def __init__(self) -> None:
        self.listening = trio.Event()

    def observe(self, event: Any) -> None:
        if event == events.Listening(connected=True):
            self.listening.set()


async def test_a_worker_hears_by_the_way_it_is_told(
    straight: str, through: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with awa.connect(through, app=app, listen_dsn=straight) as client:
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(partial(awa.run_worker, app, client, timings=NO_POLLS))
            for n in range(3):
                # One by one: each has to be heard of.
                await client.enqueue(Work(n))
                await done(client, n + 1)
            worker.stop()
    assert deaf(caplog) == []


async def test_without_it_polls_and_says_so(
    through: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    watching = Watching()
    timings = awa.Timings(poll_interval=0.05)
    async with awa.connect(through, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(
            partial(awa.run_worker, app, client, timings=timings, observers=[watching])
        )
        for n in range(3):
            await client.enqueue(Work(n))
            await done(client, n + 1)
        worker.stop()
    [said] = deaf(caplog)
    assert "found by polling" in said
    assert not watching.listening.is_set()


async def test_what_it_does_not_hear_of_its_jobs_is_in_their_rows(through: str) -> None:
    """A job that is ended by others is cut, and a callback's answer arrives."""
    timings = awa.Timings(poll_interval=0.05, reconcile_interval=0.05)
    states = {
        "cancelled": "running",
        "cancelled while it waits": "waiting_external",
        "completed": "waiting_external",
        "answered": "waiting_external",
    }
    async with awa.connect(through, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(partial(awa.run_worker, app, client, timings=timings))
        ids = {how: (await client.enqueue(Stay(state))).id for how, state in states.items()}

        async def until(states: dict[str, str]) -> dict[str, awa.JobDetails]:
            found = {}
            with trio.fail_after(30):
                for how, state in states.items():
                    while (row := await client.jobs.get(ids[how])).state != state:
                        await trio.sleep(0.01)
                    found[how] = row
            return found

        found = await until(states)
        await client.jobs.cancel(ids["cancelled"])
        await client.jobs.cancel(ids["cancelled while it waits"])
        await client.callbacks.complete(found["completed"].callback_token or "")
        await client.callbacks.resume(found["answered"].callback_token or "")
        await until(
            dict.fromkeys(states, "cancelled")
            | dict.fromkeys(("completed", "answered"), "completed")
        )
        with trio.fail_after(30):
            while worker.statistics().running:
                await trio.sleep(0.01)
        worker.stop()


async def test_a_way_that_leads_elsewhere_is_refused(
    awa_server: str, awa_template: str, straight: str, through: str
) -> None:
    with fresh_database(awa_server, template=awa_template) as another:
        for name in (another, "postgres"):
            elsewhere = make_conninfo(awa_server, dbname=name)
            async with awa.connect(through, app=app, listen_dsn=elsewhere) as client:
                # Who only enqueues does not listen.
                await client.enqueue(Work(1))
                with pytest.raises(awa.ConfigurationError, match="leads to another database"):
                    await awa.run_worker(app, client)
    nowhere = make_conninfo(straight, host="/nowhere")
    async with awa.connect(through, app=app, listen_dsn=nowhere) as client:
        with pytest.raises(awa.DatabaseUnavailable, match="could not be reached"):
            await awa.run_worker(app, client)


async def test_a_worker_that_is_not_to_listen_says_nothing(
    through: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with awa.connect(through, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(partial(awa.run_worker, app, client, listen=False))
        worker.stop()
    assert deaf(caplog) == []


async def enqueue_everywhere(dsn: str) -> None:
    """Until one of many fails, in as many sessions as there are."""
    error: Exception | None = None

    async def one(client: awa.Client, n: int) -> None:
        nonlocal error
        try:
            await client.enqueue(Work(n))
        except awa.DatabaseUnavailable as failed:
            error = failed

    async with awa.connect(dsn, app=app, prepare=True) as client:
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(one, client, n)
    if error is not None:
        raise error


async def test_statements_are_prepared_if_it_is_said_so(straight: str, through: str) -> None:
    """This pooler keeps none, so one session has what another lacks."""
    with pytest.RaisesGroup(
        pytest.RaisesExc(
            (awa.ConfigurationError, awa.DatabaseUnavailable), match="prepare=True"
        ),
        flatten_subgroups=True,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(enqueue_everywhere, through)
    for prepare, kept in ((None, True), (False, False)):
        async with awa.connect(straight, app=app, prepare=prepare) as client:
            async with client.transaction() as transaction:
                await transaction.enqueue(Work(1))
                cursor = await transaction.connection.execute(
                    "SELECT count(*) FROM pg_prepared_statements", prepare=False
                )
                [count] = await cursor.fetchone() or [0]
                assert bool(count) is kept


async def test_a_schema_is_made_through_it(in_front: Pooler, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        [name] = connection.execute("SELECT current_database()").fetchone() or [""]
    through = in_front.dsn(make_conninfo("", dbname=name))
    names, version = await awa.migrate(through)
    assert names
    assert await awa.migrate(through) == ([], version)
    async with awa.connect(through, app=app) as client:
        assert (await client.enqueue(Work(1))).inserted


@pytest.mark.parametrize("wrong", [1, None, b"dbname=x"])
async def test_a_listen_dsn_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="listen_dsn"):
        async with awa.connect("dbname=x", listen_dsn=wrong):
            raise AssertionError

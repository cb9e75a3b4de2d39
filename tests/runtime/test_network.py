"""A worker whose network misbehaves: every call is bounded, and each job completes once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio._app import calls
from awa_trio.pg import TrioConnection
from tests.pg.proxy import Proxy

from .app_for_processes import TIMINGS, Item, Source, app
from .test_processes import check, in_state, until_done

S = awa.JobState

#: Seconds after which a test has failed: several times what anything here may take.
FAR = 60.0

#: As short as they may be, so that a black hole is found out in a second or two.
SHORT = attrs.evolve(TIMINGS, call_timeout=0.5)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrioConnection, "cancel_grace", 0.3)


@pytest.fixture
async def proxy(migrated: str, nursery: trio.Nursery) -> Proxy:
    proxy = Proxy(make_conninfo(migrated, connect_timeout=2))
    await nursery.start(proxy.serve)
    return proxy


@asynccontextmanager
async def working(
    dsn: str, *, grace: float = 25.0, timings: awa.Timings = SHORT
) -> AsyncIterator[awa.Worker]:
    """A worker of the processes' app, in this one, for a block."""
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app, client, grace=grace, timings=timings, task_status=task_status
            )

        worker = await nursery.start(run)
        try:
            yield worker
        finally:
            worker.stop()


async def until_running(client: awa.Client, ids: list[int]) -> None:
    for job_id in ids:
        await in_state(client, job_id, S.RUNNING)


# ---- a black hole under a running worker


@pytest.mark.parametrize("seconds", [0.3, 2.5], ids=["shorter than the lease", "longer"])
async def test_after_a_black_hole_the_worker_goes_on(
    migrated: str, proxy: Proxy, seconds: float
) -> None:
    """Claims, settlements, beats and the listener all hang in it, for some time or for long."""
    async with awa.connect(migrated, app=app) as client:
        async with working(proxy.dsn) as worker:
            sources = [Source(n, [n % 7, n % 5, n % 3], seconds=0.1) for n in range(20)]
            await client.enqueue_many(sources[:10])
            async with trio.open_nursery() as nursery:

                async def enqueue_meanwhile() -> None:
                    for source in sources[10:]:
                        await client.enqueue(source)
                        await trio.sleep(seconds / 10)

                nursery.start_soon(enqueue_meanwhile)
                await trio.sleep(0.2)
                proxy.stall()
                await trio.sleep(seconds)
                proxy.resume()
            await until_done(client, within=FAR)
            after = await client.enqueue(Source(20, []))
            await in_state(client, after.id, S.COMPLETED)
            assert worker.id is not None
            jobs = await until_done(client, within=FAR)
    check(jobs, 21)


async def test_jobs_of_a_worker_in_a_black_hole_are_done_by_another(
    migrated: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """And not by both: the one that hears nothing stops before the other begins."""
    running: list[tuple[str, int]] = []
    overlaps = 0

    def app_of(name: str) -> awa.App:
        app = awa.App()

        @app.task(args=Item, kind="item")
        async def item(job: awa.Job[Item]) -> None:
            nonlocal overlaps
            overlaps += len(running)
            running.append((name, job.attempt))
            job.enqueue_on_completion(Item(job.args.item + 1), queue="nobody", kind="item")
            try:
                await trio.sleep(3.0 if name == "cut off" else 0.1)
            finally:
                running.remove((name, job.attempt))

        return app

    cut_off, other = app_of("cut off"), app_of("other")
    async with (
        awa.connect(proxy.dsn, app=cut_off) as cut_off_client,
        awa.connect(migrated, app=other) as client,
        trio.open_nursery() as nursery,
    ):

        async def run(app: awa.App, client: awa.Client, task_status: Any) -> None:
            await awa.run_worker(app, client, timings=SHORT, task_status=task_status)

        first = await nursery.start(run, cut_off, cut_off_client)
        answer = await client.enqueue(Item(1))
        await in_state(client, answer.id, S.RUNNING)
        proxy.stall()
        second = await nursery.start(run, other, client)
        await in_state(client, answer.id, S.COMPLETED)
        proxy.resume()
        later = await client.enqueue(Item(10))
        await in_state(client, later.id, S.COMPLETED)
        for worker in (first, second):
            worker.stop()
    job = row_of(migrated, answer.id)
    assert job == ("completed", 2)
    assert overlaps == 0
    assert "takes itself for dead" in caplog.text
    with psycopg.connect(migrated) as connection:
        rows = connection.execute(
            "SELECT args ->> 'item'"
            " FROM awa.list_jobs(NULL, NULL, 'nobody', NULL, NULL, 100) ORDER BY 1"
        ).fetchall()
    assert rows == [("11",), ("2",)]


def row_of(dsn: str, job_id: int) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT state, attempt FROM awa.get_jobs(ARRAY[%s::bigint])", [job_id]
        ).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_worker_in_a_black_hole_ends_when_it_is_told_to(
    migrated: str, proxy: Proxy, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bounded: its rows are left to rescue, and it says so."""
    async with awa.connect(migrated, app=app) as client:
        answer = await client.enqueue(Source(1, [1, 2], seconds=5))
        with trio.CancelScope() as scope:
            async with working(proxy.dsn, grace=0.1) as worker:
                await in_state(client, answer.id, S.RUNNING)
                proxy.stall()
                began = time.monotonic()
                if how == "stop":
                    worker.stop()
                else:
                    scope.cancel()
        assert time.monotonic() - began < FAR / 2
    # The one if it ended before it fenced itself, the other if it did not.
    assert "could not unregister" in caplog.text or "takes itself for dead" in caplog.text
    proxy.resume()
    assert row_of(migrated, answer.id)[0] in ("running", "available")


async def test_one_that_cannot_start_says_so(migrated: str, proxy: Proxy) -> None:
    """The network goes between connecting and registering."""
    async with awa.connect(proxy.dsn, app=app) as client:
        proxy.stall()
        began = time.monotonic()
        with pytest.raises(
            awa.DatabaseUnavailable, match=r"^starting a worker: .*no answer"
        ) as caught:
            await awa.run_worker(app, client, timings=SHORT)
        assert time.monotonic() - began < FAR / 2
        assert "\n" not in str(caught.value)
        proxy.resume()


# ---- the client


async def test_a_client_in_a_black_hole_says_so_and_goes_on_after_it(
    migrated: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CALL_TIMEOUT", 0.2)
    async with awa.connect(proxy.dsn, app=app, pool_size=2) as client:
        first = await client.enqueue(Source(1, []))
        proxy.stall()
        for call in (
            lambda: client.enqueue(Source(2, []), unique_opts={}),
            lambda: client.enqueue_many([Source(n, []) for n in range(3, 300)]),
            lambda: client.jobs.get(first.id),
            lambda: client.jobs.list(),
            lambda: client.jobs.cancel(first.id),
            lambda: client.jobs.wait(first.id),
        ):
            began = time.monotonic()
            with pytest.raises(
                awa.DatabaseUnavailable, match=r"PostgreSQL did not answer within 0\.2 s"
            ):
                await call()
            assert time.monotonic() - began < FAR / 2
        proxy.resume()
        with trio.fail_after(FAR):
            while True:
                try:
                    again = await client.enqueue(Source(2, []), unique_opts={})
                    break
                except awa.DatabaseUnavailable:
                    await trio.sleep(0.1)
        assert (await client.jobs.get(again.id)).state is S.AVAILABLE


@pytest.mark.parametrize("ends", ["at once", "with a commit", "with a rollback"])
async def test_so_does_a_transaction_that_ends_in_one(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(calls, "CALL_TIMEOUT", 0.2)
    expected: tuple[type[Exception], str] = {
        "at once": (awa.DatabaseUnavailable, "opening a transaction: "),
        "with a commit": (awa.DatabaseUnavailable, "may have happened: "),
        "with a rollback": (ZeroDivisionError, "^$"),
    }[ends]
    async with awa.connect(proxy.dsn, app=app) as client:
        began = time.monotonic()
        with pytest.raises(expected[0], match=expected[1]):
            if ends == "at once":
                proxy.stall()
            async with client.transaction() as tx:
                await tx.enqueue(Source(1, []))
                proxy.stall()
                if ends == "with a rollback":
                    raise ZeroDivisionError
        assert time.monotonic() - began < FAR
        proxy.resume()


async def test_connecting_into_a_black_hole_is_bounded(proxy: Proxy) -> None:
    proxy.stall()
    began = time.monotonic()
    with pytest.raises(awa.DatabaseUnavailable, match=r"connecting: .*timeout"):
        async with awa.connect(proxy.dsn):
            pass
    assert time.monotonic() - began < FAR / 2
    proxy.resume()


async def test_so_is_looking_at_the_schema(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network goes between connecting and the first question."""
    from awa_trio._app import connect as connects
    from awa_trio._app.schema import check_schema

    async def stalled(connection: Any) -> None:
        proxy.stall()
        await check_schema(connection)

    monkeypatch.setattr(connects, "check_schema", stalled)
    monkeypatch.setattr(calls, "CALL_TIMEOUT", 0.2)
    with (
        trio.fail_after(FAR),
        pytest.raises(awa.DatabaseUnavailable, match=r"connecting: .*within 0\.2 s"),
    ):
        async with awa.connect(proxy.dsn):
            pass
    proxy.resume()


# ---- connections that are reset, or cut at any byte


async def test_connections_that_are_reset_cost_nothing(migrated: str, proxy: Proxy) -> None:
    async with awa.connect(migrated, app=app) as client, working(proxy.dsn):
        for n in range(30):
            await client.enqueue(Source(n, [n % 7, n % 5], seconds=0.01))
            await trio.sleep(0.02)
            if n % 5 == 0:
                proxy.reset()
        jobs = await until_done(client, within=FAR)
    check(jobs, 30)


async def test_connections_that_are_cut_at_any_byte_cost_nothing(
    migrated: str, proxy: Proxy
) -> None:
    """In the middle of an answer: to a claim, to a settlement, to a login."""
    async with awa.connect(migrated, app=app) as client, working(proxy.dsn):
        for n in range(30):
            await client.enqueue(Source(n, [n % 7, n % 5], seconds=0.01))
            proxy.cut_after(1 + 37 * n)
            await trio.sleep(0.03)
        proxy.cut_after(1 << 40)
        jobs = await until_done(client, within=FAR)
    check(jobs, 30)


async def test_a_slow_network_changes_nothing_but_the_time(migrated: str, proxy: Proxy) -> None:
    proxy.latency = 0.02
    async with awa.connect(migrated, app=app) as client:
        async with working(proxy.dsn, timings=awa.Timings()) as worker:
            await client.enqueue_many([Source(n, [n % 3]) for n in range(20)])
            jobs = await until_done(client, within=FAR)
            assert worker.statistics().lives == 1
            assert worker.statistics().stale == 0
    check(jobs, 20)
    assert {job.attempt for job in jobs} == {1}

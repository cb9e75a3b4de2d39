"""Who fires a schedule, how often, and what becomes of what nobody could fire: in virtual time."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio import events
from awa_trio._store.memory.rows import EPOCH
from awa_trio._store.memory.store import MemoryStore
from awa_trio.testing import memory_client

pytestmark = pytest.mark.virtual_time

#: What most schedules here count in: an hour of virtual time costs a worker a second of ours.
UNIT = 600.0
HOUR = 3600.0

#: A day of a worker's own rounds would be most of what these tests do.
QUIET = awa.Timings(
    poll_interval=300, heartbeat=600, lease=7200, rescue_interval=600, reconcile_interval=3600,
    prune_interval=3600, schedule_interval=60,
)  # fmt: skip


@frozen
class Tick:
    n: int = 0


def app_with(*decorators: Callable[[Any], Any], seconds: float = 0.0) -> awa.App:
    """An app with a task of Ticks, and schedules on it: each decorator is given the app."""
    app = awa.App()

    @app.task
    async def tick(job: awa.Job[Tick]) -> None:
        await trio.sleep(seconds)

    for decorator in decorators:
        decorator(app)(tick)
    return app


def cron(*args: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda app: app.cron(*args, **options)


def periodic(*args: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda app: app.periodic(*args, **options)


run = partial(awa.run_worker, timings=QUIET)


@asynccontextmanager
async def working(
    app: awa.App, client: awa.Client, **options: Any
) -> AsyncIterator[awa.Worker]:
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(partial(run, app, client, **options))
        yield worker
        worker.stop()


async def fired(client: awa.Client, name: str | None = None) -> list[datetime]:
    """The instants for which there is a job, in order."""
    jobs = await client.jobs.list(limit=100_000)
    found = [job.scheduled_for for job in jobs if name in (None, job.schedule)]
    assert None not in found
    return sorted(at for at in found if at is not None)


def units_of(instants: list[datetime]) -> list[float]:
    return [(at - EPOCH).total_seconds() / UNIT for at in instants]


async def test_every_instant_once_whatever_the_number_of_workers() -> None:
    app = app_with(cron("* * * * *"))
    client = memory_client(app)
    async with trio.open_nursery() as nursery:
        running = [await nursery.start(run, app, client) for _ in range(4)]
        await trio.sleep(1830)
        assert await fired(client) == [EPOCH + timedelta(minutes=n) for n in range(1, 31)]
        [row] = await client.cron.list()
        assert row.fires == 30
        assert sum(worker.statistics().fired for worker in running) == 30
        for worker in running:
            worker.stop()
    jobs = await client.jobs.list(limit=1000)
    assert {job.state for job in jobs} == {awa.JobState.COMPLETED}
    late = [job.created_at - job.scheduled_for for job in jobs if job.scheduled_for]
    assert max(late) < timedelta(seconds=1), "on time"


async def test_a_period_is_not_begun_anew_by_restarts() -> None:
    """river#342, #658, #791, #827: deploys more frequent than the interval kept it from firing."""
    app = app_with(periodic(timedelta(minutes=10)))
    client = memory_client(app)
    for _ in range(11):
        async with working(app, client):
            await trio.sleep(UNIT / 2 - 1)
        await trio.sleep(1)
    assert units_of(await fired(client)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"missed": "skip"}, [1, 5]),
        ({"missed": "skip", "tolerance": 5 * 60 + 10}, [1, 4, 5]),
        ({"missed": "coalesce"}, [1, 4, 5]),
        ({}, [1, 4, 5]),
        ({"missed": "catch_up"}, [1, 2, 3, 4, 5]),
        ({"missed": awa.MissedFires.CATCH_UP, "catch_up": 2}, [1, 3, 4, 5]),
    ],
)
async def test_an_outage_under_each_policy(
    options: dict[str, Any], expected: list[int]
) -> None:
    """pg-boss#327, #549, #557: nothing said what becomes of schedules after downtime."""
    app = app_with(cron("*/10 * * * *", **options))
    client = memory_client(app)
    async with working(app, client):
        await trio.sleep(1.5 * UNIT)
    await trio.sleep(3 * UNIT)
    async with working(app, client):
        await trio.sleep(UNIT)
    assert units_of(await fired(client)) == expected


async def test_a_new_schedule_has_missed_nothing() -> None:
    client = memory_client(app := app_with(cron("*/10 * * * *", missed="catch_up")))
    await trio.sleep(10.5 * UNIT)
    async with working(app, client):
        await trio.sleep(UNIT)
    assert units_of(await fired(client)) == [11]


async def test_a_leader_that_dies_is_followed_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = app_with(cron("* * * * *"))
    client = memory_client(app)

    async def nothing(self: MemoryStore, worker: int) -> None:
        """A worker that is killed says nothing."""

    async with working(app, client):
        async with working(app, client) as second:
            await trio.sleep(90)
            assert second.statistics().fired == 0, "the first leads"
        async with trio.open_nursery() as nursery:
            third = await nursery.start(run, app, client)
            await trio.sleep(1)
            monkeypatch.setattr(MemoryStore, "unregister", nothing)
            # It keeps the lead in the database, and fires no more.
            async with working(app, client):
                pass
            leader = client._backend.store._leaders  # type: ignore[attr-defined]
            taken = {duty: (999, until + 1e6) for duty, (_, until) in leader.items()}
            leader.update(taken)
            await trio.sleep(300)
            third.stop()
        jobs = await client.jobs.list(limit=1000)
    instants = await fired(client)
    assert instants == [EPOCH + timedelta(minutes=n) for n in range(1, len(instants) + 1)]
    assert len(instants) >= 6
    late = [
        (job.created_at - job.scheduled_for).total_seconds()
        for job in jobs
        if job.scheduled_for
    ]
    assert 1.9 < max(late) < 5


async def test_apps_that_share_a_database_each_have_a_leader() -> None:
    """A leader that does not know a schedule must not be what it waits for."""
    one, two = app_with(cron("* * * * *", name="one")), app_with(cron("* * * * *", name="two"))
    client = memory_client(one)
    async with working(one, client), working(two, client):
        await trio.sleep(601)
        jobs = await client.jobs.list(limit=1000)
    for name in ("one", "two"):
        late = [
            j.created_at - j.scheduled_for
            for j in jobs
            if j.schedule == name and j.scheduled_for
        ]
        assert len(late) == 10
        assert max(late) < timedelta(seconds=1)


@pytest.mark.parametrize("missed", awa.MissedFires)
async def test_another_expression_begins_anew_and_old_workers_are_no_harm(
    missed: awa.MissedFires,
) -> None:
    client = memory_client(old := app_with(cron("*/10 * * * *", name="s", missed=missed)))
    new = app_with(cron("5-55/10 * * * *", name="s", missed=missed))
    async with working(old, client):
        await trio.sleep(1.1 * UNIT)
    await trio.sleep(5.5 * UNIT)
    async with working(new, client):
        await trio.sleep(UNIT)
        assert units_of(await fired(client)) == [1, 7.5], (
            "nothing of the old one's is made up for"
        )
        async with working(old, client):  # as in the middle of a deploy
            await trio.sleep(UNIT)
        await trio.sleep(UNIT)
    assert units_of(await fired(client)) == [1, 7.5, 8, 8.5, 9.5]
    [row] = await client.cron.list()
    assert row.expression == "5-55/10 * * * *", "what is left says what it is"


async def test_an_orphan_is_told_and_can_be_removed() -> None:
    client = memory_client(app := app_with(cron("*/10 * * * *", name="old")))
    other = app_with(cron("*/10 * * * *", name="new"))
    async with working(app, client):
        await trio.sleep(1.1 * UNIT)
        assert not (await client.cron.get("old")).orphaned
    async with working(other, client):
        await trio.sleep(600)
        assert [(row.name, row.orphaned) for row in await client.cron.list()] == [
            ("new", False),
            ("old", True),
        ]
        await client.cron.remove("old")
        await trio.sleep(UNIT)
        assert [row.name for row in await client.cron.list()] == ["new"]
    assert units_of(await fired(client, "old")) == [1]


async def test_one_that_is_removed_while_a_worker_has_it_comes_back_as_new() -> None:
    client = memory_client(app := app_with(cron("*/10 * * * *", name="s")))
    async with working(app, client):
        await trio.sleep(1.1 * UNIT)
        await client.cron.remove("s")
        await trio.sleep(UNIT)
        row = await client.cron.get("s")
    assert (row.fires, row.orphaned) == (1, False)
    assert units_of(await fired(client)) == [1, 2]


@pytest.mark.parametrize("missed", awa.MissedFires)
async def test_a_paused_schedule_fires_by_hand_only_and_goes_on_from_when_it_is_resumed(
    missed: awa.MissedFires,
) -> None:
    client = memory_client(app := app_with(cron("*/10 * * * *", name="s", missed=missed)))
    async with working(app, client):
        await trio.sleep(1.1 * UNIT)
        await client.cron.pause("s")
        await trio.sleep(3 * UNIT)
        [answer] = await client.cron.trigger("s")
        assert answer.inserted
        await client.cron.resume("s")
        await trio.sleep(UNIT)
        row = await client.cron.get("s")
    assert [round(at, 2) for at in units_of(await fired(client))] == [1, 4.1, 5]
    assert row.fires == 2, "a trigger is none of its instants"


async def test_one_whose_job_still_waits_is_fired_for_without_another() -> None:
    app = app_with(cron("* * * * *", unique_opts={"states": 7}), seconds=150)
    client = memory_client(app)
    async with working(app, client):
        await trio.sleep(601)
        [row] = await client.cron.list()
        assert row.fires == 10
        assert row.fired_for == EPOCH + timedelta(minutes=10)
        minutes = [(at - EPOCH).total_seconds() / 60 for at in await fired(client)]
    assert minutes == [1, 4, 7, 10]


async def test_a_function_makes_the_jobs_of_its_instant() -> None:
    app = app_with()
    fires: list[awa.Fire] = []

    @app.cron("30 2,3 * * *", timezone="Europe/Paris", queue="slow")
    def per_tenant(fire: awa.Fire) -> list[object] | None:
        fires.append(fire)
        if len(fires) == 2:
            return None
        return [Tick(1), awa.EnqueueRequest(Tick(2), run_at=fire.at + timedelta(hours=9))]

    client = memory_client(app)
    async with working(app, client, queues=["nothing"]):
        await trio.sleep(2.6 * HOUR)
        jobs = await client.jobs.list()
        row = await client.cron.get("per_tenant")
    at = datetime(2026, 1, 1, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
    assert fires == [
        awa.Fire("per_tenant", at),
        awa.Fire("per_tenant", at + timedelta(hours=1)),
    ]
    assert fires[0].at.tzinfo == ZoneInfo("Europe/Paris")
    assert sorted((job.args_json["n"], job.queue) for job in jobs) == [
        (1, "slow"),
        (2, "default"),
    ]
    assert {job.scheduled_for for job in jobs} == {at}
    assert {job.run_at for job in jobs if job.args_json["n"] == 2} == {at + timedelta(hours=9)}
    assert row.fires == 1, "the second had nothing to do"
    assert row.cursor == at + timedelta(hours=1)


async def test_a_function_that_raises_is_told_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = app_with(cron("* * * * *", name="beside"))
    tries: list[datetime] = []

    @app.cron("*/10 * * * *")
    def fails(fire: awa.Fire) -> object:
        tries.append(fire.at)
        if len(tries) < 3:
            raise ValueError("the tenants are out")
        return Tick()

    client = memory_client(app)
    async with working(app, client):
        await trio.sleep(UNIT + 10)
        row = await client.cron.get("fails")
        assert row.error is not None
        assert "ValueError: the tenants are out" in row.error
        assert row.cursor < EPOCH + timedelta(seconds=UNIT)
        await trio.sleep(90)
        row = await client.cron.get("fails")
        assert len(await fired(client, "beside")) == 11, "others go on"
    assert tries == [EPOCH + timedelta(seconds=UNIT)] * 3
    assert units_of(await fired(client, "fails")) == [1]
    assert (row.error, row.fires) == (None, 1)
    [said] = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert said.startswith("schedule fails could not be fired")


@pytest.mark.parametrize("missed", ["coalesce", "skip"])
async def test_a_queue_that_is_drained_for_hours_is_one_line_of_the_log(
    missed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of two workers; and one more when it is drained again."""
    caplog.set_level(logging.INFO, "awa_trio.worker")
    app = app_with(cron("* * * * *", queue="retired", missed=missed, tolerance=10))
    client = memory_client(app)
    async with working(app, client), working(app, client):
        for _ in range(2):
            await client.queues.drain("retired")
            await trio.sleep(UNIT + 20)
            [row] = await client.cron.list()
            assert "queue retired is being drained" in str(row.error)
            await client.queues.resume("retired")
            await trio.sleep(UNIT - 20)
            [row] = await client.cron.list()
            assert row.error is None
    said = [r.getMessage() for r in caplog.records if r.name == "awa_trio.worker"]
    refused = [text for text in said if "could not be fired" in text]
    refusal = (
        "schedule tick could not be fired, and is tried again every 30 s:"
        " queue retired is being drained"
    )
    assert refused == [refusal] * 2
    assert said.count("schedule tick fires again") == 2
    if missed == "coalesce":
        assert len([text for text in said if "missed instants" in text]) == 2


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (object(), "InvalidRequest"),
        (awa.EnqueueRequest({}, kind="nobody"), "UnknownKind"),
        (awa.EnqueueRequest(Tick(), priority=9), "InvalidRequest"),
        ([Tick()] * 1001, "InvalidRequest: schedule 'makes' made 1,001 jobs"),
    ],
)
async def test_what_no_job_can_be_is_told_too(made: object, problem: str) -> None:
    app = app_with()

    @app.periodic(60)
    def makes(fire: awa.Fire) -> object:
        return made

    client = memory_client(app)
    async with working(app, client):
        await trio.sleep(61)
        [row] = await client.cron.list()
    assert row.error is not None
    assert problem in row.error
    assert await fired(client) == []


async def test_observers_are_told_of_the_jobs() -> None:
    class Watching(awa.Observer):
        def __init__(self) -> None:
            self.enqueued: list[events.Enqueued] = []

        def observe(self, event: events.Event) -> None:
            if isinstance(event, events.Enqueued):
                self.enqueued.append(event)

    watching = Watching()
    client = memory_client(app := app_with(cron("* * * * *")))
    async with working(app, client, observers=[watching]):
        await trio.sleep(121)
        ids = sorted(job.id for job in await client.jobs.list())
    assert [(i.kind, i.id) for event in watching.enqueued for i in event.jobs] == [
        ("tick", job_id) for job_id in ids
    ]


async def test_a_handler_reads_its_instant_at_every_attempt() -> None:
    app = awa.App()
    seen: list[tuple[str | None, datetime | None, dict[str, Any]]] = []

    @app.cron("10 0 * * *", name="nightly", metadata={"who": "me"})
    @app.task(backoff=lambda attempt: 60.0)
    async def report(job: awa.Job[Tick]) -> None:
        seen.append((job.schedule, job.scheduled_for, job.metadata))
        if len(seen) < 2:
            raise ValueError

    client = memory_client(app)
    async with working(app, client):
        await client.enqueue(Tick())
        await trio.sleep(1.5 * UNIT)
    at = EPOCH + timedelta(seconds=UNIT)
    assert seen[0] == (None, None, {})
    assert seen[-1] == ("nightly", at, {"who": "me"})


async def test_a_second_of_many_schedules_costs_a_leader_little() -> None:
    """Fifty that are due at once all fire, within the second."""
    app = app_with(*[cron("* * * * *", name=f"s{n}") for n in range(50)])
    client = memory_client(app)
    async with working(app, client), working(app, client):
        await trio.sleep(181)
        jobs = await client.jobs.list(limit=1000)
    assert len(jobs) == 150
    assert len({(job.schedule, job.scheduled_for) for job in jobs}) == 150
    late = [job.created_at - job.scheduled_for for job in jobs if job.scheduled_for]
    assert max(late) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("zone", "day", "expected"),
    [
        ("Europe/Paris", "2026-03-29", "03:00:00+02:00"),
        ("Europe/Paris", "2026-10-25", "02:30:00+02:00"),
    ],
)
async def test_a_change_of_the_clock_is_fired_for_once(
    zone: str, day: str, expected: str
) -> None:
    """procrastinate#1472, graphile/worker#334, node-cron#563, croner#286: 02:30 on both days."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    await trio.sleep((start - EPOCH).total_seconds() + 1.9 * HOUR)
    client = memory_client(app := app_with(cron("30 2 * * *", timezone=zone)))
    async with working(app, client), working(app, client):
        await trio.sleep(1.8 * HOUR)
    shown = [at.astimezone(ZoneInfo(zone)).isoformat() for at in await fired(client)]
    assert shown == [f"{day}T{expected}"]

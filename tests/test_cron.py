"""Schedules, as users register them and as operators see them."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._app.app import registry_of
from awa_trio._core.cron import Policy
from awa_trio._core.schedules import Definition
from awa_trio.testing import HandlerJob, drain, memory_client

from .engines import ENGINES, client_on


@frozen
class Report:
    day: int = 1


@frozen
class Needs:
    day: int


async def report(job: awa.Job[Report]) -> None: ...


async def needs(job: awa.Job[Needs]) -> None: ...


async def anything(job: awa.Job[dict[str, Any]]) -> None: ...


def an_app() -> awa.App:
    app = awa.App()
    app.task(report)
    app.task(needs)
    app.task(kind="anything")(anything)
    return app


def registered(app: awa.App) -> Any:
    [schedule] = registry_of(app).schedules.values()
    return schedule


def test_a_schedule_on_a_task_enqueues_it_with_its_defaults() -> None:
    app = an_app()
    assert app.cron("0 9 * * *", timezone="Pacific/Auckland", priority=1)(report) is report
    made = registered(app)
    assert (made.name, made.kind, made.policy) == ("report", "report", Policy())
    assert app.schedules == ("report",)
    fire = awa.Fire("report", datetime(2026, 1, 1, tzinfo=UTC))
    [job] = registry_of(app).jobs_of(made, fire)
    assert (job.kind, job.args, job.priority) == ("report", b'{"day":1}', 1)
    assert job.metadata == b'{"awa:cron":"report","awa:cron_at":"2026-01-01T00:00:00+00:00"}'


@pytest.mark.parametrize(
    ("handler", "options", "args"),
    [
        (needs, {"args": Needs(3)}, b'{"day":3}'),
        (report, {"args": awa.EnqueueRequest(Report(4), queue="slow")}, b'{"day":4}'),
        (anything, {}, b"{}"),
        (anything, {"args": {"a": 1}}, b'{"a":1}'),
        (lambda fire: Needs(fire.at.day), {"name": "f"}, b'{"day":2}'),
        (functools.partial(lambda n, fire: Needs(n), 7), {"name": "f"}, b'{"day":7}'),
        (lambda fire: {"b": 2}, {"name": "f", "kind": "anything"}, b'{"b":2}'),
    ],
)
def test_the_arguments_are_those_given_or_what_a_function_returns(
    handler: Any, options: dict[str, Any], args: bytes
) -> None:
    app = an_app()
    app.periodic(timedelta(hours=1), **options)(handler)
    fire = awa.Fire("x", datetime(2026, 1, 2, tzinfo=UTC))
    [job] = registry_of(app).jobs_of(registered(app), fire)
    assert job.args == args


def test_one_task_may_have_several_schedules() -> None:
    app = an_app()
    app.cron("0 9 * * *", name="morning")(report)
    app.periodic(60, name="often")(report)
    assert app.schedules == ("morning", "often")


async def naked(job: awa.Job[Report]) -> None: ...


@pytest.mark.parametrize(
    ("function", "given", "problem"),
    [
        (report, {"name": "taken"}, "schedule 'taken' is registered twice"),
        (naked, {}, "naked is no task of this app yet: put @app.cron or @app.periodic above"),
        (needs, {}, "the arguments of kind 'needs' cannot be made without values"),
        (needs, {"args": Report(1)}, "is for kind 'needs', and its arguments"),
        (
            report,
            {"args": awa.EnqueueRequest(Report(1)), "queue": "q"},
            "brings its own options",
        ),
        (report, {"args": object()}, "schedule 'report': "),
        (report, {"kind": "other"}, "leave it out"),
        (report, {"priority": 0}, "priority: give a whole number"),
        (report, {"run_at": datetime.now(UTC)}, "run_at: the jobs of a schedule start"),
        (report, {"prioriti": 0}, "did you mean 'priority'"),
        (report, {"name": ""}, "name: give 1 to 200 characters"),
        (report, {"name": "n" * 201}, "name: give 1 to 200 characters"),
        (report, {"name": "a\x00"}, "name: U\\+0000"),
        (report, {"missed": "all"}, "missed"),
        (report, {"missed": None}, "missed"),
        (report, {"catch_up": 0}, "catch_up: give a whole number from 1 to 10,000"),
        (report, {"tolerance": -1}, "tolerance: give 0 to"),
        (report, {"tolerance": float("nan")}, "tolerance: give 0 to"),
        (lambda: Report(), {}, "is called with a Fire"),
        (lambda a, b: Report(), {}, "is called with a Fire"),
        (lambda fire: Report(), {"args": Report()}, "makes the arguments itself"),
        (lambda fire: (yield), {}, "is a generator"),
        (lambda fire: Report(), {"priority": 0}, "priority: give a whole number"),
        ("report", {}, "not on a value: str"),
        (None, {}, "not on a value: None"),
    ],
)
def test_what_makes_no_schedule_is_said_in_one_sentence(
    function: Any, given: dict[str, Any], problem: str
) -> None:
    app = an_app()
    app.cron("0 0 * * *", name="taken")(report)
    with pytest.raises(awa.ConfigurationError, match=problem) as caught:
        app.cron("0 9 * * *", **given)(function)
    assert "\n" not in str(caught.value)
    assert app.schedules == ("taken",)


def test_a_task_of_another_app_is_none_of_this_one() -> None:
    other = awa.App()
    with pytest.raises(awa.ConfigurationError, match="no task of this app"):
        other.cron("0 9 * * *")(report)


DEFINITIONS = [
    Definition("nightly", "0 3 * * *", "Europe/Paris", "report", "coalesce"),
    Definition("often", "every 60 s", None, None, "skip"),
]


@pytest.mark.parametrize("engine", ENGINES)
async def test_operators_see_pause_trigger_and_remove_schedules(
    engine: str, request: pytest.FixtureRequest
) -> None:
    app = an_app()
    app.cron("0 3 * * *", timezone="Europe/Paris", name="nightly", queue="slow")(report)

    @app.periodic(60)
    def often(fire: awa.Fire) -> list[Report] | None:
        assert fire.triggered
        return [Report(5), Report(6)]

    async with client_on(engine, request, app) as client:
        assert await client.cron.list() == []
        await client._backend.store.register_schedules(DEFINITIONS)
        nightly, found = await client.cron.list()
        assert (nightly.name, found.name) == ("nightly", "often")
        assert nightly.next_at is not None
        assert nightly.next_at.astimezone(UTC).minute == 0
        assert timedelta(0) < nightly.next_at - nightly.now <= timedelta(days=1, hours=1)
        assert found.next_at == found.since + timedelta(seconds=60)

        await client.cron.pause("nightly")
        await client.cron.pause("nightly")
        assert (await client.cron.get("nightly")).paused
        [made] = await client.cron.trigger("nightly")
        job = await client.jobs.get(made.id)
        assert (job.schedule, job.queue, job.args_json) == ("nightly", "slow", {"day": 1})
        assert job.scheduled_for is not None
        assert abs(job.scheduled_for - job.created_at) < timedelta(seconds=30)
        assert job.metadata == {}
        await client.cron.resume("nightly")
        assert not (await client.cron.get("nightly")).paused
        assert (await client.cron.get("nightly")).fires == 0
        assert len(await client.cron.trigger("often")) == 2
        assert len(await drain(app, client)) == 3

        await client.cron.remove("often")
        for call in (
            client.cron.remove,
            client.cron.get,
            client.cron.pause,
            client.cron.resume,
        ):
            with pytest.raises(awa.ScheduleNotFound, match="there is no schedule 'often'"):
                await call("often")
        with pytest.raises(awa.ScheduleNotFound, match="did you mean 'nightly'") as caught:
            await client.cron.pause("nigthly")
        assert (caught.value.name, caught.value.nearest) == ("nigthly", ["nightly"])
        with pytest.raises(awa.ScheduleNotFound, match="did you mean 'nightly'"):
            await client.cron.trigger("nigthly")
        for name, error in ((5, TypeError), ("", ValueError), ("\x00", ValueError)):
            with pytest.raises(error, match="name: "):
                await client.cron.trigger(name)  # type: ignore[arg-type]


async def test_to_trigger_takes_an_app() -> None:
    client = memory_client()
    with pytest.raises(awa.ConfigurationError, match="takes the app that has it"):
        await client.cron.trigger("nightly")


async def test_what_a_function_raises_comes_out_of_a_trigger() -> None:
    app = an_app()

    @app.periodic(60)
    def often(fire: awa.Fire) -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await memory_client(app).cron.trigger("often")


def test_a_row_of_another_release_has_no_next_instant() -> None:
    """The expression is whatever the newest worker wrote."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    row = awa.ScheduleRow(
        "s", "when the moon is full", "Europe/Paris", None, "x", now, now, 0, None, None, None,
        None, now, None, now,
    )  # fmt: skip
    assert row.next_at is None
    assert row.upcoming() == []


def test_what_is_coming_is_on_the_clock_of_the_zone() -> None:
    now = datetime(2026, 3, 28, 12, tzinfo=UTC)
    row = awa.ScheduleRow(
        "s", "30 2 * * *", "Europe/Paris", None, "x", now, now - timedelta(days=9), 0, None, None,
        None, now, now, None, now,
    )  # fmt: skip
    assert row.next_at is None, "it is paused"
    assert [at.isoformat() for at in row.upcoming(2)] == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert row.upcoming(0) == []


async def test_a_handler_is_tested_with_an_instant() -> None:
    at = datetime(2026, 3, 29, 3, tzinfo=ZoneInfo("Europe/Paris"))
    job = HandlerJob(Report(), kind="report", scheduled_for=at, metadata={"a": 1})
    assert (job.schedule, job.scheduled_for, job.metadata) == ("report", at, {"a": 1})
    assert HandlerJob(Report()).scheduled_for is None


@pytest.mark.parametrize(
    "metadata",
    [
        b'{"awa:cron": 1, "awa:cron_at": 2}',
        b'{"awa:cron_at": "yesterday"}',
        b'{"awa:cron_at": "2026-01-01"}',
        b"{",
    ],
)
async def test_what_sql_has_made_up_is_no_instant(metadata: bytes) -> None:
    client = memory_client(an_app())
    made = await client.enqueue(Report())
    job = await client.jobs.get(made.id)
    job.raw_metadata = metadata
    assert (job.schedule, job.scheduled_for) == (None, None)
    await trio.lowlevel.checkpoint()

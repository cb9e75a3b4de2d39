"""What has happened to jobs step by step, as plots need it, on every engine."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from attrs import frozen

import awa_trio as awa
from awa_trio._core.history import history
from awa_trio.testing import drain, memory_client

from .engines import ENGINES, client_on

app = awa.App()


@frozen
class Try:
    luck: bool


@app.task(max_attempts=1)
async def attempt(job: awa.Job[Try]) -> None:
    if not job.args.luck:
        raise ValueError("no luck")


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


async def wait_for_the_next_step(client: awa.Client) -> awa.History:
    """Look until the present step is over."""
    present = math.floor((await client.activity()).at.timestamp())
    while True:
        seen = await client.history(60, step=1)
        if seen.steps and seen.steps[-1].number >= present:
            return seen


async def test_jobs_are_counted_in_the_step_they_ended_in(client: awa.Client) -> None:
    began = math.floor((await client.activity()).at.timestamp())
    await client.enqueue_many([Try(True), Try(False), Try(True)])
    doomed = await client.enqueue(Try(True))
    await client.jobs.cancel(doomed.id, without_follow_ups=True)
    await drain(app, client)
    seen = await wait_for_the_next_step(client)
    numbers = [step.number for step in seen.steps]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert 58 <= len(numbers) <= 60
    mine = [step for step in seen.steps if step.number >= began]
    assert sum(step.completed for step in mine) == 2
    assert sum(step.failed for step in mine) == 1
    assert sum(step.cancelled for step in mine) == 1
    for step in seen.steps:
        assert (step.pickup is None) == (step.completed == 0) == (step.run is None)
        if step.pickup is not None:
            assert 0 <= step.pickup.p50 <= step.pickup.p95 < 60
        began_at = seen.begins(step)
        assert began_at.timestamp() == step.number
        assert began_at + timedelta(seconds=1) <= seen.at


async def test_where_more_ended_than_can_be_looked_at_the_past_is_left_out(
    client: awa.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.enqueue_many([Try(True)] * 3)
    await drain(app, client)
    whole = await wait_for_the_next_step(client)
    await client.enqueue_many([Try(True)] * 4)
    await drain(app, client)
    monkeypatch.setattr("awa_trio._app.workers.LOOKED_BACK_AT", 4)
    last = await wait_for_the_next_step(client)
    assert len(last.steps) < len(whole.steps)
    # A step of which some is not known is none at all: it would be drawn too small.
    assert sum(step.completed for step in last.steps) <= 4


@pytest.mark.parametrize(
    ("seconds", "step", "error"),
    [(0, 1, ValueError), (3601, 1, ValueError), (60, 0.5, ValueError), ("60", 1, TypeError),
     (60, True, TypeError), (float("nan"), 1, ValueError), (60, float("nan"), ValueError)],
)  # fmt: skip
async def test_what_cannot_be_looked_at(
    seconds: float, step: float, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await memory_client(app).history(seconds, step=step)


async def test_a_reader_may_look(migrated: str, awa_server: str) -> None:
    """It reads what activity reads, with the same rights."""
    with psycopg.connect(migrated, autocommit=True) as connection:
        [(engine,)] = connection.execute("SELECT awa.engine()").fetchall()
        script = awa.grants_script("reader", role="plots_reader", engine=engine)
        connection.execute("DROP ROLE IF EXISTS plots_reader")
        connection.execute("CREATE ROLE plots_reader LOGIN")
        try:
            connection.execute(script.encode())
            connection.execute("SET ROLE plots_reader")
            assert connection.execute("SELECT * FROM awa.history(60, 5, 100)").fetchall()
            connection.execute("RESET ROLE")
        finally:
            connection.execute("DROP OWNED BY plots_reader")
            connection.execute("DROP ROLE plots_reader")


AT = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)


def test_steps_that_are_not_over_or_not_wholly_known_are_left_out() -> None:
    number = math.floor(AT.timestamp() / 5)
    some = awa.Step(number - 2, 3, 0, 0, None, None)
    present = awa.Step(number, 9, 0, 0, None, None)
    seen = history(AT, AT - timedelta(seconds=16), 5, [present, some])
    assert [(s.number, s.completed) for s in seen.steps] == [
        (number - 2, 3),
        (number - 1, 0),
    ]
    # Asked for less than a step, there is none.
    assert history(AT, AT - timedelta(seconds=3), 5, [present]).steps == ()

"""What a program gives us to store: stored to the letter, or refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.testing import drain, work_one
from tests.engines import ENGINES, client_on

from .nasty import Rude, anything, text

#: Cases of each test: in the default run, and with -m slow.
SEEDS = [
    pytest.param(1, 60, id="seed1"),
    *(pytest.param(n, 300, id=f"seed{n}", marks=pytest.mark.slow) for n in range(2, 6)),
]


@frozen
class Free:
    value: Any


app = awa.App()
seen: list[Any] = []


@app.task(max_attempts=1)
async def free(job: awa.Job[Free]) -> None:
    seen.append(job.args.value)


#: What a test has its jobs do.
acting: list[Callable[[awa.Job[Any]], Awaitable[object]]] = []


@frozen
class Act:
    pass


@app.task(queue="act", max_attempts=1)
async def act(job: awa.Job[Act]) -> object:
    return await acting[-1](job)


@pytest.fixture(params=list(ENGINES))
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        seen.clear()
        yield client


#: Each option of enqueue(), and something it takes.
OPTIONS: dict[str, Callable[[Random], Any]] = {
    "queue": text,
    "kind": text,
    "priority": anything,
    "max_attempts": anything,
    "tags": lambda chance: chance.choice(
        ([text(chance)], [text(chance)] * 21, anything(chance))
    ),
    "metadata": lambda chance: chance.choice(
        ({text(chance): anything(chance)}, anything(chance))
    ),
    "run_at": anything,
    "unique_opts": lambda chance: chance.choice(({}, {text(chance): anything(chance)})),
    "ordering_key": text,
    "limit_key": text,
    "deadline": anything,
}


async def refused_or_done(what: Callable[[], Awaitable[object]]) -> object:
    """Do something; None if it was refused as it should be.

    Refused is: an error of ours, or a TypeError or ValueError, in a sentence that can be read.
    """
    try:
        with trio.fail_after(60):
            return await what()
    except UnicodeError:
        raise
    except (awa.AwaError, TypeError, ValueError) as error:
        message = str(error)
        assert 3 < len(message) < 2000, message[:3000]
        message.encode()
        assert "\0" not in message
        return None


@pytest.mark.parametrize(("seed", "cases"), SEEDS)
async def test_arguments_and_options(client: awa.Client, seed: int, cases: int) -> None:
    chance = Random(seed)
    stored: dict[int, tuple[Any, dict[str, Any]]] = {}
    for case in range(cases):
        value = anything(chance)
        options: dict[str, Any] = {
            name: make(chance) for name, make in OPTIONS.items() if chance.random() < 0.1
        }
        found = await refused_or_done(partial(client.enqueue, Free(value), **options))
        if found is not None:
            assert isinstance(found, awa.Enqueued), case
            if found.inserted:
                stored[found.id] = value, options
    assert stored
    assert len(stored) < cases
    for job_id, (value, options) in stored.items():
        job = await client.jobs.get(job_id)
        assert job.queue == options.get("queue", "default")
        assert job.ordering_key == options.get("ordering_key")
        assert job.limit_key == options.get("limit_key")
        if options.get("tags") is not None:
            assert list(job.tags) == list(options["tags"])
        if options.get("metadata") is not None:
            assert job.metadata == options["metadata"]
        assert same(json.loads(job.raw_args)["value"], value)


def same(stored: Any, given: Any) -> bool:
    """Whether what JSON has is what was given, by the codec's rules."""
    if isinstance(given, dict):
        return stored.keys() == given.keys() and all(same(stored[k], given[k]) for k in given)
    if isinstance(given, (list, tuple)):
        return len(stored) == len(given) and all(map(same, stored, given))
    if given is None or type(given) in (str, int, float, bool):
        return type(stored) is type(given) and stored == given
    return True


@pytest.mark.parametrize(("seed", "cases"), SEEDS)
async def test_handlers_get_what_was_enqueued(
    client: awa.Client, seed: int, cases: int
) -> None:
    chance = Random(seed)
    given: list[Any] = []
    for _ in range(cases // 4):
        value = anything(chance)
        if await refused_or_done(partial(client.enqueue, Free(value))) is not None:
            given.append(value)
    worked = await drain(app, client)
    assert len(worked) == len(given)
    # None has been lost: each has completed, or says why not.
    for one in worked:
        assert one.job.state is awa.JobState.COMPLETED or one.job.errors
    completed = [one for one in worked if one.job.state is awa.JobState.COMPLETED]
    assert len(completed) == len(seen)
    for one, value in zip(completed, seen, strict=True):
        assert same(json.loads(one.job.raw_args)["value"], value)


class Angry(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message either")


@pytest.mark.parametrize(("seed", "cases"), SEEDS)
async def test_what_handlers_say(client: awa.Client, seed: int, cases: int) -> None:
    """Errors, progress, outputs, follow-ups and results: one attempt each, and it is over."""
    chance = Random(seed)
    refusals = 0

    async def say(job: awa.Job[Any]) -> object:
        nonlocal refusals
        acts: list[Callable[[], object]] = [
            lambda: job.progress.set(message=text(chance)),
            lambda: job.progress.set(percent=anything(chance)),
            lambda: job.progress.set(metadata={text(chance): anything(chance)}),
            lambda: job.set_output(anything(chance)),
        ]
        for one in chance.sample(acts, 2):
            try:
                one()
            except UnicodeError:
                raise
            except (awa.AwaError, TypeError, ValueError) as error:
                refusals += 1
                str(error).encode()
        match chance.randrange(7):
            case 0:
                raise ValueError(text(chance))
            case 1:
                raise Angry
            case 2:
                raise awa.TerminalError(text(chance))
            case 3:
                return awa.Cancel(text(chance))
            case 4:
                job.enqueue_on_completion(Free(anything(chance)), queue="none")
            case 5:
                raise ExceptionGroup(text(chance), [ValueError(text(chance)), Angry()])
            case _:
                return anything(chance)
        return None

    acting.append(say)
    for _ in range(cases // 2):
        enqueued = await client.enqueue(Act())
        worked = await work_one(app, client, queue="act")
        assert worked is not None
        job = await client.jobs.get(enqueued.id)
        assert job.state in (
            awa.JobState.COMPLETED,
            awa.JobState.FAILED,
            awa.JobState.CANCELLED,
        ), job.state
        if job.state is awa.JobState.FAILED:
            assert 0 < len(job.errors[-1].error) < 20_000
    assert refusals


@pytest.mark.parametrize(("seed", "cases"), SEEDS)
async def test_payloads_of_callbacks(client: awa.Client, seed: int, cases: int) -> None:
    chance = Random(seed)

    async def park(job: awa.Job[Any]) -> object:
        if job.last_callback is not None:
            assert same(job.last_callback.payload, given[-1])
            return None
        return awa.WaitForCallback(await job.register_callback())

    given: list[object] = []
    acting.append(park)
    for _ in range(max(1, cases // 10)):
        enqueued = await client.enqueue(Act())
        await work_one(app, client, queue="act")
        token = (await client.jobs.get(enqueued.id)).callback_token
        assert token is not None
        for _ in range(10):
            bad: Any = anything(chance)
            fail: Any = client.callbacks.fail
            for act in (
                partial(client.callbacks.resume, bad),
                partial(fail, token, 7 if isinstance(bad, str) else bad),
                partial(client.callbacks.heartbeat, token, float("nan")),
                partial(client.callbacks.complete, text(chance), without_follow_ups=True),
            ):
                assert await refused_or_done(act) is None
            given.append(anything(chance))
            if await refused_or_done(partial(client.callbacks.resume, token, given[-1])):
                worked = await work_one(app, client, queue="act")
                assert worked is not None
                assert worked.job.state is awa.JobState.COMPLETED, worked.job.errors
                break
            given.pop()


async def test_unreadable_arguments_do_not_stop_what_is_readable(client: awa.Client) -> None:
    """What cannot be represented is refused before anything of the same call is sent."""
    good, bad = Free(1), Free(Rude())
    assert await refused_or_done(lambda: client.enqueue_many([good, bad, good])) is None
    assert await client.jobs.list() == []
    assert len(await client.enqueue_many([good, good])) == 2

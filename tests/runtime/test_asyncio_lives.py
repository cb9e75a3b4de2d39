"""Random programs that go in and out of asyncio, cancelled, cut and shut down at random.

Whatever they do, every job ends in a state that its handler could have brought about, follow-ups are
there for those that completed and for no others, and the worker ends with nothing to complain of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio import aio
from awa_trio.testing import memory_client

from .rig import Next, Work

S = awa.JobState


class Boom(Exception):
    """What goes wrong in these programs."""


class Program:
    """Two functions, of Trio's and of asyncio's, that call each other and do what chance says."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self._of_trio: list[tuple[int, Callable[[int], Awaitable[object]]]] = [
            (6, lambda depth: trio.sleep(self.seconds())),
            (2, self._fail),
            (6, self._bounded),
            (3, self._side_by_side),
            (3, self._held),
        ]
        self._of_asyncio: list[tuple[int, Callable[[int], Awaitable[object]]]] = [
            (6, lambda depth: asyncio.sleep(self.seconds())),
            (1, self._fail),
            (1, self._cancelled),
            (1, self._swallow),
            (1, lambda depth: trio.sleep(1)),
            (1, self._nursery_in_asyncio),
            (3, self._timed),
            (3, self._grouped),
            (1, self._left_behind),
            (1, self._bad_callback),
        ]

    def seconds(self) -> float:
        return self.chance.random() * 3

    async def on_trio(self, depth: int) -> None:
        await self._some(self._of_trio, depth)

    async def on_asyncio(self, depth: int) -> None:
        await self._some(self._of_asyncio, depth)

    async def _some(self, steps: list[Any], depth: int) -> None:
        for _ in range(self.chance.randrange(3) if depth else 0):
            [(_, step)] = self.chance.choices(steps, [weight for weight, _ in steps])
            await step(depth - 1)

    async def _fail(self, depth: int) -> None:
        raise Boom

    async def _bounded(self, depth: int) -> None:
        with trio.move_on_after(self.seconds()):
            await aio.run(self.on_asyncio, depth)

    async def _side_by_side(self, depth: int) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(aio.run, self.on_asyncio, depth)
            nursery.start_soon(self.on_trio, depth)

    async def _held(self, depth: int) -> None:
        async with aio.opened(self._manager(depth)):
            await self.on_trio(depth)

    @asynccontextmanager
    async def _manager(self, depth: int) -> AsyncIterator[None]:
        await self.on_asyncio(depth)
        try:
            async with asyncio.timeout(self.seconds()):
                yield
        finally:
            await asyncio.sleep(self.seconds())

    async def _cancelled(self, depth: int) -> None:
        if self.chance.random() < 0.5:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def _swallow(self, depth: int) -> None:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            pass

    async def _nursery_in_asyncio(self, depth: int) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            await asyncio.sleep(1)

    async def _timed(self, depth: int) -> None:
        try:
            async with asyncio.timeout(self.seconds()):
                await aio.trio(self.on_trio, depth)
        except TimeoutError:
            pass

    async def _grouped(self, depth: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.on_asyncio(depth))
            group.create_task(self.on_asyncio(depth))

    async def _left_behind(self, depth: int) -> None:
        asyncio.create_task(self.on_asyncio(depth))  # noqa: RUF006

    async def _bad_callback(self, depth: int) -> None:
        asyncio.get_running_loop().call_later(self.seconds(), self.chance.choice, ())


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 2000, 40))],
)
async def test_whatever_they_do_the_books_are_right(first: int) -> None:
    for seed in range(first, first + 40):
        await live(seed)


async def live(seed: int) -> None:
    chance = Random(seed)
    program = Program(chance)
    app = awa.App()
    options: Any = {"deadline": 5, "max_attempts": 3, "backoff": lambda attempt: 1}

    @app.task(kind="on_asyncio", asyncio=True, **options)
    async def on_asyncio(job: awa.Job[Work]) -> None:
        await program.on_asyncio(4)
        job.enqueue_on_completion(Next(job.id))

    @app.task(kind="on_trio", args=dict, **options)
    async def on_trio(job: awa.Job[dict[str, Any]]) -> None:
        await program.on_trio(4)
        job.enqueue_on_completion(Next(job.id))

    app.declare(Next, queue="next")
    client = memory_client(app)
    ids = [
        (await client.enqueue({"n": 0}, kind=kind)).id for kind in ("on_asyncio", "on_trio") * 3
    ]
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        match chance.randrange(3):
            case 0:
                await trio.sleep(5 * chance.random())
                nursery.cancel_scope.cancel()
            case 1:
                await trio.sleep(5 * chance.random())
            case _:
                with trio.move_on_after(100):
                    for job_id in ids:
                        await client.jobs.wait(job_id)
        worker.stop()
    completed = set()
    for job_id in ids:
        job = await client.jobs.get(job_id)
        assert job.state not in (S.RUNNING, S.WAITING_EXTERNAL), seed
        if job.state is S.COMPLETED:
            completed.add(job_id)
        for error in job.errors:
            # Theirs, and ours; none of Trio's, of asyncio's or of this package's inside.
            said = error.error.splitlines()[0].split(":")[0].split(".")[-1]
            assert said in (
                "Boom",
                "WrongEventLoop",
                "RuntimeError",
                "DeadlineExceeded",
                "TimeoutError",
            ), (seed, error)
    assert {job.args_json["n"] for job in await client.jobs.list(kind="next")} == completed, (
        seed
    )

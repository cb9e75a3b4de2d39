"""Where asyncio runs, or nothing does: what works, and what says that it needs Trio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import Listener, TrioConnection, dev_server
from awa_trio.testing import drain, memory_client, work_one

S = awa.JobState
app = awa.App()


@frozen
class Work:
    n: int = 0


@app.task()
async def work(job: awa.Job[Work]) -> None: ...


Call = Callable[[awa.Client], Awaitable[object]]

NEEDS_TRIO = "{} needs Trio, and asyncio is running; start it with trio.run(...)."

CALLS: list[tuple[str, Call]] = [
    ("run_worker", lambda client: awa.run_worker(app, client)),
    ("work_one", lambda client: work_one(app, client)),
    ("drain", lambda client: drain(app, client)),
]


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_what_runs_jobs_says_that_it_needs_trio(migrated: str, name: str, call: Call) -> None:
    async def main() -> None:
        async with awa.connect(migrated, app=app) as client:
            answer = await client.enqueue(Work())
            with pytest.raises(awa.WrongEventLoop) as caught:
                await call(client)
            assert str(caught.value).startswith(NEEDS_TRIO.format(name))
            assert "\n" not in str(caught.value)
            job = await client.jobs.get(answer.id)
            assert (job.state, job.attempt) == (S.AVAILABLE, 0)

    asyncio.run(main())


async def _nothing() -> Any:
    raise AssertionError("nothing may be opened")


def _connect() -> Coroutine[Any, Any, object]:
    return TrioConnection.connect("host=/nowhere")


def _dev_server() -> Coroutine[Any, Any, object]:
    return dev_server().__aenter__()


def _listen() -> Coroutine[Any, Any, object]:
    listener = Listener(_nothing, ["x"], lambda channel, payload: True, lambda: None)
    return listener.run(lambda: None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (_connect, "a TrioConnection works in a Trio task, but {}; use psycopg.AsyncConn"),
        (_dev_server, "dev_server() works in a Trio task, but {}; use DevServer in a thread"),
        (_listen, "a Listener works in a Trio task, but {}; start it with trio.run()"),
    ],
    ids=["connection", "dev_server", "listener"],
)
def test_so_does_what_is_trios_own_in_the_driver(
    call: Callable[[], Coroutine[Any, Any, object]], message: str
) -> None:
    async def main() -> None:
        await call()

    with pytest.raises(awa.WrongEventLoop) as caught:
        asyncio.run(main())
    assert str(caught.value).startswith(message.format("asyncio is running here"))
    with pytest.raises(awa.WrongEventLoop, match=r"no Trio task is running here; call it from"):
        call().send(None)


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_without_any_event_loop_it_is_said_as_well(name: str, call: Call) -> None:
    coroutine: Any = call(memory_client(app))
    with pytest.raises(awa.WrongEventLoop, match=r"inside trio\.run"):
        coroutine.send(None)


def test_a_client_may_not_be_taken_to_another_loop(migrated: str) -> None:
    """Its connections are Trio's, and it goes on there afterwards."""

    async def main() -> None:
        async with awa.connect(migrated, app=app) as client:
            await client.enqueue(Work())

            def elsewhere() -> None:
                async def main() -> None:
                    await client.enqueue(Work())

                asyncio.run(main())

            with pytest.raises(awa.WrongEventLoop, match="asyncio is running here"):
                await trio.to_thread.run_sync(elsewhere)
            await client.enqueue(Work())
            assert len(await client.jobs.list()) == 2

    trio.run(main)


def test_a_client_in_memory_runs_on_asyncio_too() -> None:
    """For the tests of an application that only enqueues."""

    async def main() -> None:
        client = memory_client(app)
        answer = await client.enqueue(Work(1), unique_opts={})
        assert not (await client.enqueue(Work(1), unique_opts={})).inserted
        assert (await client.jobs.get(answer.id)).args_json == {"n": 1}
        assert await client.jobs.cancel(answer.id)

    asyncio.run(main())

"""Real workers, on both engines: what they commit is what the models allow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from attrs import frozen

import awa_trio as awa

from . import Witness, check, recorded, staged


@frozen
class Work:
    """Stages a follow-up for each key, and one without; ends in its own way first."""

    n: int
    keys: list[int]
    first: str = "complete"


@frozen
class Item:
    key: int


@frozen
class Receipt:
    n: int


def make_app() -> awa.App:
    app = awa.App()
    app.declare(Receipt, queue="nobody")

    @app.task(backoff=lambda attempt: 0.01)
    async def work(job: awa.Job[Work]) -> object:
        for key in job.args.keys:
            job.enqueue_on_completion(Item(key), unique_opts={"states": 15})
        job.enqueue_on_completion(Receipt(job.args.n))
        if job.attempt == 1:
            match job.args.first:
                case "raise":
                    raise ValueError
                case "retry":
                    return awa.RetryAfter(0)
                case "fail":
                    raise awa.TerminalError("no")
                case "wait":
                    await job.wait_for_callback(await job.register_callback())
        return None

    @app.task
    async def item(job: awa.Job[Item]) -> None: ...

    return app


@asynccontextmanager
async def work_with(app: awa.App, client: awa.Client) -> AsyncIterator[None]:
    """A worker for a block."""
    async with trio.open_nursery() as nursery:
        worker: awa.Worker = await nursery.start(awa.run_worker, app, client)
        yield
        worker.stop()


async def until_done(client: awa.Client) -> None:
    """Until the work is done; its callbacks are answered, or complete their jobs, in turn."""
    with trio.fail_after(30):
        while jobs := [
            job
            for job in await client.jobs.list(kind="work", limit=1000)
            if not job.state.terminal
        ]:
            for job in jobs:
                if (
                    job.state is awa.JobState.WAITING_EXTERNAL
                    and job.callback_token is not None
                ):
                    with suppress(awa.CallbackAlreadyResolved, awa.CallbackNotFound):
                        if job.id % 2:
                            await client.callbacks.resume(job.callback_token, None)
                        else:
                            await client.callbacks.complete(job.callback_token)
            await trio.sleep(0.02)


async def test_what_workers_commit_fits(recording: str, tmp_path: Path) -> None:
    app = make_app()
    seen = tmp_path / "staged"
    async with awa.connect(recording, app=app, observers=[Witness(seen)]) as client:
        for n in range(40):
            first = ("complete", "raise", "retry", "fail", "wait")[n % 5]
            await client.enqueue(Work(n, [n % 7, n % 3], first))
        async with work_with(app, client), work_with(app, client):
            await until_done(client)
    verdict = check(recorded(recording), staged(seen))
    assert verdict.misfit is None, str(verdict)
    assert verdict.steps > 200

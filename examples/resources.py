"""A handler that two applications share, each with a client and a next stage of its own.

`resolve_url` knows neither where its HTTP client comes from nor what follows it: both are
resources, requested by the types of its parameters. AWA_DSN=... python resources.py
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol

import trio
from attrs import frozen

import awa_trio as awa


@frozen
class ResolveUrl:
    url: str


@frozen
class Item:
    title: str


class HttpClient:
    async def get_title(self, url: str) -> str:
        await trio.sleep(0.01)  # a request, say
        return url.rpartition("/")[2].title()


class NextStage(Protocol):
    """What to enqueue for an item that was found: a factory, so that the handler need not say."""

    def __call__(self, item: Item) -> awa.EnqueueRequest: ...


async def resolve_url(job: awa.Job[ResolveUrl], http: HttpClient, then: NextStage) -> None:
    job.enqueue_on_completion(then(Item(await http.get_title(job.args.url))))


async def open_client() -> AsyncIterator[HttpClient]:
    """One for the worker: opened before it claims, closed when its last attempt has ended."""
    yield HttpClient()
    print("the client is closed")


def make_app(name: str) -> awa.App:
    app = awa.App()
    app.resource(open_client)
    app.task(kind=f"{name}_resolve", queue=name)(resolve_url)

    @app.task(kind=f"{name}_item", queue=name)
    async def handle_item(job: awa.Job[Item]) -> None:
        print(f"{name}: {job.args.title}, at priority {job.priority}")

    return app


async def run(name: str, then: NextStage) -> None:
    app = make_app(name)
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:
        await nursery.start(partial(awa.run_worker, app, client, resources={NextStage: then}))
        job = await client.enqueue(ResolveUrl("https://example.com/trio"))
        await client.jobs.wait(job.id)
        for row in await client.jobs.list(kind=f"{name}_item"):
            await client.jobs.wait(row.id)
        nursery.cancel_scope.cancel()


async def main() -> None:
    await awa.migrate()
    await run("index", lambda item: awa.EnqueueRequest(item).unique())
    await run("alert", lambda item: awa.EnqueueRequest(item, priority=1))


if __name__ == "__main__":
    trio.run(main)

"""Handlers of asyncio's in a Trio worker: aiohttp, with one session for the whole worker.

Cancellation crosses over. Needs awa-trio[asyncio], aiohttp. AWA_DSN=... python asyncio_inside.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio import aio
from awa_trio.testing import drain

app = awa.App()


@frozen
class Compare:
    urls: list[str]


@frozen
class Report:
    sizes: list[int]


@asynccontextmanager
async def new_session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        yield session


@app.resource
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aio.opened(new_session()) as session:  # asyncio's, held from Trio
        yield session


@app.task(asyncio=True, deadline=30)
async def compare(job: awa.Job[Compare], session: aiohttp.ClientSession) -> None:
    async def size(url: str) -> int:
        async with session.get(url, raise_for_status=True) as response:
            return len(await response.read())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(size(url)) for url in job.args.urls]
    job.enqueue_on_completion(Report([task.result() for task in tasks]))


@app.task
async def report(job: awa.Job[Report]) -> None:
    print(f"the larger one has {max(job.args.sizes)} bytes")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A web server, as small as they get: something to fetch."""
    _, path, _ = (await reader.readuntil(b"\r\n\r\n")).split(maxsplit=2)
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + path)
    writer.close()


async def main() -> None:
    await awa.migrate()
    async with (
        aio.open_loop(),  # for this server; a worker has one of its own
        aio.opened(await aio.run(asyncio.start_server, echo, "127.0.0.1")) as server,
        awa.connect(app=app) as client,
    ):
        site = "http://{}:{}".format(*server.sockets[0].getsockname())
        await client.enqueue(Compare([f"{site}/short", f"{site}/a-longer-one"]))
        await drain(app, client)  # in production: awa-trio worker asyncio_inside:app


if __name__ == "__main__":
    trio.run(main)

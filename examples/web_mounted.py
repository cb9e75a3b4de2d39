"""The page to look after jobs, mounted in an application of your own, beside a worker."""

import os
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import awa_trio as awa
from awa_trio.web import create_app

jobs = awa.App()
client: awa.Client


@frozen
class Resize:
    picture: str


@jobs.task(queue="pictures")
async def resize(job: awa.Job[Resize]) -> None:
    print("resized", job.args.picture)


async def upload(request: Request) -> JSONResponse:
    job = await client.enqueue(Resize(request.path_params["picture"]))
    return JSONResponse({"job": job.id})


# The client is opened later, so the page is given a way to it. Whoever has the token may retry
# and cancel; without one the page is for looking only. On asyncio it works, too; with FastAPI
# it is mounted by app.mount("/queue", page).
page = create_app(lambda: client, token=os.environ.get("QUEUE_TOKEN"))


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    global client
    async with awa.connect(app=jobs) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, jobs, client)
        yield
        worker.stop()


routes = [Route("/upload/{picture}", upload), Mount("/queue", app=page)]
app: Any = Starlette(routes=routes, lifespan=lifespan)


async def main() -> None:
    await awa.migrate()
    config, stop = Config(), trio.Event()
    config.bind = ["127.0.0.1:0"]

    async def stopped() -> None:
        await stop.wait()
        page.stop()  # so that nobody who still looks holds it up

    async with trio.open_nursery() as nursery:
        [where] = await nursery.start(partial(serve, app, config, shutdown_trigger=stopped))
        for path in ("/upload/cat.png", "/queue/jobs"):
            with await trio.to_thread.run_sync(urllib.request.urlopen, where + path) as answer:
                print(path, answer.status, answer.headers.get_content_type())
        for job in await client.jobs.list(kind="resize"):
            await client.jobs.wait(job.id)
        stop.set()


trio.run(main)

"""A web application on Trio, Quart-Trio, that enqueues jobs and runs them beside itself.

Nesting is the order of shutdown: no more requests, then the worker ends its jobs, then
the client closes. Needs quart-trio. AWA_DSN=... python quart_trio_app.py
"""

import json
from typing import Any
from urllib.request import urlopen

import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.trio import serve
from quart_trio import QuartTrio

import awa_trio as awa

jobs = awa.App()
web = QuartTrio(__name__)


@frozen
class Resize:
    picture: str
    width: int


@jobs.task(queue="pictures")
async def resize(job: awa.Job[Resize]) -> None:
    print(f"{job.args.picture} is {job.args.width} wide now")
    job.set_output({"file": f"{job.args.width}/{job.args.picture}"})


@web.post("/pictures/<name>/resize/<int:width>")
async def order(name: str, width: int) -> tuple[dict[str, Any], int]:
    # A visitor who clicks twice orders once.
    job = await client().enqueue(Resize(name, width), unique_opts={})
    return {"job": job.id}, 202


@web.get("/jobs/<int:job_id>")
async def status(job_id: int) -> dict[str, Any]:
    job = await client().jobs.get(job_id)
    return {"state": job.state, "output": job.output}


def client() -> awa.Client:
    return web.config["client"]  # type: ignore[no-any-return]


async def visit(url: str) -> None:
    """What a browser does; without it, the program serves until Ctrl-C."""

    def request(path: str, data: bytes | None = None) -> Any:
        with urlopen(url + path, data) as response:
            return json.load(response)

    ordered = await trio.to_thread.run_sync(request, "/pictures/cat.png/resize/320", b"")
    await client().jobs.wait(ordered["job"])
    print(await trio.to_thread.run_sync(request, f"/jobs/{ordered['job']}"))


async def main() -> None:
    await awa.migrate()
    config = Config()
    config.bind = ["127.0.0.1:0"]  # a port that is free; say 8000
    async with awa.connect(app=jobs) as web.config["client"], trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, jobs, client())
        async with trio.open_nursery() as serving:  # left first: no requests while jobs end
            [url] = await serving.start(serve, web, config)
            await visit(url)
            serving.cancel_scope.cancel()
        worker.stop()


if __name__ == "__main__":
    trio.run(main)

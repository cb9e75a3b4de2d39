"""What tests of the page share: an app with jobs in every state, and a visitor without a browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.testing import drain, memory_client
from awa_trio.web import WebApp

TOKEN = "a token of sixteen or more"
HERE = "http://localhost:4001"

app = awa.App()


@frozen
class Charge:
    card: str


@frozen
class Receipt:
    order: int


@app.task(queue="payments", max_attempts=2, backoff=lambda attempt: 0.0)
async def charge(job: awa.Job[Charge]) -> None:
    if job.args.card == "declined":
        raise ValueError(f"no money on card {job.args.card}")
    job.set_output({"charged": job.args.card})
    job.enqueue_on_completion(Receipt(7))


@app.task(queue="mail")
async def receipt(job: awa.Job[Receipt]) -> None: ...


async def with_jobs() -> awa.Client:
    """A client of a store in memory: 1 completed, 2 a dead letter, 3 a follow-up of 1,
    4 scheduled, 5 due."""
    client = memory_client(app)
    await client.enqueue(Charge("visa-4242"), tags=["vip"], metadata={"note": "visa-4242"})
    await client.enqueue(Charge("declined"))
    await drain(app, client)
    await client.enqueue(Receipt(8), run_at=datetime.now(UTC) + timedelta(days=400))
    await client.enqueue(Receipt(9))
    return client


@asynccontextmanager
async def visiting(web: WebApp, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A visitor who keeps cookies, and follows nothing by themselves."""
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(
        transport=transport, **{"base_url": HERE, "headers": {"origin": HERE}, **options}
    ) as visitor:
        yield visitor


def form_token(page: httpx.Response) -> str:
    """What a form of a page carries."""
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page.text)
    assert found is not None, page.text
    return found[1]


async def submit(
    visitor: httpx.AsyncClient, at: str, path: str, **fields: str
) -> httpx.Response:
    """Send a form as a browser does that has it from the page at ``at``."""
    page = await visitor.get(at)
    return await visitor.post(path, data={"form_token": form_token(page), **fields})


async def log_in(visitor: httpx.AsyncClient, token: str = TOKEN) -> httpx.Response:
    """Give a token."""
    return await submit(visitor, "/login", "/login", token=token)


async def stream(web: WebApp, path: str, until: Any) -> list[str]:
    """The events of a stream until one is enough; the visitor goes then."""
    heard: list[str] = []
    left = trio.Event()

    async def receive() -> Any:
        if not asked:
            asked.append(True)
            return {"type": "http.request", "body": b""}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        heard.append(message.get("body", b"").decode())
        if until(heard[-1]):
            left.set()

    asked: list[bool] = []
    host = [(b"host", b"localhost:4001")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": host,
        "query_string": b"",
    }
    await web(scope, receive, send)
    return heard

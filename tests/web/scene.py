"""A shop with something going on, for browsers and for pictures."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.web import serve

app = awa.App()
app.queue("payments", max_workers=4)
app.queue("mail", max_workers=8)
app.queue("reports", max_workers=1)


@frozen
class ChargeCard:
    order: int
    card: str


@frozen
class SendReceipt:
    order: int


@frozen
class RenderReport:
    month: str


@frozen
class MorningReport:
    pass


@frozen
class CleanUp:
    pass


class CardDeclined(awa.TerminalError):
    """The bank said no."""


@app.task(queue="payments", max_attempts=5, backoff=lambda attempt: 3600.0)
async def charge_card(job: awa.Job[ChargeCard]) -> None:
    await trio.sleep(random.uniform(0.005, 0.05))
    if job.args.card == "declined":
        raise CardDeclined(f"order {job.args.order}: the bank declined the card")
    if job.args.card == "unreachable":
        raise ConnectionError("bank.example did not answer")
    job.set_output({"receipt": f"R-{job.args.order}"})
    job.enqueue_on_completion(SendReceipt(job.args.order))


@app.task(queue="mail")
async def send_receipt(job: awa.Job[SendReceipt]) -> None:
    await trio.sleep(random.uniform(0.002, 0.03))


@app.task(queue="reports", deadline=600)
async def render_report(job: awa.Job[RenderReport]) -> None:
    job.progress.set(percent=42, message="laying out page 21 of 50")
    await job.flush_progress()
    await trio.sleep_forever()


@app.cron("0 9 * * *", timezone="Pacific/Auckland")
@app.task(queue="reports")
async def morning_report(job: awa.Job[MorningReport]) -> None: ...


@app.periodic(3600)
@app.task(queue="reports")
async def clean_up(job: awa.Job[CleanUp]) -> None: ...


async def stock(client: awa.Client) -> None:
    """Put in what does not move: a report that runs, jobs that wait, and two that fail."""
    await client.enqueue(RenderReport("2026-10"), tags=["finance"])
    await client.enqueue(RenderReport("2026-11"), tags=["finance"])
    declined = [
        await client.enqueue(ChargeCard(17, "declined"), tags=["vip"]),
        await client.enqueue(ChargeCard(18, "declined")),
    ]
    await client.enqueue(ChargeCard(19, "unreachable"))
    later = datetime.now(UTC) + timedelta(days=2)
    await client.enqueue(SendReceipt(3), run_at=later, ordering_key="customer-3")
    for one in declined:
        await client.jobs.wait(one.id)


async def sell(client: awa.Client, per_second: float) -> None:
    """Enqueue orders for ever."""
    order = 100
    while True:
        order += 1
        await client.enqueue(
            ChargeCard(order, "declined" if order % 40 == 0 else "4242"),
            metadata={"shop": "web"},
        )
        await trio.sleep(random.expovariate(per_second))


@asynccontextmanager
async def shop(
    client: awa.Client, *, per_second: float = 0.0, stocked: bool = True, **options: Any
) -> AsyncIterator[str]:
    """A worker at work and the page served; the page's address."""
    async with trio.open_nursery() as nursery:
        await nursery.start(awa.run_worker, app, client)
        if stocked:
            await stock(client)
        if per_second:
            nursery.start_soon(sell, client, per_second)
        stop, stopped = trio.Event(), trio.Event()

        async def run(task_status: trio.TaskStatus[str]) -> None:
            await serve(client, port=0, stop=stop, task_status=task_status, **options)
            stopped.set()

        yield await nursery.start(run)
        stop.set()
        await stopped.wait()
        nursery.cancel_scope.cancel()


@contextmanager
def shop_elsewhere(dsn: str, *, per_second: float = 0.0, **options: Any) -> Iterator[str]:
    """The same in a thread, for those who must not be in a loop; the page's address."""
    opened: list[Any] = []
    ready, done = threading.Event(), threading.Event()

    async def main() -> None:
        async with (
            awa.connect(dsn, app=app) as client,
            shop(client, per_second=per_second, **options) as where,
        ):
            opened.append(where)
            ready.set()
            await trio.to_thread.run_sync(done.wait)

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            opened.append(error)
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        if isinstance(opened[0], BaseException):
            raise opened[0]
        yield opened[0]
    finally:
        done.set()
        thread.join()
        if isinstance(opened[-1], BaseException):
            raise opened[-1]

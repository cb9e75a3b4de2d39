"""A handler that waits for a webhook: an order is charged, and goes on when the answer comes.

While it waits it has no slot, and its worker may be replaced. The answer comes over HTTP,
signed. Needs the extra `web`. AWA_DSN=... python webhook_wait.py
"""

import json
from functools import partial
from typing import Any
from urllib.request import Request, urlopen

import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.trio import serve

import awa_trio as awa
from awa_trio.callbacks import receiver, sign

app = awa.App()
SECRET = "what the provider signs with"  # in earnest, out of the environment
URL = ""  # where this program receives callbacks; known once it serves


@frozen
class Charge:
    order: int
    cents: int


@frozen
class Ship:
    order: int


@app.task(deadline=30)  # the wait is not counted
async def charge(job: awa.Job[Charge]) -> None:
    if job.last_callback is not None:  # answered while no worker had us
        receipt = job.last_callback.payload
    else:
        token = await job.register_callback(timeout=86_400)  # before anybody may answer
        await trio.to_thread.run_sync(ask_the_provider, job.args, token)
        receipt = await job.wait_for_callback(token)
    if not receipt["paid"]:
        raise awa.TerminalError("the card was declined")
    job.enqueue_on_completion(Ship(job.args.order))


@app.task()
async def ship(job: awa.Job[Ship]) -> None:
    print(f"order {job.args.order} is on its way")


def ask_the_provider(order: Charge, token: str) -> None:
    """Stands for a payment provider, which is told the token and answers in its own time."""
    answer = json.dumps({"paid": order.cents < 100_000}).encode()
    headers = sign(SECRET, token, "resume", answer)
    request = Request(f"{URL}/callbacks/{token}/resume", answer, headers, method="POST")
    urlopen(request).close()  # 2xx: it was received, and is kept; else it raises


async def main() -> None:
    global URL
    await awa.migrate()
    config = Config.from_mapping(bind=["127.0.0.1:0"])  # a port that is free
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:
        api: Any = receiver(client, secret=SECRET)  # hypercorn's types are its own
        [URL] = await nursery.start(partial(serve, api, config))
        await nursery.start(awa.run_worker, app, client)
        for order, cents in (7, 1_999), (8, 250_000):
            job = await client.jobs.wait((await client.enqueue(Charge(order, cents))).id)
            print(f"order {order}: {job.state}")
        for shipping in await client.jobs.list(kind="ship"):
            await client.jobs.wait(shipping.id)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)

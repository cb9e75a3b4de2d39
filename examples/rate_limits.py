"""An API that allows ten calls a second in all, and two at once per customer.

Both hold for all workers together, however many there are, and however often they are
started again: the limits are kept in the database. AWA_DSN=... python rate_limits.py
"""

import os
import time
from collections import Counter

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()
LIMIT = awa.Rate(10, burst=2)
app.queue("api", rate=LIMIT, max_per_key=2, max_depth=1000)


@frozen
class Call:
    customer: str
    n: int


calling: Counter[str] = Counter()
most: Counter[str] = Counter()
starts: list[float] = []


@app.task(queue="api")
async def call(job: awa.Job[Call]) -> None:
    customer = job.args.customer
    calling[customer] += 1
    most[customer] = max(most[customer], calling[customer])
    starts.append(time.monotonic())
    await trio.sleep(0.3)  # the call itself
    calling[customer] -= 1


async def enqueue(client: awa.Client, customer: str, n: int) -> None:
    with trio.fail_after(10):  # waits while a thousand calls are due: back-pressure
        await client.enqueue(Call(customer, n), limit_key=customer, when_full="wait")


async def main() -> None:
    dsn = os.environ["AWA_DSN"]
    await awa.migrate(dsn)
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        for n in range(6):
            for customer in ("acme", "initech"):
                await enqueue(client, customer, n)
        worker = await nursery.start(awa.run_worker, app, client)
        await client.queues.wait_until_empty("api")
        print(f"{len(starts)} calls, at most {max(most.values())} at once per customer")
        allowed = LIMIT.burst + (starts[-1] - starts[0] + 0.1) * LIMIT.per_second
        print("not faster than the API allows" if len(starts) <= allowed else "too fast")

        await client.queues.pause("api")  # from here on nothing is claimed, on any worker
        await enqueue(client, "acme", 99)
        await trio.sleep(0.5)
        print("paused: nothing was called" if len(starts) == 12 else "it went on")
        worker.stop()


if __name__ == "__main__":
    trio.run(main)

"""Fan-out: one job becomes many, each in the transaction that completes the one before.

An attempt stages at most 16 follow-ups, so much work is split like a tree: a hundred
pages are ten parts of ten. A part that fails and runs again does not double its pages, for
only an attempt that completes has any. AWA_DSN=... python fan_out.py
"""

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()
WIDTH = 10  # children of one job; 16 at most
fetched: list[int] = []


@frozen
class FetchPages:
    """The pages from `first` up to, without, `last`."""

    first: int
    last: int


@frozen
class FetchPage:
    number: int


@app.task(queue="splitting", backoff=lambda attempt: 0.1)
async def fetch_pages(job: awa.Job[FetchPages]) -> None:
    first, last = job.args.first, job.args.last
    if last - first <= WIDTH:
        for number in range(first, last):
            job.enqueue_on_completion(FetchPage(number))
    else:
        step = -(-(last - first) // WIDTH)
        for start in range(first, last, step):
            job.enqueue_on_completion(FetchPages(start, min(start + step, last)))
    if job.attempt == 1 and first == 20:  # for show
        raise ConnectionError("a fault after staging: nothing of this attempt is enqueued")


@app.task(queue="pages")
async def fetch_page(job: awa.Job[FetchPage]) -> None:
    await trio.sleep(0.001)  # many at once: `app.queue("pages", max_workers=...)`
    fetched.append(job.args.number)


async def all_done(client: awa.Client, pages: int) -> None:
    """Nobody knows when a tree is done but who counts: see caller_owned_completion.py."""
    while len(await client.jobs.list(kind="fetch_page", state="completed", limit=200)) < pages:
        await trio.sleep(0.05)


async def main() -> None:
    await awa.migrate()
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        await client.enqueue(FetchPages(0, 100))
        await all_done(client, 100)
        worker.stop()
    print(f"{len(fetched)} pages, {len(set(fetched))} different")


if __name__ == "__main__":
    trio.run(main)

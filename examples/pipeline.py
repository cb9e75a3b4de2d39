"""Two stages: the second runs once for each value that the first computed.

Several URLs lead to one item. The item is indexed once, however many jobs find it, and
only if a job that found it completes. AWA_DSN=... python pipeline.py
"""

from urllib.parse import parse_qs, urlsplit

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()


@frozen
class ResolveItem:
    url: str


@frozen
class IndexItem:
    item_id: int


@app.task(queue="resolve", deadline=30)
async def resolve_item(job: awa.Job[ResolveItem]) -> None:
    query = parse_qs(urlsplit(job.args.url).query)
    if "item" not in query:
        raise awa.TerminalError("this URL has no item")  # no use in trying again
    item_id = int(query["item"][0])
    # Enqueued if and only if this attempt completes, in the same transaction. What must
    # not count for uniqueness, such as where it came from, goes into the metadata.
    job.enqueue_on_completion(IndexItem(item_id), unique_opts={}, metadata={"found_by": job.id})


@app.task(queue="index")
async def index_item(job: awa.Job[IndexItem]) -> None:
    print(f"indexing item {job.args.item_id}, found by job {job.metadata['found_by']}")


@app.on_exhausted(ResolveItem)
def report(args: ResolveItem, job: awa.JobRow, error: str) -> None:
    """Could return a job to enqueue; commits, or not, with the failure."""
    print(f"gave up on {args.url}")


async def main() -> None:
    await awa.migrate()
    urls = [f"https://example.com/{n}?item={n % 3}" for n in range(9)]
    async with awa.connect(app=app) as client:
        jobs = await client.enqueue_many(map(ResolveItem, [*urls, "https://example.com/"]))
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, app, client)
            for job in jobs:
                await client.jobs.wait(job.id)
            for row in await client.jobs.list(kind="index_item"):
                await client.jobs.wait(row.id)
            worker.stop()
        print(f"{len(jobs)} URLs, {len(await client.jobs.list(kind='index_item'))} items")


if __name__ == "__main__":
    trio.run(main)

"""A code base that is not asynchronous: a client that blocks, and handlers that are functions.

The client can be made at import, and shared by threads and by the processes that a server forks.
Handlers run in threads of the worker. AWA_DSN=... python sync_code.py
"""

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()
app.queue("images", max_workers=1)
jobs = awa.BlockingClient(app=app)  # opens nothing before the first call


@frozen
class Thumbnail:
    image: str
    width: int = 200


@app.task(queue="images")
def thumbnail(job: awa.Job[Thumbnail]) -> None:
    """An ordinary function: it may block."""
    print(f"{job.args.image} at {job.args.width} pixels")
    job.set_output(f"{job.args.image}.thumb")


def upload(name: str) -> int:
    """What a view of Flask's would do: a row and its job, or neither."""
    with jobs.transaction() as tx:
        tx.execute("INSERT INTO images (name) VALUES (%s)", [name])
        return tx.enqueue(Thumbnail(name), unique_opts={}).id


def main() -> None:
    trio.run(awa.migrate)
    with jobs.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS images (name text PRIMARY KEY)")
    cat = upload("cat.jpg")
    try:
        upload("cat.jpg")
    except Exception as error:
        print(f"refused: {type(error).__name__}")
    others = jobs.enqueue_many([Thumbnail("dog.jpg", width) for width in (50, 100)])
    jobs.jobs.cancel(others[0].id)

    trio.run(work)  # in production: awa-trio worker sync_code:app

    print(f"cat.jpg became {jobs.jobs.get(cat).output}")
    print(f"the other is {jobs.jobs.get(others[0].id).state}")


async def work() -> None:
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        for job in await client.jobs.list():
            await client.jobs.wait(job.id)
        worker.stop()


if __name__ == "__main__":
    with jobs:
        main()

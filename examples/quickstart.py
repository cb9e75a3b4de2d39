"""One task, enqueued and run. AWA_DSN=... python quickstart.py"""

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()


@frozen
class Greet:
    """The arguments of a job: what is in the database, as JSON."""

    name: str


@app.task()
async def greet(job: awa.Job[Greet]) -> None:
    print(f"hello {job.args.name}, this is attempt {job.attempt} of job {job.id}")


async def main() -> None:
    await awa.migrate()  # creates the schema, unless it is there
    async with awa.connect(app=app) as client:
        job = await client.enqueue(Greet("world"))
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, app, client)
            done = await client.jobs.wait(job.id)
            print(f"job {done.id} has {done.state}")
            worker.stop()


if __name__ == "__main__":
    trio.run(main)

"""A handler with a nursery: children that stage, fail, and ask for a retry.

The attempt waits for ``job.nursery``. An error in any child ends the attempt, cancels
the other children, and discards what was staged. AWA_DSN=... python nursery.py
"""

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()


@frozen
class Assemble:
    parts: list[str]


@frozen
class Polish:
    part: str


class Busy(Exception):
    """Some machine has no time for us."""


@app.task(deadline=10)
async def assemble(job: awa.Job[Assemble]) -> None:
    async def fetch(part: str) -> None:
        try:
            await machine(part, job.attempt)
        except Busy:
            # Deep inside a nursery: the attempt ends, and the job runs again in a moment.
            raise awa.RetryAfter(0.1) from None
        job.enqueue_on_completion(Polish(part))  # a child may stage, too

    for part in job.args.parts:
        job.nursery.start_soon(fetch, part)
    with trio.move_on_after(5):  # a scope of the handler's own
        await trio.sleep(0.01)


async def machine(part: str, attempt: int) -> None:
    await trio.sleep(0.01)
    if part == "gear" and attempt == 1:
        raise Busy


@app.task()
async def polish(job: awa.Job[Polish]) -> None:
    print(f"polishing the {job.args.part}")


async def main() -> None:
    await awa.migrate()
    async with awa.connect(app=app) as client:
        job = await client.enqueue(Assemble(["axle", "gear", "wheel"]))
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, app, client)
            done = await client.jobs.wait(job.id)
            print(f"assembled at attempt {done.attempt}")
            for row in await client.jobs.list(kind="polish"):
                await client.jobs.wait(row.id)
            worker.stop()


if __name__ == "__main__":
    trio.run(main)

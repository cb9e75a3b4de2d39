"""Fan-in: the last of several parts enqueues the report, exactly once.

Each part adds its figure to a row of our own in the transaction that completes its job:
counted once, however often a part runs. Whoever brings the count to nought enqueues what
comes after them all, in that same transaction. AWA_DSN=... python caller_owned_completion.py
"""

import os
from collections.abc import AsyncIterator

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import Pool, TrioConnection

app = awa.App()
TABLE = "CREATE TABLE IF NOT EXISTS batches (id bigserial, parts int, words int)"
ADD = "UPDATE batches SET parts = parts - 1, words = words + %s WHERE id = %s RETURNING *"


@frozen
class Count:
    batch: int
    text: str


@frozen
class Report:
    batch: int
    words: int


@app.resource
async def pool() -> AsyncIterator[Pool]:
    """Connections for the handlers, to the same database."""
    dsn = os.environ.get("AWA_DSN", "")
    async with Pool(lambda: TrioConnection.connect(dsn, autocommit=True), size=4) as pool:
        yield pool


@app.task()
async def count(job: awa.Job[Count], pool: Pool) -> None:
    words = len(job.args.text.split())  # outside of the transaction: the work may take long
    async with pool.connection() as connection, job.complete_in(connection) as tx:
        # Committed together with the completion; rolled back if the job is not ours any more.
        cursor = await connection.execute(ADD, [words, job.args.batch])
        row = await cursor.fetchone()
        if row is not None and row[1] == 0:  # no parts are left
            await tx.enqueue(Report(job.args.batch, row[2]))


@app.task()
async def report(job: awa.Job[Report]) -> None:
    print(f"batch {job.args.batch} has {job.args.words} words")


async def main() -> None:
    await awa.migrate()
    texts = ["to be or not to be", "that is", "the question"]
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:
        async with client.transaction() as tx:  # the batch and its parts, together
            await tx.connection.execute(TABLE)
            cursor = await tx.connection.execute(
                "INSERT INTO batches VALUES (DEFAULT, %s, 0) RETURNING id", [len(texts)]
            )
            [batch] = await cursor.fetchone() or [0]
            await tx.enqueue_many([Count(batch, text) for text in texts])
        worker = await nursery.start(awa.run_worker, app, client)
        while not (reports := await client.jobs.list(kind="report")):
            await trio.sleep(0.01)
        await client.jobs.wait(reports[0].id)
        worker.stop()


if __name__ == "__main__":
    trio.run(main)

"""Jobs and rows of your own that commit together, or not at all.

An order and the job that ships it are one transaction: there is no order without its
job, and no job for an order that was rolled back. AWA_DSN=... python transaction.py
"""

import os

import psycopg
import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()


@frozen
class Ship:
    order_id: int


@app.task()
async def ship(job: awa.Job[Ship]) -> None:
    print(f"shipping order {job.args.order_id}")


async def place_order(client: awa.Client, item: str, quantity: int) -> int:
    async with client.transaction() as tx:
        cursor = await tx.connection.execute(
            "INSERT INTO orders (item, quantity) VALUES (%s, %s) RETURNING id", [item, quantity]
        )
        row = await cursor.fetchone()
        assert row is not None
        await tx.enqueue(Ship(row[0]))
        if quantity > 100:
            raise ValueError("nobody has that many")  # rolls back the order and the job
    return int(row[0])


def place_order_elsewhere() -> None:
    """The same from code that is not asynchronous, on a connection of its own."""
    with psycopg.connect(os.environ.get("AWA_DSN", "")) as connection:  # commits at the end
        cursor = connection.execute(
            "INSERT INTO orders (item, quantity) VALUES ('desk', 1) RETURNING id"
        )
        row = cursor.fetchone()
        assert row is not None
        awa.enqueue(connection, Ship(row[0]), app=app)


async def main() -> None:
    await awa.migrate()
    async with awa.connect(app=app) as client:
        async with client.transaction() as tx:
            await tx.connection.execute(
                "CREATE TABLE IF NOT EXISTS orders"
                " (id bigserial PRIMARY KEY, item text, quantity int)"
            )
        await place_order(client, "lamp", 2)
        await trio.to_thread.run_sync(place_order_elsewhere)
        try:
            await place_order(client, "lamp", 1000)
        except ValueError as error:
            print(f"refused: {error}")
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, app, client)
            for row in await client.jobs.list(kind="ship"):
                await client.jobs.wait(row.id)
            worker.stop()


if __name__ == "__main__":
    trio.run(main)

"""A program whose handlers are to be crashed: one that is right, and ones that are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()


@app.resource
async def client_of_its_own() -> AsyncIterator[awa.Client]:
    async with awa.connect(app=app) as client:
        yield client


@frozen
class Pay:
    order: int


@frozen
class Ship:
    order: int


@frozen
class Book:
    order: int


@app.task(queue="pay")
async def pay(job: awa.Job[Pay]) -> None:
    """Stages: the follow-up exists if the job has completed, and once."""
    await trio.sleep(0.001)
    job.enqueue_on_completion(Ship(job.args.order), unique_opts={})
    await job.flush_progress()


@app.task(queue="ship")
async def ship(job: awa.Job[Ship]) -> None:
    await trio.sleep(0)


@app.task(queue="book")
async def book(job: awa.Job[Book], client: awa.Client) -> None:
    """Rows of its own, its completion and a follow-up in one transaction."""
    async with client.transaction() as outer:
        await outer.connection.execute("SELECT 1")
    backend: Any = client._backend
    async with backend.connection() as connection, job.complete_in(connection) as tx:
        await connection.execute("INSERT INTO booked VALUES (%s)", [job.args.order])
        await tx.enqueue(Ship(job.args.order))


def rows(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

"""Jobs in the transactions of SQLAlchemy's sessions, of both kinds.

Both or neither commit. Needs sqlalchemy[asyncio]. AWA_DSN=... python sqlalchemy_session.py
"""

import asyncio
import os
from contextlib import suppress
from functools import partial

import psycopg
import trio
from attrs import frozen
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import awa_trio as awa
from awa_trio import bridge
from awa_trio.testing import drain

app = awa.App()
DSN = os.environ.get("AWA_DSN", "")
# In an application of yours: create_engine("postgresql+psycopg://user@host/database").
POSTGRES = "postgresql+psycopg://"
engine = create_engine(POSTGRES, creator=partial(psycopg.connect, DSN))


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@frozen
class Ship:
    order_id: int


@app.task
async def ship(job: awa.Job[Ship]) -> None:
    print(f"shipping order {job.args.order_id}")


def place(item: str) -> None:
    with Session(engine) as session, session.begin():
        session.add(order := Order(item=item))
        session.flush()  # now it has an ID
        bridge.enqueue(session, Ship(order.id), app=app)
        if item == "unicorn":
            raise ValueError("out of stock")  # no order, and no job


async def place_many(items: list[str]) -> None:
    connect = partial(psycopg.AsyncConnection.connect, DSN)
    engine = create_async_engine(POSTGRES, async_creator=connect)
    async with AsyncSession(engine) as session, session.begin():
        session.add_all(orders := [Order(item=item) for item in items])
        await session.flush()
        await bridge.enqueue_many(session, [Ship(order.id) for order in orders], app=app)
    await engine.dispose()


async def work() -> None:  # in production: awa-trio worker sqlalchemy_session:app
    async with awa.connect(app=app) as client:
        await drain(app, client)


if __name__ == "__main__":
    trio.run(awa.migrate)
    Base.metadata.create_all(engine)
    place("lamp")
    with suppress(ValueError):
        place("unicorn")
    asyncio.run(place_many(["desk", "chair"]))
    trio.run(work)

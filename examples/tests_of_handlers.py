"""Tests of handlers: pip install pytest-trio; pytest tests_of_handlers.py

Jobs are in memory, and `autojump_clock` lets hours of retries pass at once. For PostgreSQL
take `awa_client`, of awa_trio.testing.fixtures, and no clock.
"""

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

import awa_trio as awa
from awa_trio import testing

app = awa.App()
pytestmark = pytest.mark.trio


@frozen
class Charge:
    order: int


@frozen
class Receipt:
    order: int


class Bank:
    """A service that does nothing twice under one key; a fake, as are all in tests."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}

    async def charge(self, order: int, key: str) -> None:
        if order == 13:
            raise ConnectionError("the bank is closed")
        self.charges.setdefault(key, order)
        await trio.sleep(0.2)


@app.task(max_attempts=3)
async def charge(job: awa.Job[Charge], bank: Bank) -> None:
    await bank.charge(job.args.order, key=f"job {job.id}")
    job.enqueue_on_completion(Receipt(job.args.order), queue="mail")


@app.task(queue="mail")
async def receipt(job: awa.Job[Receipt]) -> None: ...


async def test_a_charge_stages_a_receipt(autojump_clock: MockClock) -> None:
    job = testing.HandlerJob(Charge(7), app=app)
    await charge(job, Bank())
    testing.assert_staged(job, Receipt(7), queue="mail", times=1)


async def test_three_attempts_and_no_receipt(autojump_clock: MockClock) -> None:
    client = testing.memory_client(app)
    await client.enqueue(Charge(13))
    while await testing.drain(app, client, resources={Bank: Bank()}):
        await trio.sleep(60)
    [dead] = await client.dlq.list()
    assert (dead.attempt, dead.dead_letter) == (3, "attempts_exhausted")
    await testing.assert_not_staged(client)


async def test_one_charge_wherever_it_crashes(autojump_clock: MockClock) -> None:
    bank, client = Bank(), testing.memory_client(app)

    async def check(client: awa.Client) -> None:
        assert list(bank.charges.values()).count(7) == 1
        await testing.assert_staged(client, Receipt, times=1)

    async def begin(client: awa.Client) -> None:
        bank.charges.clear()
        await client.enqueue(Charge(7))

    await testing.chaos.crash_everywhere(app, client, begin, check, resources={Bank: bank})

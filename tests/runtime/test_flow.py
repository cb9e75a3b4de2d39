"""Rates, shares, overrides and pauses in a worker, in virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._runtime.dispatch import Dispatcher
from awa_trio.testing import memory_client

from .rig import Rig, Work

S = awa.JobState
pytestmark = pytest.mark.virtual_time

Job = awa.Job[Work]


class Starts:
    """A handler that notes when it starts, and takes a while."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.at: list[float] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.most_in_all = 0

    async def __call__(self, job: Job) -> None:
        self.at.append(trio.current_time())
        self.running[job.queue] += 1
        self.most |= self.running
        self.most_in_all = max(self.most_in_all, self.running.total())
        await trio.sleep(self.seconds)
        self.running[job.queue] -= 1

    def in_any(self, seconds: float) -> int:
        """The most that started in any stretch of so many seconds."""
        return max(sum(0 <= b - a <= seconds for b in self.at) for a in self.at)


def rig_of(starts: Starts, **queues: dict[str, Any]) -> Rig:
    async def handler(job: Job) -> None:
        await starts(job)

    rig = Rig(handler)
    for name, settings in queues.items():
        rig.app.queue(name, **settings)
    return rig


async def until(starts: Starts, count: int) -> None:
    while len(starts.at) < count:
        await trio.sleep(0.1)


@pytest.mark.parametrize("setting", ["rate", "worker_rate"])
async def test_a_rate_is_kept_and_reached_and_not_polled_for(setting: str) -> None:
    starts = Starts()
    rig = rig_of(starts, mail={setting: awa.Rate(10, burst=2)})
    for n in range(42):
        await rig.enqueue(n, queue="mail")
    async with rig.working() as worker:
        began = trio.current_time()
        await until(starts, 42)
        took = trio.current_time() - began
        claims = worker.statistics().claims
    assert 4.0 <= took <= 4.6
    assert starts.in_any(1.0) <= 12
    assert claims < 42 * 2


async def test_a_worker_wakes_when_a_key_has_a_token_again() -> None:
    starts = Starts()
    rig = rig_of(starts, mail={"rate_per_key": awa.Rate(1, per=100, burst=1)})
    for n in range(4):
        await rig.enqueue(n, queue="mail", limit_key="a" if n < 3 else "b")
    async with rig.working(listen=False) as worker:
        began = trio.current_time()
        await until(starts, 4)
        claims = worker.statistics().claims
    offsets = [at - began for at in starts.at]
    assert offsets == pytest.approx([0, 0, 100, 200], abs=0.5)
    assert claims < 20


async def test_a_key_that_is_let_go_of_is_taken_up_at_once() -> None:
    starts = Starts(seconds=50)
    rig = rig_of(starts, mail={"max_per_key": 2})
    for n in range(6):
        await rig.enqueue(n, queue="mail", limit_key="a")
    async with rig.working(listen=False):
        began = trio.current_time()
        await until(starts, 6)
    offsets = [at - began for at in starts.at]
    assert offsets == pytest.approx([0, 0, 50, 50, 100, 100], abs=0.5)


async def test_queues_share_a_workers_cap_by_weight_and_none_is_left_out() -> None:
    starts = Starts(seconds=10)
    rig = rig_of(starts, heavy={"weight": 3}, light={}, idle={"weight": 100})
    for n in range(80):
        await rig.enqueue(n, queue="heavy")
        await rig.enqueue(n, queue="light")
    async with rig.working(max_workers=8):
        await trio.sleep(5)
        assert starts.running == {"heavy": 6, "light": 2}
        await until(starts, 160)
    assert starts.most_in_all == 8
    # What one leaves is the other's.
    assert starts.most["light"] == 8


async def test_what_a_queue_is_kept_no_other_has() -> None:
    starts = Starts(seconds=100)
    rig = rig_of(starts, greedy={"weight": 1000}, urgent={"min_workers": 2})
    for n in range(20):
        await rig.enqueue(n, queue="greedy")
    async with rig.working(max_workers=5, grace=0):
        await trio.sleep(5)
        assert starts.running == {"greedy": 3}
        began = trio.current_time()
        for n in range(3):
            await rig.enqueue(n, queue="urgent")
        await until(starts, 5)
        assert trio.current_time() - began < 0.1
        assert starts.running == {"greedy": 3, "urgent": 2}


async def test_a_full_cap_over_a_rate_with_tokens_is_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was found again and again that one could start by its rate, at the cost of a processor."""
    looks, next_look = Counter[float](), Dispatcher._next_look

    def counted(self: Dispatcher, now: float) -> float:
        looks[now] += 1
        assert looks[now] < 50, "time stands still"
        return next_look(self, now)

    monkeypatch.setattr(Dispatcher, "_next_look", counted)
    starts = Starts(seconds=10)
    rig = rig_of(starts, one={"worker_rate": 100}, other={})
    for n in range(3):
        await rig.enqueue(n, queue="one")
        await rig.enqueue(n, queue="other")
    async with rig.working(max_workers=1):
        await until(starts, 6)
    assert starts.at[-1] - starts.at[0] == pytest.approx(50, abs=1)
    assert 0 < looks.total() < 1_000


async def test_attempts_that_have_waited_come_back_within_the_cap() -> None:
    seen: list[int] = []
    running = 0

    async def handler(job: Job) -> None:
        nonlocal running
        if job.queue == "waits":
            await job.wait_for_callback(await job.register_callback())
        running += 1
        seen.append(running)
        await trio.sleep(10)
        running -= 1

    rig = Rig(handler)
    rig.app.queue("waits")
    waiting = [await rig.enqueue(n, queue="waits") for n in range(4)]
    async with rig.working(max_workers=2):
        while not all([await rig.state(one) is S.WAITING_EXTERNAL for one in waiting]):
            await trio.sleep(0.1)
        others = [await rig.enqueue(n) for n in range(6)]
        await trio.sleep(1)
        for one in waiting:
            token = (await rig.client.jobs.get(one)).callback_token
            assert token is not None
            await rig.client.callbacks.resume(token)
        began = trio.current_time()
        while not all([await rig.state(one) is S.COMPLETED for one in [*waiting, *others]]):
            await trio.sleep(0.1)
    assert max(seen) == 2
    assert trio.current_time() - began < 60


@pytest.mark.parametrize("listen", [True, False])
async def test_a_running_worker_obeys_overrides_and_pauses(listen: bool) -> None:
    starts = Starts(seconds=1000)
    rig = rig_of(starts, mail={"max_workers": 2})
    for n in range(12):
        await rig.enqueue(n, queue="mail")
    queues = rig.client.queues
    async with rig.working(listen=listen, grace=0):
        await trio.sleep(3)
        assert starts.running["mail"] == 2
        assert (await queues.get("mail")).settings == awa.QueueSettings(max_workers=2)
        await queues.override("mail", max_workers=5)
        await trio.sleep(3)
        assert starts.running["mail"] == 5
        await queues.pause("mail")
        await queues.override("mail", max_workers=7)
        await trio.sleep(10)
        assert starts.running["mail"] == 5
        await queues.resume("mail")
        await trio.sleep(3)
        assert starts.running["mail"] == 7
        await queues.reset("mail")
        await queues.override("mail", rate=awa.Rate(1, per=1000, burst=1))
        await trio.sleep(10)
        assert starts.running["mail"] == 7


async def test_an_override_holds_in_the_next_life_of_a_worker_that_was_fenced() -> None:
    """Also one that was made while it was between two lives."""
    starts = Starts(seconds=10_000)
    rig = rig_of(starts, mail={"max_workers": 2})
    for n in range(12):
        await rig.enqueue(n, queue="mail")
    async with rig.working(listen=False, grace=0) as worker:
        await until(starts, 2)
        first = worker.id
        assert first is not None
        await rig.store.unregister(first)  # as whoever presumes it dead does
        await rig.client.queues.override("mail", max_workers=5)
        await trio.sleep(60)
        assert worker.id != first
        assert (worker.statistics().lives, worker.statistics().running) == (2, 5)


async def test_limits_that_replace_those_of_another_app_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = rig_of(Starts(), mail={"rate": 5, "max_workers": 10})
    second = rig_of(Starts(), mail={"rate": 10, "max_per_key": 3, "max_workers": 20})
    second.client = awa.Client(first.client._backend, second.app)

    async def said_by(rig: Rig) -> list[str]:
        caplog.clear()
        async with rig.working():
            await trio.sleep(1)
        return [r.message for r in caplog.records if r.levelname == "WARNING"]

    assert await said_by(first) == []
    assert await said_by(first) == []
    [told] = await said_by(second)
    assert "queue mail" in told
    assert "max_per_key was None and is 3" in told
    assert "rate was Rate(count=5.0" in told
    assert "max_workers" not in told, "each worker has its own"
    assert await said_by(second) == []
    assert len(await said_by(first)) == 1


async def test_overrides_that_make_no_sense_are_left_out() -> None:
    starts = Starts()
    rig = rig_of(starts, mail={})
    await rig.store.override_queue("mail", {"max_workers": -1, "of the future": 1}, [])
    await rig.store.declare_queues({"mail": {"min_workers": 100, "of the future": 1}})
    async with rig.working():
        await rig.enqueue(queue="mail")
        await until(starts, 1)
    assert (await rig.client.queues.get("mail")).overrides == {}


async def test_minimums_that_do_not_fit_are_refused() -> None:
    rig = rig_of(Starts(), a={"min_workers": 3}, b={"min_workers": 2})
    with pytest.raises(awa.ConfigurationError, match=r"together \(a 3, b 2\)"):
        await rig.run(max_workers=4)
    with pytest.raises(awa.ConfigurationError, match="max_workers"):
        await rig.run(max_workers=0)


# ---- producers


@frozen
class Mail:
    n: int


def limited(most: int) -> awa.Client:
    app = awa.App()
    app.declare(Mail, queue="mail")
    app.queue("mail", max_depth=most)
    return memory_client(app)


async def test_a_full_queue_refuses_or_lets_wait() -> None:
    client = limited(3)
    for n in range(3):
        await client.enqueue(Mail(n))
    with pytest.raises(awa.QueueFull) as refused:
        await client.enqueue(Mail(3))
    assert (refused.value.queue, refused.value.max_depth) == ("mail", 3)
    with pytest.raises(awa.QueueFull):
        await client.enqueue_many([Mail(3), Mail(4)])
    with trio.move_on_after(100) as scope:
        await client.enqueue(Mail(3), when_full="wait")
    assert scope.cancelled_caught
    assert len(await client.jobs.list()) == 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.enqueue(Mail(3), when_full="wait"))
        nursery.start_soon(client.queues.wait_for_room, "mail")
        await trio.sleep(10)
        for job in (await client.jobs.list())[:2]:
            await client.jobs.cancel(job.id, without_follow_ups=True)
    assert len(await client.jobs.list(state="available")) == 2
    with pytest.raises(ValueError, match="when_full='never'"):
        await client.enqueue(Mail(9), when_full="never")  # type: ignore[arg-type]


async def test_jobs_of_the_future_and_other_queues_do_not_fill_one() -> None:
    client = limited(1)
    later = client._backend.store.now() + timedelta(days=1)  # type: ignore[attr-defined]
    for n in range(5):
        await client.enqueue(Mail(n), run_at=later)
        await client.enqueue(Mail(n), queue="other")
    await client.enqueue(Mail(9))
    with pytest.raises(awa.QueueFull):
        await client.enqueue(Mail(9))
    await client.queues.override("mail", max_depth=None)
    await client.enqueue(Mail(9))
    await client.queues.wait_for_room("mail", 1000)


async def test_a_drained_queue_empties_and_says_so() -> None:
    starts = Starts(seconds=5)
    rig = rig_of(starts, mail={})
    for n in range(3):
        await rig.enqueue(n, queue="mail")
    assert await rig.client.queues.drain("mail")
    with pytest.raises(awa.QueueDraining, match="'mail' is being drained"):
        await rig.enqueue(queue="mail")
    async with rig.working():
        await rig.client.queues.wait_until_empty("mail")
        assert len(starts.at) == 3
    status = await rig.client.queues.get("mail")
    assert status.draining
    assert await rig.client.queues.resume("mail")
    await rig.enqueue(queue="mail")

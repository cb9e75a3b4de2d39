"""Settlements in sets: group commit, retries, isolation, locks; in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.plan import Plan, Transition
from awa_trio._core.settings import Timings
from awa_trio._runtime.finalize import MOST_PLANS, Entry, Finalizer
from awa_trio._seam.errors import Fenced, KeyTaken, LockTimeout, Rejected, StoreError, Transient
from awa_trio._seam.values import APPLIED, Settled

pytestmark = pytest.mark.virtual_time


class Database:
    """Settles after a while; what it does to which job is up to the test."""

    def __init__(self, took: float = 0.01) -> None:
        self.took = took
        self.sets: list[list[int]] = []
        self.errors: dict[int, list[StoreError | None]] = {}
        """What settling a set with this job in it meets, call by call; None is success."""
        self.always: dict[int, StoreError] = {}
        self.held: set[int] = set()
        """Jobs whose settlement waits for somebody's lock, for as long as it may."""
        self.under_way = 0
        self.most_under_way = 0

    async def settle(self, plans: Sequence[Plan], **options: Any) -> list[Settled]:
        ids = [plan.move.job_id for plan in plans]
        self.sets.append(ids)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await trio.sleep(self.took)
        finally:
            self.under_way -= 1
        if not self.held.isdisjoint(ids):
            await trio.sleep(options["patience"])
            raise LockTimeout("55P03")
        for job_id in ids:
            planned = self.errors.get(job_id)
            error = planned.pop(0) if planned else self.always.get(job_id)
            if error is not None:
                raise error
        return [APPLIED] * len(plans)


class Clerk:
    def __init__(self) -> None:
        self.applied: list[int] = []
        self.stale: list[int] = []
        self.lost: list[int] = []
        self.refusals: list[tuple[int, str]] = []
        self.at: dict[int, float] = {}

    def settled(self, entry: Entry, answer: Settled) -> None:
        job_id = entry.plan.move.job_id
        (self.applied if answer.applied else self.stale).append(job_id)
        self.at[job_id] = trio.current_time()

    def given_up(self, entry: Entry) -> None:
        self.lost.append(entry.plan.move.job_id)

    def refused(self, entry: Entry, error: Rejected) -> Plan | None:
        job_id = entry.plan.move.job_id
        self.refusals.append((job_id, str(error)))
        if job_id >= 1000:
            return None
        return Plan(Transition(job_id + 1000, 1, JobState.RUNNING, JobState.FAILED, 1))

    def worth_telling(self, entries: Sequence[Entry]) -> bool:
        return False


def entry(job_id: int, *, key: str | bool = False, worker: int | None = 1) -> Entry:
    unique = str(key).encode().ljust(16)
    inserts = (PreparedInsert("b", "q", b"{}", unique_key=unique),) if key else ()
    move = Transition(job_id, 1, JobState.RUNNING, JobState.COMPLETED, 1)
    return Entry(Plan(move, inserts), worker)


class Bench:
    def __init__(self, database: Database, **timings: float) -> None:
        self.database = database
        self.clerk = Clerk()
        self.finalizer = Finalizer(database, self.clerk, Timings(**timings), Random(0))  # type: ignore[arg-type]

    async def settle(self, *entries: Entry) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.finalizer.run)
            for one in entries:
                self.finalizer.submit(one)
            self.finalizer.close()
        assert self.finalizer.backlog == 0


async def test_one_settlement_is_made_at_once() -> None:
    bench = Bench(Database(took=0.01))
    began = trio.current_time()
    await bench.settle(entry(1))
    assert trio.current_time() - began == pytest.approx(0.01)
    assert bench.clerk.applied == [1]


async def test_what_gathers_while_a_set_is_under_way_is_the_next_set() -> None:
    bench = Bench(Database(took=1.0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        for n in range(100):
            bench.finalizer.submit(entry(n))
            await trio.sleep(0.01)
        bench.finalizer.close()
    assert sorted(bench.clerk.applied) == list(range(100))
    assert len(bench.database.sets) <= 6
    assert bench.database.most_under_way == 2


async def test_a_set_has_a_largest_size() -> None:
    bench = Bench(Database())
    await bench.settle(*map(entry, range(MOST_PLANS * 2 + 1)))
    assert max(map(len, bench.database.sets)) == MOST_PLANS
    assert len(bench.clerk.applied) == MOST_PLANS * 2 + 1


async def test_a_set_is_of_one_worker() -> None:
    bench = Bench(Database())
    await bench.settle(
        entry(1, worker=1), entry(2, worker=2), entry(3, worker=2), entry(4, worker=None)
    )
    assert sorted(bench.database.sets) == [[1], [2, 3], [4]]


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_a_transient_failure_is_tried_again_up_to_three_times(failures: int) -> None:
    bench = Bench(Database())
    bench.database.errors[2] = [Transient("deadlock detected")] * failures
    await bench.settle(entry(1), entry(2), entry(3))
    assert sorted(bench.clerk.applied) == [1, 2, 3]
    assert len(bench.database.sets) == failures + 1


async def test_the_pauses_are_about_a_tenth_a_half_and_two_seconds() -> None:
    bench = Bench(Database(took=0.0))
    bench.database.errors[1] = [Transient("x")] * 3
    began = trio.current_time()
    await bench.settle(entry(1))
    assert 0.75 * 2.6 <= trio.current_time() - began <= 1.25 * 2.6


async def test_a_fourth_failure_is_given_up() -> None:
    bench = Bench(Database())
    bench.database.errors[1] = [Transient("x")] * 4
    await bench.settle(entry(1))
    assert (bench.clerk.lost, bench.clerk.applied) == ([1], [])


async def test_a_call_that_is_never_answered_is_bounded_and_tried_again() -> None:
    class Silent(Database):
        async def settle(self, plans: Sequence[Plan], **options: Any) -> list[Settled]:
            if not self.sets:
                self.sets.append([])
                await trio.sleep_forever()
            return await super().settle(plans, **options)

    bench = Bench(Silent(), call_timeout=3.0)
    await bench.settle(entry(1))
    assert bench.clerk.applied == [1]


async def test_everything_is_given_up_when_its_time_is_over() -> None:
    class Silent(Database):
        async def settle(self, plans: Sequence[Plan], **options: Any) -> list[Settled]:
            await trio.sleep_forever()
            raise AssertionError("unreachable")

    bench = Bench(Silent(), finalize_deadline=20.0, call_timeout=15.0)
    began = trio.current_time()
    await bench.settle(entry(1), entry(2))
    assert sorted(bench.clerk.lost) == [1, 2]
    assert trio.current_time() - began == pytest.approx(20.0)


async def test_a_fenced_worker_is_stale() -> None:
    bench = Bench(Database())
    bench.database.always[1] = Fenced("x")
    await bench.settle(entry(1), entry(2))
    assert sorted(bench.clerk.stale) == [1, 2]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 31])
async def test_a_plan_that_is_refused_fails_alone(size: int) -> None:
    """The error is recorded by another plan; its neighbours do not notice."""
    bench = Bench(Database())
    bad = size // 2
    bench.database.always[bad] = Rejected("check constraint")
    await bench.settle(*map(entry, range(size)))
    assert bench.clerk.refusals == [(bad, "check constraint")]
    assert sorted(bench.clerk.applied) == sorted(
        [*(n for n in range(size) if n != bad), bad + 1000]
    )
    assert bench.clerk.lost == []


async def test_two_bad_plans_are_both_found() -> None:
    bench = Bench(Database())
    bench.database.always |= {3: Rejected("three"), 6: Rejected("six")}
    await bench.settle(*map(entry, range(8)))
    assert sorted(bench.clerk.refusals) == [(3, "three"), (6, "six")]
    assert len(bench.clerk.applied) == 8


async def test_a_refusal_that_is_refused_too_is_given_up() -> None:
    bench = Bench(Database())
    bench.database.always |= {1: Rejected("a"), 1001: Rejected("b")}
    await bench.settle(entry(1))
    assert bench.clerk.lost == [1001]


@pytest.mark.parametrize("error", [KeyTaken(7), StoreError("of a kind that comes later")])
async def test_no_failure_of_the_database_loses_a_plan(error: StoreError) -> None:
    bench = Bench(Database())
    bench.database.always[1] = error
    await bench.settle(entry(1), entry(2))
    assert sorted(bench.clerk.applied) == [2, 1001]


async def test_a_bug_leaves_nobody_waiting() -> None:
    class Broken(Database):
        async def settle(self, plans: Sequence[Plan], **options: Any) -> list[Settled]:
            await trio.sleep(1)
            raise LookupError("a bug")

    bench = Bench(Broken())
    with trio.fail_after(60):
        async with trio.open_nursery() as others:
            others.start_soon(bench.finalizer.settle, [entry(1), entry(2, key=True)])
            others.start_soon(bench.finalizer.drained)
            with pytest.RaisesGroup(LookupError):
                await bench.finalizer.run()
            await bench.finalizer.settle([entry(3)])
    assert sorted(bench.clerk.lost) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("held", [False, True])
async def test_it_ends_however_late_something_is_submitted(seed: int, held: bool) -> None:
    """Whoever compares with the rows goes on until the end: nobody is left waiting for it."""
    bench = Bench(Database(took=0.0), finalize_deadline=2.0)
    random = Random(seed)

    async def keep_settling(ids: Iterator[int]) -> None:
        for n in ids:
            await bench.finalizer.settle([entry(n, key=held and "held")])
            for _ in range(random.randrange(3)):
                await trio.lowlevel.checkpoint()

    bench.database.held = {5} if held else set()
    with trio.fail_after(60):
        async with trio.open_nursery() as others:
            for first in range(0, 400, 100):
                others.start_soon(keep_settling, iter(range(first, first + 100)))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bench.finalizer.run)
                await trio.testing.wait_all_tasks_blocked()
                bench.finalizer.close()
    assert bench.finalizer.backlog == 0
    assert sorted([*bench.clerk.applied, *bench.clerk.lost]) == list(range(400))


@pytest.mark.parametrize("how", ["refused", "held", "silent"])
async def test_the_end_does_not_wait_for_those_who_submit_without_end(how: str) -> None:
    """Rescue and reconciliation go on while a worker ends, and what they submit overlaps."""

    class Silent(Database):
        async def settle(self, plans: Sequence[Plan], **options: Any) -> list[Settled]:
            await trio.sleep_forever()
            raise AssertionError("unreachable")

    database = Silent() if how == "silent" else Database()
    bench = Bench(database, finalize_deadline=4.0)
    if how == "refused":
        database.always = dict.fromkeys(range(3000), Rejected("no"))
    elif how == "held":
        database.held = set(range(1000))

    async def keep_settling(first: int) -> None:
        await trio.sleep(first / 500)
        while True:
            await bench.finalizer.settle([entry(n) for n in range(first, first + 100)])
            await trio.sleep(0.01)

    async with trio.open_nursery() as others:
        for first in range(0, 1000, 100):
            others.start_soon(keep_settling, first)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.finalizer.run)
            await trio.sleep(10)
            began = trio.current_time()
            assert bench.finalizer.backlog > 0
            bench.finalizer.end_within(4.0)
            await bench.finalizer.drained()
            assert trio.current_time() - began <= 4.0
            bench.finalizer.end_within(2.0)
            await trio.sleep(1)
            bench.finalizer.close()
        assert trio.current_time() - began <= 6.0
        others.cancel_scope.cancel()
    assert bench.finalizer.backlog == 0


async def test_a_held_key_holds_up_only_those_that_want_keys() -> None:
    """A producer's open transaction has a key: completions without keys go on at once."""
    bench = Bench(Database(took=0.1))
    bench.database.errors[2] = [LockTimeout("55P03")] * 8
    began = trio.current_time()
    await bench.settle(entry(1), entry(2, key=True), entry(3), entry(4, key=True))
    assert sorted(bench.clerk.applied) == [1, 2, 3, 4]
    for free in (1, 3):
        assert bench.clerk.at[free] - began == pytest.approx(0.2)
    assert bench.clerk.at[4] < bench.clerk.at[2]
    assert [1, 3] in bench.database.sets


@pytest.mark.parametrize("held", [1, 60, 200])
@pytest.mark.parametrize("key", ["one", "each", "unseen"])
async def test_those_that_want_no_held_key_go_on_whoever_is_beside_them(
    held: int, key: str
) -> None:
    """A producer holds keys for long; ten of the set want others, or none."""
    bench = Bench(Database(took=0.002))
    bench.database.held = set(range(held))
    keys = {"one": ["held"] * held, "each": list(map(str, range(held))), "unseen": [""] * held}
    entries = [entry(n, key=of) for n, of in enumerate(keys[key])]
    entries += [entry(1000 + n, key=f"free {n}" if n % 2 else "") for n in range(10)]
    Random(held).shuffle(entries)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        for one in entries:
            bench.finalizer.submit(one)
        await trio.sleep(12)
        assert sorted(bench.clerk.applied) == list(range(1000, 1010))
        assert max(bench.clerk.at.values()) - began < (0.4 if key == "one" else 6)
        released = trio.current_time()
        bench.database.held = set()
        bench.finalizer.close()
    assert len(bench.clerk.applied) == held + 10
    assert max(bench.clerk.at.values()) - released < 5
    assert bench.clerk.lost == []


async def test_who_wants_a_key_that_is_known_to_be_held_waits_apart_from_the_start() -> None:
    bench = Bench(Database(took=0.01))
    bench.database.held = {1, 2}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        bench.finalizer.submit(entry(1, key="held"))
        await trio.sleep(2)
        began = trio.current_time()
        bench.finalizer.submit(entry(2, key="held"))
        bench.finalizer.submit(entry(3, key="free"))
        await trio.sleep(2)
        assert bench.clerk.at[3] - began == pytest.approx(0.01)
        bench.database.held = set()
        await trio.sleep(2)
        assert sorted(bench.clerk.applied) == [1, 2, 3]
        # Nobody holds it any more: it may be in a set again.
        bench.finalizer.submit(entry(4, key="held"))
        bench.finalizer.submit(entry(5))
        await trio.sleep(1)
        assert [4, 5] in bench.database.sets
        bench.finalizer.close()


async def test_a_lock_that_nobody_can_explain_sends_each_its_own_way() -> None:
    bench = Bench(Database(took=0.1))
    bench.database.errors[1] = [LockTimeout("a row is locked")] * 3
    await bench.settle(entry(1), entry(2), entry(3))
    assert sorted(bench.clerk.applied) == [1, 2, 3]
    assert bench.clerk.lost == []


async def test_new_sets_do_not_wait_for_a_plan_that_waits_for_a_lock() -> None:
    bench = Bench(Database(took=0.1))
    bench.database.errors[1] = [LockTimeout("x")] * 30
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        bench.finalizer.submit(entry(1, key=True))
        await trio.sleep(0.5)
        began = trio.current_time()
        bench.finalizer.submit(entry(2, key="another"))
        await trio.sleep(0.5)
        assert bench.clerk.at[2] - began == pytest.approx(0.1)
        bench.finalizer.close()
    assert bench.clerk.applied == [2, 1]


async def test_a_lock_that_is_never_let_go_of_is_no_failure_of_the_job() -> None:
    bench = Bench(Database(took=0.2), finalize_deadline=5.0)
    bench.database.always[1] = LockTimeout("x")
    await bench.settle(entry(1, key=True), entry(2))
    assert (bench.clerk.lost, bench.clerk.refusals, bench.clerk.applied) == ([1], [], [2])


async def test_a_few_plans_gather_while_a_set_is_under_way_but_not_for_long() -> None:
    bench = Bench(Database(took=1.0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        bench.finalizer.submit(entry(1))
        await trio.sleep(0.1)
        # The first waits for more, though not for the set under way.
        began = trio.current_time()
        bench.finalizer.submit(entry(2))
        await trio.sleep(0.004)
        bench.finalizer.submit(entry(3))
        await trio.sleep(2)
        assert bench.clerk.at[2] == bench.clerk.at[3]
        assert 1 < bench.clerk.at[2] - began < 1.01
        # Nothing is under way: it does not wait at all.
        began = trio.current_time()
        bench.finalizer.submit(entry(4))
        await trio.sleep(2)
        assert bench.clerk.at[4] - began == pytest.approx(1)
        bench.finalizer.close()
    assert bench.clerk.applied == [1, 2, 3, 4]


async def test_enough_plans_for_a_set_do_not_wait() -> None:
    bench = Bench(Database(took=1.0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        bench.finalizer.submit(entry(1000))
        await trio.sleep(0.1)
        began = trio.current_time()
        for n in range(200):
            bench.finalizer.submit(entry(n))
        await trio.sleep(2)
        assert bench.clerk.at[0] - began == pytest.approx(1)
        assert bench.clerk.at[199] - began == pytest.approx(1)
        bench.finalizer.close()


async def test_attempts_wait_when_settlements_cannot_keep_up() -> None:
    bench = Bench(Database(took=1.0))
    bench.finalizer._capacity = 10
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        await trio.testing.wait_all_tasks_blocked()
        for n in range(300):
            bench.finalizer.submit(entry(n))
        began = trio.current_time()
        await bench.finalizer.room()
        assert trio.current_time() - began < 0.1
        for n in range(300, 900):
            bench.finalizer.submit(entry(n))
        await bench.finalizer.room()
        assert trio.current_time() > began
        bench.finalizer.close()
    assert len(bench.clerk.applied) == 900


async def test_told_to_hurry_it_gives_up_what_is_slow_and_settles_what_comes_later() -> None:
    bench = Bench(Database(took=0.1))
    bench.database.errors[1] = [LockTimeout("x")] * 1000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        bench.finalizer.submit(entry(1, key=True))
        await trio.sleep(1)
        began = trio.current_time()
        bench.finalizer.hurry(2.0)
        await trio.sleep(10)
        assert bench.clerk.lost == [1]
        bench.finalizer.submit(entry(2))
        await bench.finalizer.drained()
        bench.finalizer.close()
    assert bench.clerk.applied == [2]
    assert trio.current_time() - began < 11


async def test_settle_waits_for_the_answers() -> None:
    bench = Bench(Database(took=1.0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.finalizer.run)
        await bench.finalizer.settle([entry(1), entry(2)])
        assert sorted(bench.clerk.applied) == [1, 2]
        bench.finalizer.close()

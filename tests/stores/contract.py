"""What every store does, whatever it is made of: subclass `StoreContract` and give it a `world`.

No behaviour of a store is tested anywhere else for one store only, except what can
only happen to a server.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from awa_trio._core.job import JobDetails, JobState, PreparedInsert
from awa_trio._core.outcome import Lost
from awa_trio._core.plan import Plan, Transition
from awa_trio._core.request import Replacements
from awa_trio._core.settings import Retention
from awa_trio._seam.errors import Fenced, KeyTaken
from awa_trio._seam.hearing import Answered, CutElsewhere, GotWork, News
from awa_trio._seam.protocol import WorkerStore
from awa_trio._seam.values import (
    Claimed,
    DeadLetterFilter,
    JobFilter,
    Settled,
    Swept,
    Wait,
    Waited,
    Want,
)

from .schedule_contract import ScheduleContract

S = JobState
KEY = bytes(range(16))
OTHER_KEY = bytes(range(1, 17))
DEFAULT_MASK = 31


class World(ABC):
    """A store, and time that passes when it is told to."""

    store: WorkerStore

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let time pass for everything the store knows."""

    @abstractmethod
    def now(self) -> datetime:
        """The store's time, to a second or so."""

    @abstractmethod
    async def news(self) -> list[News]:
        """Everything heard since the last call, of what had happened before this one."""


def job(kind: str = "k", queue: str = "q", **changes: Any) -> PreparedInsert:
    """A job to insert."""
    key = changes.pop("key", None)
    mask = changes.pop("mask", DEFAULT_MASK)
    if key is not None:
        changes |= {"unique_key": key, "unique_states": mask}
    changes.setdefault("args", b"{}")
    return PreparedInsert(kind=kind, queue=queue, **changes)


def move(claimed: Claimed | JobDetails, to: JobState, **changes: Any) -> Transition:
    """The move of a job as it was claimed or read."""
    made = Transition(claimed.id, claimed.run_lease, claimed.state, to, claimed.attempt)
    return attrs.evolve(made, **changes)


def plan(
    claimed: Claimed | JobDetails, to: JobState, *inserts: PreparedInsert, **changes: Any
) -> Plan:
    """The plan of a job as it was claimed or read."""
    return Plan(move(claimed, to, **changes), inserts)


class Steps:
    """What tests of a store do again and again."""

    async def worker(self, world: World, lease: float = 30.0) -> int:
        return await world.store.register("contract", lease)

    async def claim(
        self,
        world: World,
        worker: int,
        most: int = 100,
        *,
        kinds: Sequence[str] = ("k",),
        queue: str = "q",
        deadline: float = 0.0,
        ageing: float = 0.0,
    ) -> list[Claimed]:
        wants = [Want(queue, most, deadline, ageing)]
        return await world.store.claim(worker, wants, dict.fromkeys(kinds))

    async def claim_one(self, world: World, worker: int, **options: Any) -> Claimed:
        [claimed] = await self.claim(world, worker, 1, **options)
        return claimed

    async def read(self, world: World, job_id: int) -> JobDetails:
        [found] = await world.store.get([job_id])
        return found

    async def enqueue(self, world: World, *jobs: PreparedInsert) -> list[int]:
        answers = await world.store.enqueue(jobs)
        assert all(answer.inserted for answer in answers)
        return [answer.id for answer in answers]

    async def settle(
        self, world: World, worker: int | None, *plans: Plan, **options: Any
    ) -> list[Settled]:
        return await world.store.settle(plans, worker=worker, **options)

    async def all_jobs(self, world: World) -> list[JobDetails]:
        return await world.store.list(JobFilter(), 1000)

    async def in_state(
        self, world: World, state: JobState, **options: Any
    ) -> tuple[int, JobDetails]:
        """A worker, and a job brought into a state."""
        worker = await self.worker(world)
        if state is S.SCHEDULED:
            options["run_at"] = world.now() + timedelta(days=1)
        [job_id] = await self.enqueue(world, job(**options))
        if state not in (S.SCHEDULED, S.AVAILABLE):
            claimed = await self.claim_one(world, worker, queue=options.get("queue", "q"))
            if state is not S.RUNNING:
                seconds = 3600.0 if state is S.RETRYABLE else None
                if state is S.WAITING_EXTERNAL:
                    assert await world.store.register_callback(
                        worker, job_id, claimed.run_lease, f"token of {job_id}", 3600.0
                    )
                await self.settle(world, worker, plan(claimed, state, seconds=seconds))
        found = await self.read(world, job_id)
        assert found.state is state
        return worker, found


class StoreContract(Steps, ScheduleContract):
    """The contract. Subclasses provide the fixture `world`."""

    # ---- backlogs

    async def test_a_backlog_is_what_is_due_of_whatever_kind(self, world: World) -> None:
        later = world.now() + timedelta(hours=1)
        await self.enqueue(world, job(), job(kind="a stranger", priority=4), job(run_at=later))
        await self.enqueue(world, job(queue="other"))
        await world.advance(100)
        nothing, both, one = await world.store.backlogs(["nothing", "q", "other"], 10)
        assert (nothing.queue, nothing.due, nothing.oldest) == ("nothing", 0, None)
        assert (both.queue, both.due, one.due) == ("q", 2, 1)
        assert both.oldest == pytest.approx(100, abs=5)

    async def test_a_backlog_is_counted_up_to_a_limit_and_its_oldest_is_found(
        self, world: World
    ) -> None:
        await self.enqueue(world, job(priority=4))
        await world.advance(100)
        await self.enqueue(world, *[job(priority=1)] * 5)
        [found] = await world.store.backlogs(["q"], 3)
        assert found.due == 3
        assert found.oldest == pytest.approx(100, abs=5)

    async def test_a_backlog_has_the_jobs_that_wait_for_others_of_their_key(
        self, world: World
    ) -> None:
        now = world.now()
        await self.in_state(world, S.RUNNING, ordering_key="o")
        ago = [20.0, 50.0, 30.0, -10.0, -1000.0]
        await self.enqueue(
            world,
            *[job(ordering_key="o", run_at=now - timedelta(seconds=s)) for s in ago],
            job(ordering_key="p", run_at=now + timedelta(seconds=5)),
            job(),
        )
        await world.advance(60)
        [found] = await world.store.backlogs(["q"], 100)
        assert found.due == 6
        assert found.oldest == pytest.approx(110, abs=5)
        [found] = await world.store.backlogs(["q"], 2)
        assert found.due == 2
        assert found.oldest == pytest.approx(110, abs=5)

    async def test_a_backlog_has_nothing_that_runs_or_has_ended(self, world: World) -> None:
        await self.in_state(world, S.RUNNING)
        await self.in_state(world, S.COMPLETED)
        await self.in_state(world, S.SCHEDULED)
        [found] = await world.store.backlogs(["q"], 10)
        assert (found.due, found.oldest) == (0, None)

    async def test_the_stores_time_is_near(self, world: World) -> None:
        assert abs((world.store.now() - world.now()).total_seconds()) < 5

    # ---- enqueue

    async def test_what_is_enqueued_is_read_back_to_the_letter(self, world: World) -> None:
        run_at = datetime(2999, 5, 6, 7, 8, 9, 123456, UTC)
        wanted = PreparedInsert(
            kind="kind-é",
            queue="queue",
            args=b'{"b": 1,  "a": -0.0, "n": 1e22, "u": "\\u00e9"}',
            priority=4,
            max_attempts=1000,
            metadata=b'{"x": [1.10]}',
            tags=("a", 'q"uo\\te', "c,{}", "é", "NULL", " "),
            run_at=run_at,
            unique_key=KEY,
            unique_states=DEFAULT_MASK,
            ordering_key="order",
            limit_key="limit",
            deadline=12.5,
        )
        [answer] = await world.store.enqueue([wanted])
        found = await self.read(world, answer.id)
        assert answer.inserted
        assert found.state is S.SCHEDULED
        assert (found.kind, found.queue, found.raw_args) == (wanted.kind, "queue", wanted.args)
        assert (found.priority, found.max_attempts, found.attempt) == (4, 1000, 0)
        assert found.raw_metadata == wanted.metadata
        assert found.tags == wanted.tags
        assert found.run_at == run_at
        assert (found.unique_key, found.unique_states) == (KEY, DEFAULT_MASK)
        assert (found.ordering_key, found.limit_key) == ("order", "limit")
        assert found.deadline == 12.5
        assert (found.run_lease, found.worker_id, found.errors) == (0, None, [])
        assert found.attempted_at is found.deadline_at is found.finalized_at is None

    async def test_defaults_are_read_back_as_defaults(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job())
        found = await self.read(world, job_id)
        assert found.state is S.AVAILABLE
        assert (found.tags, found.raw_metadata, found.metadata) == ((), None, {})
        assert (found.unique_key, found.unique_states, found.ordering_key) == (None, None, None)
        assert found.run_at == found.created_at

    async def test_a_run_at_that_has_passed_is_available(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job(run_at=datetime(2001, 1, 1, tzinfo=UTC)))
        assert (await self.read(world, job_id)).state is S.AVAILABLE

    async def test_ids_grow_in_the_order_given(self, world: World) -> None:
        ids = await self.enqueue(world, *[job(args=b'{"n": %d}' % n) for n in range(50)])
        assert ids == sorted(ids)
        for n, job_id in enumerate(ids):
            assert (await self.read(world, job_id)).raw_args == b'{"n": %d}' % n

    async def test_nothing_to_enqueue_is_nothing(self, world: World) -> None:
        assert await world.store.enqueue([]) == []

    async def test_a_duplicate_names_the_job_that_holds_the_key(self, world: World) -> None:
        [first] = await self.enqueue(world, job(key=KEY))
        plain, duplicate, other = await world.store.enqueue(
            [job(), job(key=KEY), job(key=OTHER_KEY)]
        )
        assert (duplicate.id, duplicate.inserted) == (first, False)
        assert plain.inserted
        assert other.inserted
        assert len(await self.all_jobs(world)) == 3

    async def test_of_equal_keys_in_one_call_the_first_is_inserted(self, world: World) -> None:
        a, b, c = await world.store.enqueue(
            [job(key=KEY, args=b"[1]"), job(key=OTHER_KEY), job(key=KEY, args=b"[2]")]
        )
        assert (a.inserted, b.inserted, c.inserted) == (True, True, False)
        assert c.id == a.id
        assert (await self.read(world, a.id)).raw_args == b"[1]"

    async def test_a_job_that_does_not_hold_its_key_yet_is_no_duplicate(
        self, world: World
    ) -> None:
        only_completed = S.COMPLETED.bit
        answers = await world.store.enqueue(
            [job(key=KEY, mask=only_completed) for _ in range(2)]
        )
        assert [answer.inserted for answer in answers] == [True, True]

    @pytest.mark.parametrize("state", list(S))
    @pytest.mark.parametrize("mask", [1 << n for n in range(8)] + [DEFAULT_MASK, 255])
    async def test_a_job_blocks_duplicates_exactly_in_the_states_of_its_mask(
        self, world: World, state: JobState, mask: int
    ) -> None:
        await self.in_state(world, state, key=KEY, mask=mask)
        [answer] = await world.store.enqueue([job(key=KEY, mask=255)])
        waiting_as_running = state is S.WAITING_EXTERNAL and mask & S.RUNNING.bit
        assert answer.inserted == (not (mask & state.bit or waiting_as_running))

    async def test_news_of_work_is_one_per_queue_and_none_of_the_future(
        self, world: World
    ) -> None:
        await world.news()
        later = world.now() + timedelta(days=1)
        await self.enqueue(world, job(), job(), job(queue="r"), job(queue="s", run_at=later))
        heard = await world.news()
        assert sorted(n.queue for n in heard if isinstance(n, GotWork)) == ["q", "r"]

    async def test_no_news_if_told_not_to(self, world: World) -> None:
        await world.news()
        await world.store.enqueue([job(queue="silent")], notify=False)
        await world.store.enqueue([job(queue="loud")])
        assert await world.news() == [GotWork("loud")]

    # ---- claim

    async def test_claims_are_in_order_of_priority_then_time_then_id(
        self, world: World
    ) -> None:
        old = datetime(2001, 1, 1, tzinfo=UTC)
        ids = await self.enqueue(
            world,
            job("k", priority=3),
            job("l", priority=2, run_at=old + timedelta(seconds=2)),
            job("k", priority=2, run_at=old + timedelta(seconds=1)),
            job("k", priority=1),
            job("l", priority=1, run_at=old),
            job("k", priority=2, run_at=old + timedelta(seconds=1)),
        )
        worker = await self.worker(world)
        claimed = await self.claim(world, worker, kinds=["k", "l", "m"])
        assert [ids.index(c.id) for c in claimed] == [4, 3, 2, 5, 1, 0]

    @pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6])
    async def test_a_limited_claim_takes_the_first_of_that_order(
        self, world: World, most: int
    ) -> None:
        jobs = [job(kind, priority=p) for kind in ("k", "l") for p in (3, 1, 2)]
        ids = await self.enqueue(world, *jobs)
        order = [1, 4, 2, 5, 0, 3]
        worker = await self.worker(world)
        claimed = await self.claim(world, worker, most, kinds=["k", "l"])
        assert [ids.index(c.id) for c in claimed] == order[:most]
        rest = await self.claim(world, worker, kinds=["k", "l"])
        assert [ids.index(c.id) for c in rest] == order[most:]

    async def test_a_claim_gives_what_was_enqueued(self, world: World) -> None:
        [job_id] = await self.enqueue(
            world, job(args=b'{"a": 1.0}', metadata=b'{"m": 1}', tags=("t",), ordering_key="o")
        )
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        assert claimed.id == job_id
        assert (claimed.raw_args, claimed.metadata, claimed.tags) == (
            b'{"a": 1.0}',
            {"m": 1},
            ("t",),
        )
        assert (claimed.kind, claimed.queue, claimed.ordering_key) == ("k", "q", "o")
        assert (claimed.attempt, claimed.run_lease, claimed.max_attempts) == (1, 1, 25)
        found = await self.read(world, job_id)
        assert found.state is S.RUNNING
        assert (found.worker_id, found.attempt, found.run_lease) == (worker, 1, 1)
        assert found.attempted_at is not None

    async def test_a_claimed_job_is_not_claimed_again(self, world: World) -> None:
        await self.enqueue(world, *[job() for _ in range(10)])
        first, second = await self.worker(world), await self.worker(world)
        a = await self.claim(world, first, 6)
        b = await self.claim(world, second, 6)
        assert len(a) == 6
        assert len(b) == 4
        assert not {c.id for c in a} & {c.id for c in b}
        assert await self.claim(world, first) == []

    async def test_unknown_kinds_and_other_queues_are_left_alone(self, world: World) -> None:
        ids = await self.enqueue(world, job("unknown"), job(queue="other"), job())
        worker = await self.worker(world)
        assert [c.id for c in await self.claim(world, worker)] == [ids[2]]
        assert (await self.read(world, ids[0])).state is S.AVAILABLE
        assert (await self.read(world, ids[1])).state is S.AVAILABLE

    async def test_several_queues_in_one_claim_each_with_its_own_room(
        self, world: World
    ) -> None:
        await self.enqueue(world, *[job(queue=q) for q in "aaabbbccc"])
        worker = await self.worker(world)
        wants = [Want("a", 2, 0.0), Want("b", 1, 0.0), Want("d", 5, 0.0)]
        claimed = await world.store.claim(worker, wants, {"k": None})
        assert sorted(c.queue for c in claimed) == ["a", "a", "b"]

    async def test_a_scheduled_job_is_claimed_when_it_is_due(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job(run_at=world.now() + timedelta(seconds=100)))
        worker = await self.worker(world)
        assert await self.claim(world, worker) == []
        await world.advance(101)
        assert (await self.claim_one(world, worker)).id == job_id

    async def test_a_retryable_job_is_claimed_when_it_is_due_under_a_new_lease(
        self, world: World
    ) -> None:
        worker, found = await self.in_state(world, S.RETRYABLE)
        assert await self.claim(world, worker) == []
        await world.advance(3601)
        claimed = await self.claim_one(world, worker)
        assert (claimed.id, claimed.attempt, claimed.run_lease) == (found.id, 2, 2)

    @pytest.mark.parametrize(
        ("own", "kinds", "queues", "expected"),
        [
            (None, None, 300.0, 300.0),
            (None, 60.0, 300.0, 60.0),
            (7.0, 60.0, 300.0, 7.0),
            (0.0, 60.0, 300.0, 0.0),
            (None, 0.0, 300.0, 0.0),
            (None, None, 0.0, 0.0),
        ],
    )
    async def test_a_deadline_is_the_jobs_or_the_kinds_or_the_queues(
        self,
        world: World,
        own: float | None,
        kinds: float | None,
        queues: float,
        expected: float,
    ) -> None:
        [job_id] = await self.enqueue(world, job(deadline=own))
        worker = await self.worker(world)
        [claimed] = await world.store.claim(worker, [Want("q", 1, queues)], {"k": kinds})
        found = await self.read(world, job_id)
        assert claimed.deadline == expected
        if expected == 0:
            assert found.deadline_at is None
        else:
            assert found.deadline_at is not None
            assert found.attempted_at is not None
            took = (found.deadline_at - found.attempted_at).total_seconds()
            assert took == pytest.approx(expected, abs=0.1)

    async def test_next_due(self, world: World) -> None:
        store = world.store
        assert await store.next_due(["q"], ["k"]) is None
        await self.enqueue(world, job(run_at=world.now() + timedelta(seconds=500)))
        await self.enqueue(world, job("unknown"), job(queue="other"))
        due = await store.next_due(["q", "r"], ["k", "l"])
        assert due == pytest.approx(500, abs=60)
        await self.enqueue(world, job("l", run_at=world.now() + timedelta(seconds=100)))
        assert await store.next_due(["q"], ["k", "l"]) == pytest.approx(100, abs=60)
        await self.enqueue(world, job())
        assert await store.next_due(["q"], ["k", "l"]) == 0

    @pytest.mark.parametrize(
        ("mask", "state_before"),
        [(S.AVAILABLE.bit, S.AVAILABLE), (S.SCHEDULED.bit, S.SCHEDULED)],
    )
    async def test_claiming_lets_go_of_a_key_that_running_does_not_hold(
        self, world: World, mask: int, state_before: JobState
    ) -> None:
        run_at = world.now() + timedelta(seconds=10) if state_before is S.SCHEDULED else None
        await self.enqueue(world, job(key=KEY, mask=mask, run_at=run_at))
        worker = await self.worker(world)
        await world.advance(11)
        [blocked] = await world.store.enqueue([job(queue="x", key=KEY)])
        await self.claim_one(world, worker)
        [free] = await world.store.enqueue([job(queue="x", key=KEY)])
        assert (blocked.inserted, free.inserted) == (False, True)

    async def test_claiming_takes_a_key_that_only_running_holds(self, world: World) -> None:
        await self.enqueue(world, job(key=KEY, mask=S.RUNNING.bit))
        worker = await self.worker(world)
        await self.claim_one(world, worker)
        [answer] = await world.store.enqueue([job(key=KEY)])
        assert not answer.inserted

    async def test_a_job_whose_key_is_taken_when_it_is_claimed_is_cancelled_as_a_duplicate(
        self, world: World
    ) -> None:
        ids = await self.enqueue(world, job(key=KEY, mask=S.RUNNING.bit), job())
        [holder] = await self.enqueue(world, job(queue="x", key=KEY))
        worker = await self.worker(world)
        assert [c.id for c in await self.claim(world, worker)] == [ids[1]]
        found = await self.read(world, ids[0])
        assert found.state is S.CANCELLED
        assert found.errors[-1].error == f"cancelled: duplicate of job {holder}"

    # ---- priorities that age

    async def test_waiting_makes_up_for_priority(self, world: World) -> None:
        now = world.now()
        waited = [0, 59, 61, 119, 121, 181, 1e8]
        jobs = [
            job(priority=p, run_at=now - timedelta(seconds=s))
            for p in (4, 3, 2)
            for s in waited
        ]
        ids = await self.enqueue(world, *jobs)
        order = sorted(
            range(len(jobs)),
            key=lambda n: (
                max(1, jobs[n].priority - waited[n % len(waited)] // 60),
                -waited[n % len(waited)],
                n,
            ),
        )
        worker = await self.worker(world)
        taken: list[int] = []
        for most in (1, 2, 3, 100):
            claimed = await self.claim(world, worker, most, ageing=60.0)
            assert len(claimed) == min(most, len(jobs) - len(taken))
            taken += [ids.index(c.id) for c in claimed]
        assert taken == order
        assert {(await self.read(world, i)).priority for i in ids} == {2, 3, 4}

    async def test_priorities_do_not_age_where_the_interval_is_zero(self, world: World) -> None:
        long_ago = world.now() - timedelta(days=3000)
        ids = await self.enqueue(world, job(priority=2, run_at=long_ago), job(priority=1))
        worker = await self.worker(world)
        claimed = await self.claim(world, worker, ageing=0.0)
        assert [c.id for c in claimed] == ids[::-1]

    async def test_ageing_counts_from_run_at_and_across_kinds(self, world: World) -> None:
        ids = await self.enqueue(
            world,
            job("l", priority=2, run_at=world.now() + timedelta(seconds=100)),
            job("k", priority=3),
            job("k", priority=2, ordering_key="o"),
        )
        await world.advance(130)
        worker = await self.worker(world)
        # Counting as 2 (waited 30 s), 1 (130 s), 1 (130 s).
        claimed = await self.claim(world, worker, kinds=["k", "l"], ageing=60.0)
        assert [ids.index(c.id) for c in claimed] == [1, 2, 0]

    # ---- ordering keys

    async def complete(self, world: World, worker: int, claimed: Claimed) -> None:
        [answer] = await self.settle(world, worker, plan(claimed, S.COMPLETED))
        assert answer.applied

    async def test_jobs_of_a_key_start_one_at_a_time_by_run_at_then_id(
        self, world: World
    ) -> None:
        now = world.now()
        ago = [5, 9, 9, 1]
        ids = await self.enqueue(
            world,
            *[job(ordering_key="o", run_at=now - timedelta(seconds=s)) for s in ago],
            job(ordering_key="o"),
        )
        workers = [await self.worker(world), await self.worker(world)]
        for n, expected in enumerate([1, 2, 0, 3, 4]):
            claimed = await self.claim_one(world, workers[n % 2])
            assert ids.index(claimed.id) == expected
            assert await self.claim(world, workers[0]) == []
            assert await self.claim(world, workers[1]) == []
            await self.complete(world, workers[n % 2], claimed)
        assert await self.claim(world, workers[0]) == []

    async def test_keys_do_not_wait_for_each_other(self, world: World) -> None:
        keys = ["a", "a", "b", "c", "b", None, None]
        ids = await self.enqueue(world, *[job(ordering_key=key) for key in keys])
        worker = await self.worker(world)
        first = await self.claim(world, worker, 4)
        assert [ids.index(c.id) for c in first] == [0, 2, 3, 5]
        assert [ids.index(c.id) for c in await self.claim(world, worker)] == [6]
        await self.complete(world, worker, first[1])
        assert [ids.index(c.id) for c in await self.claim(world, worker)] == [4]

    async def test_a_key_is_of_its_queue(self, world: World) -> None:
        ids = await self.enqueue(world, job(ordering_key="o"), job(ordering_key="o", queue="r"))
        worker = await self.worker(world)
        wants = [Want("q", 9, 0.0), Want("r", 9, 0.0)]
        claimed = await world.store.claim(worker, wants, {"k": None})
        assert sorted(c.id for c in claimed) == ids

    async def test_the_order_of_a_key_goes_before_priority(self, world: World) -> None:
        ids = await self.enqueue(
            world,
            job(ordering_key="o", priority=4),
            job(ordering_key="o", priority=1),
            job(ordering_key="p", priority=2),
            job(priority=3),
        )
        worker = await self.worker(world)
        claimed = await self.claim(world, worker)
        assert [ids.index(c.id) for c in claimed] == [2, 3, 0]

    @pytest.mark.parametrize("room", [1, 2, 3])
    async def test_the_keys_of_one_queue_take_no_room_in_another(
        self, world: World, room: int
    ) -> None:
        worker = await self.worker(world)
        past = world.now() - timedelta(seconds=60)
        keyed = [job(ordering_key=str(n), priority=1) for n in range(3)]
        others = [
            job(queue="other", run_at=past, priority=priority, kind=kind)
            for priority in (2, 3)
            for kind in ("k", "l")
        ]
        await self.enqueue(world, *keyed, *others)
        wants = [Want("q", room, 0.0), Want("other", room, 0.0)]
        claimed = await world.store.claim(worker, wants, {"k": None, "l": None})
        assert sorted(one.queue for one in claimed) == ["other"] * room + ["q"] * room

    async def test_a_limited_claim_takes_the_first_of_keys_and_lanes_together(
        self, world: World
    ) -> None:
        now = world.now()
        ids = await self.enqueue(
            world,
            *[
                job(
                    ordering_key=f"key {n}" if n % 3 else None,
                    priority=1 + n % 2,
                    run_at=now - timedelta(seconds=100 - n),
                )
                for n in range(12)
            ],
        )
        worker = await self.worker(world)
        taken: list[int] = []
        for most in (1, 3, 5, 3):
            claimed = await self.claim(world, worker, most)
            assert len(claimed) == most
            taken += [ids.index(c.id) for c in claimed]
        assert taken == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]

    @pytest.mark.parametrize("state", [S.SCHEDULED, S.RETRYABLE])
    async def test_a_job_of_the_future_does_not_hold_its_key(
        self, world: World, state: JobState
    ) -> None:
        worker, later = await self.in_state(world, state, ordering_key="o")
        ids = await self.enqueue(world, job(ordering_key="o"), job(ordering_key="o"))
        claimed = await self.claim_one(world, worker)
        assert claimed.id == ids[0]
        # Due by now, and behind what became visible before.
        await world.advance(100_000)
        await self.complete(world, worker, claimed)
        for expected in (ids[1], later.id):
            claimed = await self.claim_one(world, worker)
            assert claimed.id == expected
            assert await self.claim(world, worker) == []
            await self.complete(world, worker, claimed)

    async def test_jobs_that_become_due_get_in_line_by_run_at(self, world: World) -> None:
        now = world.now()
        due = [30, 10, 20, 10]
        ids = await self.enqueue(
            world,
            *[job(ordering_key="o", run_at=now + timedelta(seconds=s)) for s in due],
        )
        worker = await self.worker(world)
        assert await self.claim(world, worker) == []
        await world.advance(60)
        for expected in (1, 3, 2, 0):
            claimed = await self.claim_one(world, worker)
            assert ids.index(claimed.id) == expected
            await self.complete(world, worker, claimed)

    @pytest.mark.parametrize("state", [S.RUNNING, S.WAITING_EXTERNAL])
    async def test_a_job_that_has_started_holds_its_key(
        self, world: World, state: JobState
    ) -> None:
        worker, found = await self.in_state(world, state, ordering_key="o")
        [next_id] = await self.enqueue(world, job(ordering_key="o"))
        assert await self.claim(world, worker) == []
        await self.settle(world, None, plan(found, S.CANCELLED))
        assert (await self.claim_one(world, worker)).id == next_id

    @pytest.mark.parametrize("state", [S.RUNNING, S.WAITING_EXTERNAL])
    async def test_a_job_that_is_given_back_keeps_its_place(
        self, world: World, state: JobState
    ) -> None:
        worker, found = await self.in_state(world, state, ordering_key="o")
        await self.enqueue(world, job(ordering_key="o"))
        await self.settle(world, None, plan(found, S.AVAILABLE, attempt=0))
        again = await self.claim_one(world, worker)
        assert (again.id, again.run_lease) == (found.id, 2)
        assert await self.claim(world, worker) == []

    @pytest.mark.parametrize(
        "to", [S.COMPLETED, S.FAILED, S.CANCELLED, S.RETRYABLE, S.SCHEDULED]
    )
    async def test_every_other_move_lets_the_next_of_the_key_start(
        self, world: World, to: JobState
    ) -> None:
        worker, found = await self.in_state(world, S.RUNNING, ordering_key="o")
        [next_id] = await self.enqueue(world, job(ordering_key="o"))
        seconds = None if to.terminal else 100.0
        await self.settle(world, worker, plan(found, to, seconds=seconds))
        assert (await self.claim_one(world, worker)).id == next_id

    async def test_a_retry_that_is_due_at_once_goes_behind_those_that_wait(
        self, world: World
    ) -> None:
        worker, found = await self.in_state(world, S.RUNNING, ordering_key="o")
        [next_id] = await self.enqueue(world, job(ordering_key="o"))
        await world.advance(1)
        await self.settle(world, worker, plan(found, S.RETRYABLE, seconds=0.0))
        claimed = await self.claim_one(world, worker)
        assert claimed.id == next_id
        await self.complete(world, worker, claimed)
        assert (await self.claim_one(world, worker)).id == found.id

    async def test_a_cancelled_job_is_no_longer_in_line(self, world: World) -> None:
        ids = await self.enqueue(world, *[job(ordering_key="o") for _ in range(3)])
        found = await self.read(world, ids[0])
        await self.settle(world, None, plan(found, S.CANCELLED))
        worker = await self.worker(world)
        assert (await self.claim_one(world, worker)).id == ids[1]

    async def test_a_rescued_job_lets_the_next_of_its_key_start(self, world: World) -> None:
        worker = await self.worker(world)
        [job_id, next_id] = await self.enqueue(
            world, job(ordering_key="o"), job(ordering_key="o")
        )
        await self.claim_one(world, worker)
        await world.advance(31)
        assert await self.rescue(world) == [(job_id, Lost.STALE_WORKER)]
        other = await self.worker(world)
        assert await self.claim(world, other) == []
        found = await self.read(world, job_id)
        await self.settle(world, None, plan(found, S.RETRYABLE, seconds=100.0))
        assert (await self.claim_one(world, other)).id == next_id

    async def test_a_key_orders_across_kinds_and_an_unknown_kind_holds_it(
        self, world: World
    ) -> None:
        ids = await self.enqueue(
            world,
            job("k", ordering_key="o"),
            job("unknown", ordering_key="o"),
            job("k", ordering_key="o"),
            job("unknown", ordering_key="p"),
            job("k", ordering_key="p"),
        )
        worker = await self.worker(world)
        await self.complete(world, worker, await self.claim_one(world, worker))
        assert await self.claim(world, worker) == []
        assert await world.store.next_due(["q"], ["k"]) is None
        claimed = await self.claim(world, worker, kinds=["k", "unknown"])
        assert [ids.index(c.id) for c in claimed] == [1, 3]
        for one in claimed:
            await self.complete(world, worker, one)
        claimed = await self.claim(world, worker)
        assert [ids.index(c.id) for c in claimed] == [2, 4]

    async def test_next_due_does_not_count_jobs_whose_key_is_taken(self, world: World) -> None:
        store = world.store
        worker, found = await self.in_state(world, S.RUNNING, ordering_key="o")
        await self.enqueue(world, job(ordering_key="o"))
        assert await store.next_due(["q"], ["k"]) is None
        later = world.now() + timedelta(seconds=200)
        await self.enqueue(world, job(ordering_key="p", run_at=later))
        assert await store.next_due(["q"], ["k"]) == pytest.approx(200, abs=60)
        await self.settle(world, worker, plan(found, S.COMPLETED))
        assert await store.next_due(["q"], ["k"]) == 0

    async def test_a_job_that_makes_way_for_its_key_is_news_of_work(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING, ordering_key="o")
        await world.news()
        await self.settle(world, worker, plan(found, S.COMPLETED))
        assert await world.news() == [GotWork("q")]
        worker, found = await self.in_state(world, S.RUNNING, ordering_key="o")
        await world.news()
        await self.settle(world, worker, plan(found, S.COMPLETED), notify=False)
        assert await world.news() == []

    async def test_a_duplicate_at_the_head_of_a_key_makes_way(self, world: World) -> None:
        """The first of the key needs a unique key back that another job holds."""
        ids = await self.enqueue(
            world,
            job(ordering_key="o", key=KEY, mask=S.RUNNING.bit),
            job(ordering_key="o"),
        )
        await self.enqueue(world, job(queue="x", key=KEY))
        worker = await self.worker(world)
        assert await self.claim(world, worker) == []
        assert (await self.read(world, ids[0])).state is S.CANCELLED
        assert (await self.claim_one(world, worker)).id == ids[1]

    async def test_many_keys_are_all_served(self, world: World) -> None:
        ids = await self.enqueue(
            world, *[job(ordering_key=f"key {n % 400}") for n in range(800)]
        )
        worker = await self.worker(world)
        for half in (ids[:400], ids[400:]):
            claimed: list[Claimed] = []
            for _ in range(40):
                claimed += await self.claim(world, worker, 50)
            assert sorted(c.id for c in claimed) == half
            await self.settle(world, worker, *[plan(c, S.COMPLETED) for c in claimed])

    # ---- settle

    @pytest.mark.parametrize(
        ("to", "finalized"),
        [
            (S.COMPLETED, True),
            (S.FAILED, True),
            (S.CANCELLED, True),
            (S.RETRYABLE, False),
            (S.SCHEDULED, False),
            (S.AVAILABLE, False),
            (S.WAITING_EXTERNAL, False),
        ],
    )
    async def test_a_running_job_moves_to_every_state(
        self, world: World, to: JobState, finalized: bool
    ) -> None:
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker, deadline=60.0)
        if to is S.WAITING_EXTERNAL:
            await world.store.register_callback(worker, job_id, claimed.run_lease, "t", 60.0)
        [answer] = await self.settle(world, worker, plan(claimed, to))
        found = await self.read(world, job_id)
        assert answer.applied
        assert found.state is to
        assert (found.finalized_at is not None) == finalized
        assert (found.worker_id, found.deadline_at) == (None, None)
        assert found.run_lease == 1

    async def test_a_move_sets_the_attempts_and_the_delay(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        await self.settle(world, worker, plan(claimed, S.SCHEDULED, seconds=100.0, attempt=0))
        found = await self.read(world, job_id)
        assert found.attempt == 0
        assert (found.run_at - world.now()).total_seconds() == pytest.approx(100, abs=60)

    async def test_progress_stays_until_completion(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        assert claimed.raw_progress is None
        await self.settle(
            world, worker, plan(claimed, S.RETRYABLE, seconds=0.0, progress=b"[1]")
        )
        claimed = await self.claim_one(world, worker)
        assert claimed.raw_progress == b"[1]"
        await self.settle(world, worker, plan(claimed, S.AVAILABLE))
        claimed = await self.claim_one(world, worker)
        assert claimed.raw_progress == b"[1]"
        await self.settle(world, worker, plan(claimed, S.COMPLETED, progress=b"[2]"))
        assert (await self.read(world, job_id)).raw_progress is None

    async def test_output_is_written_with_the_move_that_brings_it(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        stale = attrs.evolve(plan(claimed, S.COMPLETED, output=b"[1]").move, run_lease=7)
        await self.settle(world, worker, Plan(stale))
        assert (await self.read(world, job_id)).raw_output is None
        await self.settle(world, worker, plan(claimed, S.COMPLETED, output=b'{"a":  1}'))
        assert (await self.read(world, job_id)).raw_output == b'{"a":  1}'

    async def test_a_dead_letter_says_why(self, world: World) -> None:
        worker = await self.worker(world)
        [job_id] = await self.enqueue(world, job())
        claimed = await self.claim_one(world, worker)
        await self.settle(world, worker, plan(claimed, S.FAILED, dead_letter="because"))
        found = await self.read(world, job_id)
        assert (found.state, found.dead_letter) == (S.FAILED, "because")
        await self.settle(world, None, plan(found, S.AVAILABLE, attempt=0))
        assert (await self.read(world, job_id)).dead_letter is None

    async def test_a_callback_is_registered_by_the_attempt_alone(self, world: World) -> None:
        worker = await self.worker(world)
        register = world.store.register_callback
        [job_id] = await self.enqueue(world, job())
        claimed = await self.claim_one(world, worker)
        assert await register(worker, job_id, claimed.run_lease, "a", 60.0)
        assert await register(worker, job_id, claimed.run_lease, "b", 60.0)
        found = await self.read(world, job_id)
        assert found.callback_token == "b"
        assert found.callback_until is not None
        assert 0 < (found.callback_until - world.now()).total_seconds() < 120
        assert not await register(worker, job_id, claimed.run_lease + 1, "c", 60.0)
        assert not await register(
            await self.worker(world), job_id, claimed.run_lease, "c", 60.0
        )
        with pytest.raises(Fenced):
            await register(10**6, job_id, claimed.run_lease, "c", 60.0)
        await self.settle(world, worker, plan(claimed, S.COMPLETED))
        found = await self.read(world, job_id)
        assert (found.callback_token, found.callback_until) == (None, None)

    async def test_a_move_may_ask_for_a_certain_callback(self, world: World) -> None:
        _, found = await self.in_state(world, S.WAITING_EXTERNAL)
        [other] = await self.settle(world, None, plan(found, S.COMPLETED, token="another"))
        assert not other.applied
        answer = b'{"token": "x", "payload": 1}'
        wanted = plan(found, S.AVAILABLE, token=found.callback_token, answer=answer)
        [settled] = await self.settle(world, None, wanted)
        assert settled.applied
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        assert claimed.raw_callback_answer == answer
        await self.settle(world, worker, plan(claimed, S.COMPLETED))
        assert (await self.read(world, found.id)).raw_callback_answer is None

    async def test_errors_are_recorded_with_their_attempt(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        for text in ("first", "second"):
            claimed = await self.claim_one(world, worker)
            await self.settle(
                world, worker, plan(claimed, S.RETRYABLE, seconds=0.0, error=text)
            )
        claimed = await self.claim_one(world, worker)
        await self.settle(world, worker, plan(claimed, S.FAILED, error="third"))
        errors = (await self.read(world, job_id)).errors
        assert [(e.error, e.attempt, e.terminal) for e in errors] == [
            ("first", 1, False),
            ("second", 2, False),
            ("third", 3, True),
        ]
        assert errors[0].at <= errors[1].at <= errors[2].at

    async def test_the_latest_25_errors_are_kept(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job(max_attempts=1000))
        worker = await self.worker(world)
        for n in range(27):
            claimed = await self.claim_one(world, worker)
            await self.settle(
                world, worker, plan(claimed, S.RETRYABLE, seconds=0.0, error=str(n))
            )
        errors = (await self.read(world, job_id)).errors
        assert [e.error for e in errors] == [str(n) for n in range(2, 27)]

    async def test_a_plan_with_another_lease_is_stale_and_writes_nothing(
        self, world: World
    ) -> None:
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        wrong = Plan(move(claimed, S.COMPLETED, run_lease=claimed.run_lease + 1), (job("b"),))
        [answer] = await self.settle(world, worker, wrong)
        assert not answer.applied
        assert (await self.read(world, job_id)).state is S.RUNNING
        assert len(await self.all_jobs(world)) == 1

    async def test_a_plan_for_another_state_is_stale(self, world: World) -> None:
        _, found = await self.in_state(world, S.AVAILABLE)
        wrong = Plan(move(found, S.CANCELLED, from_state=S.RETRYABLE))
        assert not (await self.settle(world, None, wrong))[0].applied
        assert (await self.read(world, found.id)).state is S.AVAILABLE

    async def test_a_plan_for_a_job_that_is_gone_is_stale(self, world: World) -> None:
        nobody = Plan(Transition(10**12, 1, S.RUNNING, S.COMPLETED, 1), (job("b"),))
        assert not (await self.settle(world, None, nobody))[0].applied
        assert await self.all_jobs(world) == []

    async def test_a_plan_applies_once(self, world: World) -> None:
        """A commit whose answer was lost: the same plan again finds its guard gone."""
        await self.enqueue(world, job())
        worker = await self.worker(world)
        made = plan(await self.claim_one(world, worker), S.COMPLETED, job("b"))
        [first] = await self.settle(world, worker, made)
        [again] = await self.settle(world, worker, made)
        assert (first.applied, again.applied) == (True, False)
        assert [j.kind for j in await self.all_jobs(world)] == ["b", "k"]

    @pytest.mark.parametrize("to", [s for s in S if s is not S.RUNNING])
    async def test_a_completed_job_never_moves(self, world: World, to: JobState) -> None:
        _, found = await self.in_state(world, S.COMPLETED)
        [answer] = await self.settle(world, None, plan(found, to, job("b")))
        assert not answer.applied
        assert (await self.read(world, found.id)).state is S.COMPLETED
        assert len(await self.all_jobs(world)) == 1

    async def test_inserts_happen_in_the_order_of_the_plan(self, world: World) -> None:
        await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        keys = [bytes([255 - n]) * 16 for n in range(16)]
        inserts = [
            job("b", args=b"[%d]" % n, key=keys[n], queue="xyz"[n % 3]) for n in range(16)
        ]
        [answer] = await self.settle(world, worker, plan(claimed, S.COMPLETED, *inserts))
        ids = [i.id for i in answer.insertions]
        assert all(i is not None for i in ids)
        assert ids == sorted(ids, key=lambda i: i or 0)
        for n, job_id in enumerate(ids):
            assert job_id is not None
            assert (await self.read(world, job_id)).raw_args == b"[%d]" % n

    async def test_a_set_settles_each_plan_by_its_own_guard(self, world: World) -> None:
        ids = await self.enqueue(world, *[job() for _ in range(4)])
        worker = await self.worker(world)
        claimed = await self.claim(world, worker)
        plans = [plan(c, S.COMPLETED, job("b", args=b"[%d]" % c.id)) for c in claimed]
        plans[1].move.run_lease += 1
        plans[2].move.to_state = S.RETRYABLE
        plans[2].move.seconds = 60.0
        answers = await self.settle(world, worker, *plans)
        assert [a.applied for a in answers] == [True, False, True, True]
        states = [(await self.read(world, i)).state for i in ids]
        assert states == [S.COMPLETED, S.RUNNING, S.RETRYABLE, S.COMPLETED]
        inserted = [j.raw_args for j in await self.all_jobs(world) if j.kind == "b"]
        assert sorted(inserted) == sorted(b"[%d]" % ids[n] for n in (0, 2, 3))

    async def test_a_follow_up_whose_key_is_held_is_left_out_and_names_the_holder(
        self, world: World
    ) -> None:
        [holder] = await self.enqueue(world, job("b", queue="x", key=KEY))
        [job_id] = await self.enqueue(world, job())
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        made = plan(claimed, S.COMPLETED, job("b", key=KEY), job("c"), job("b", key=OTHER_KEY))
        [answer] = await self.settle(world, worker, made)
        assert answer.applied
        assert answer.duplicate_of is None
        skipped, plain, other = answer.insertions
        assert (skipped.id, skipped.holder_id) == (None, holder)
        assert plain.id is not None
        assert other.id is not None
        assert (await self.read(world, job_id)).state is S.COMPLETED

    async def test_of_equal_keys_in_one_set_the_first_plan_inserts(self, world: World) -> None:
        await self.enqueue(world, job(), job())
        worker = await self.worker(world)
        first, second = await self.claim(world, worker)
        a, b = await self.settle(
            world,
            worker,
            plan(
                first,
                S.COMPLETED,
                job("b", args=b"[1]", key=KEY),
                job("b", args=b"[2]", key=KEY),
            ),
            plan(second, S.COMPLETED, job("b", args=b"[3]", key=KEY)),
        )
        made = a.insertions[0].id
        assert made is not None
        assert [(i.id, i.holder_id) for i in a.insertions[1:] + b.insertions] == [
            (None, made)
        ] * 2
        assert [j.raw_args for j in await self.all_jobs(world) if j.kind == "b"] == [b"[1]"]

    async def test_a_stale_plan_does_not_shadow_another_with_the_same_key(
        self, world: World
    ) -> None:
        await self.enqueue(world, job(), job())
        worker = await self.worker(world)
        first, second = await self.claim(world, worker)
        stale = plan(first, S.COMPLETED, job("b", args=b"[1]", key=KEY))
        stale.move.run_lease += 1
        answers = await self.settle(
            world, worker, stale, plan(second, S.COMPLETED, job("b", args=b"[2]", key=KEY))
        )
        assert [a.applied for a in answers] == [False, True]
        assert [j.raw_args for j in await self.all_jobs(world) if j.kind == "b"] == [b"[2]"]

    async def test_a_job_that_stages_its_own_key_is_its_own_duplicate(
        self, world: World
    ) -> None:
        """The trap that ADR-046 names: the chain stops, unless its own mask lets go."""
        [job_id] = await self.enqueue(world, job(key=KEY))
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        [answer] = await self.settle(world, worker, plan(claimed, S.COMPLETED, job(key=KEY)))
        assert answer.insertions[0].holder_id == job_id

    async def test_a_key_let_go_of_and_taken_in_one_set_changes_hands(
        self, world: World
    ) -> None:
        active = DEFAULT_MASK & ~S.COMPLETED.bit
        await self.enqueue(world, job(key=KEY, mask=active), job())
        worker = await self.worker(world)
        first, second = await self.claim(world, worker)
        answers = await self.settle(
            world,
            worker,
            plan(first, S.COMPLETED),
            plan(second, S.COMPLETED, job("b", key=KEY)),
        )
        made = answers[1].insertions[0].id
        assert made is not None
        [duplicate] = await world.store.enqueue([job(key=KEY)])
        assert (duplicate.inserted, duplicate.id) == (False, made)

    async def test_completing_keeps_the_key_until_the_job_is_pruned(self, world: World) -> None:
        _, found = await self.in_state(world, S.COMPLETED, key=KEY)
        [blocked] = await world.store.enqueue([job(key=KEY)])
        await world.advance(1000)
        assert await world.store.prune(Retention(completed=900.0), 10) == 1
        [free] = await world.store.enqueue([job(key=KEY)])
        assert (blocked.inserted, blocked.id) == (False, found.id)
        assert free.inserted

    @pytest.mark.parametrize("to", [S.FAILED, S.CANCELLED])
    async def test_failing_lets_go_of_the_key(self, world: World, to: JobState) -> None:
        await self.in_state(world, to, key=KEY)
        [answer] = await world.store.enqueue([job(key=KEY)])
        assert answer.inserted

    @pytest.mark.parametrize(
        "to", [S.RETRYABLE, S.SCHEDULED, S.AVAILABLE, S.FAILED, S.CANCELLED]
    )
    async def test_a_job_that_needs_its_key_back_and_finds_it_taken_is_cancelled(
        self, world: World, to: JobState
    ) -> None:
        """Retry, snooze, hand-back, rescue: the older job is cancelled as a duplicate."""
        mask = to.bit | S.AVAILABLE.bit
        [job_id] = await self.enqueue(world, job(key=KEY, mask=mask))
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        [holder] = await self.enqueue(world, job(queue="x", key=KEY))
        [answer] = await self.settle(world, worker, plan(claimed, to, seconds=1.0))
        found = await self.read(world, job_id)
        assert answer.applied
        assert answer.duplicate_of == holder
        assert found.state is S.CANCELLED
        assert found.finalized_at is not None
        assert found.unique_key is None
        assert found.errors[-1].error == f"cancelled: duplicate of job {holder}"

    async def test_completing_without_the_key_if_another_holds_it(self, world: World) -> None:
        mask = S.COMPLETED.bit | S.AVAILABLE.bit
        [job_id] = await self.enqueue(world, job(key=KEY, mask=mask))
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        [holder] = await self.enqueue(world, job(queue="x", key=KEY))
        [answer] = await self.settle(world, worker, plan(claimed, S.COMPLETED, job("b")))
        found = await self.read(world, job_id)
        assert answer.applied
        assert answer.duplicate_of == holder
        assert answer.insertions[0].id is not None
        assert found.state is S.COMPLETED
        assert (found.unique_key, found.errors) == (None, [])

    async def test_a_job_that_needs_its_key_back_comes_before_a_follow_up(
        self, world: World
    ) -> None:
        mask = S.RETRYABLE.bit | S.AVAILABLE.bit
        await self.enqueue(world, job(), job(key=KEY, mask=mask))
        worker = await self.worker(world)
        first, second = await self.claim(world, worker)
        a, b = await self.settle(
            world,
            worker,
            plan(first, S.COMPLETED, job("b", key=KEY)),
            plan(second, S.RETRYABLE, seconds=60.0),
        )
        assert a.insertions[0].holder_id == second.id
        assert b.duplicate_of is None
        assert (await self.read(world, second.id)).state is S.RETRYABLE

    async def test_strict_changes_nothing_if_the_key_is_taken(self, world: World) -> None:
        _, found = await self.in_state(world, S.FAILED, key=KEY)
        [holder] = await self.enqueue(world, job(queue="x", key=KEY))
        with pytest.raises(KeyTaken) as caught:
            await self.settle(
                world, None, plan(found, S.AVAILABLE, job("b"), attempt=0), strict=True
            )
        assert caught.value.holder_id == holder
        assert (await self.read(world, found.id)).state is S.FAILED
        assert len(await self.all_jobs(world)) == 2

    @pytest.mark.parametrize("strict", [True, False])
    async def test_a_retried_job_takes_its_key_back(self, world: World, strict: bool) -> None:
        _, found = await self.in_state(world, S.FAILED, key=KEY)
        made = plan(found, S.AVAILABLE, attempt=0, seconds=0.0)
        [answer] = await self.settle(world, None, made, strict=strict)
        [duplicate] = await world.store.enqueue([job(key=KEY)])
        assert (answer.applied, duplicate.id) == (True, found.id)
        assert (await self.read(world, found.id)).attempt == 0

    async def test_others_settling_a_running_attempt_is_news(self, world: World) -> None:
        _, found = await self.in_state(world, S.RUNNING)
        await world.news()
        await self.settle(world, None, plan(found, S.CANCELLED))
        heard = await world.news()
        assert CutElsewhere(found.id, found.run_lease, S.CANCELLED) in heard

    async def test_a_worker_settling_its_own_attempt_is_no_news(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.news()
        await self.settle(world, worker, plan(found, S.COMPLETED))
        await self.enqueue(world, job(queue="end"))
        assert await world.news() == [GotWork("end")]

    async def test_a_follow_up_and_a_hand_back_are_news_of_work(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.news()
        inserts = [
            job("b", queue="r"),
            job("b", queue="s", run_at=world.now() + timedelta(days=9)),
        ]
        await self.settle(world, worker, plan(found, S.AVAILABLE, *inserts, seconds=0.0))
        assert sorted(map(repr, await world.news())) == [
            "GotWork(queue='q')",
            "GotWork(queue='r')",
        ]

    async def test_workers_may_be_told_of_work_by_itself(self, world: World) -> None:
        await world.store.tell(["q", "r"])
        assert sorted(map(repr, await world.news())) == [
            "GotWork(queue='q')",
            "GotWork(queue='r')",
        ]

    # ---- progress and output

    async def test_progress_is_kept_as_it_is_given(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        text = b'{"percent": 1.50,  "message": "\\u00e9"}'
        report = (found.id, found.run_lease, text)
        assert await world.store.record_progress(worker, [report]) == [True]
        read = await self.read(world, found.id)
        assert read.raw_progress == text
        assert (read.progress.percent, read.progress.message) == (1.5, "é")
        assert read.state is S.RUNNING

    async def test_progress_of_many_is_kept_of_those_whose_guard_holds(
        self, world: World
    ) -> None:
        mine, other = await self.worker(world), await self.worker(world)
        ids = await self.enqueue(world, *[job() for _ in range(4)])
        a, b, c = await self.claim(world, mine, 3)
        d = await self.claim_one(world, other)
        await self.settle(world, mine, plan(c, S.RETRYABLE, seconds=3600.0))
        reports = [
            (d.id, d.run_lease, b"1"),
            (c.id, c.run_lease, b"2"),
            (b.id, b.run_lease + 1, b"3"),
            (a.id, a.run_lease, b'{"percent": 4}'),
            (10**12, 1, b"5"),
        ]
        kept = await world.store.record_progress(mine, reports)
        assert kept == [False, False, False, True, False]
        texts = [(await self.read(world, job_id)).raw_progress for job_id in ids]
        assert texts == [b'{"percent": 4}', None, None, None]

    async def test_a_handler_that_waits_in_memory_may_report_progress(
        self, world: World
    ) -> None:
        """Its row may say waiting_external; one without a worker is nobody's to report on."""
        worker, found = await self.in_state(world, S.WAITING_EXTERNAL)
        kept = await world.store.record_progress(worker, [(found.id, found.run_lease, b"{}")])
        assert kept == [found.worker_id == worker]

    async def test_a_fenced_worker_reports_no_progress(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.advance(100)
        await world.store.rescue(10, deadline_slack=0, kinds=["k"], strangers_after=0)
        with pytest.raises(Fenced):
            await world.store.record_progress(worker, [(found.id, found.run_lease, b"{}")])
        assert (await self.read(world, found.id)).raw_progress is None

    async def test_no_progress_to_record_is_nothing(self, world: World) -> None:
        assert await world.store.record_progress(await self.worker(world), []) == []

    @pytest.mark.parametrize(
        "to", [S.RETRYABLE, S.SCHEDULED, S.AVAILABLE, S.FAILED, S.CANCELLED, S.WAITING_EXTERNAL]
    )
    @pytest.mark.parametrize("with_the_move", [True, False])
    async def test_progress_survives_everything_but_completion(
        self, world: World, to: JobState, with_the_move: bool
    ) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.store.record_progress(worker, [(found.id, found.run_lease, b'{"a": 1}')])
        await world.store.register_callback(worker, found.id, found.run_lease, "t", 60.0)
        said = b'{"percent": 2}' if with_the_move else None
        await self.settle(world, worker, plan(found, to, seconds=0.0, progress=said))
        left = (await self.read(world, found.id)).raw_progress
        assert left == (said or b'{"a": 1}')
        if to in (S.RETRYABLE, S.SCHEDULED, S.AVAILABLE):
            again = await self.claim_one(world, worker)
            assert again.raw_progress == left

    async def test_a_rescued_job_is_given_with_its_progress(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.store.record_progress(worker, [(found.id, found.run_lease, b"{}")])
        await world.advance(100)
        [lost] = await world.store.rescue(10, deadline_slack=0, kinds=["k"], strangers_after=0)
        assert lost.job.raw_progress == b"{}"

    async def test_completion_removes_the_progress_and_writes_the_output(
        self, world: World
    ) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.store.record_progress(worker, [(found.id, found.run_lease, b"{}")])
        await self.settle(
            world, worker, plan(found, S.COMPLETED, progress=b"{}", output=b'{"n":  1.0}')
        )
        read = await self.read(world, found.id)
        assert (read.raw_progress, read.raw_output, read.output) == (
            None,
            b'{"n":  1.0}',
            {"n": 1.0},
        )
        [listed] = await self.all_jobs(world)
        assert listed.raw_output == b'{"n":  1.0}'

    async def test_a_stale_plan_writes_neither(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await self.settle(world, worker, plan(found, S.RETRYABLE, seconds=60.0))
        for to in (S.COMPLETED, S.RETRYABLE):
            [late] = await self.settle(
                world, worker, plan(found, to, seconds=0.0, progress=b"1", output=b"2")
            )
            assert not late.applied
        read = await self.read(world, found.id)
        assert (read.raw_progress, read.raw_output) == (None, None)

    async def test_nothing_to_settle_is_nothing(self, world: World) -> None:
        assert await world.store.settle([], worker=None) == []

    # ---- callbacks

    async def expecting(
        self, world: World, *, timeout: float = 600.0, deadline: float = 0.0, **options: Any
    ) -> tuple[int, Claimed, Wait]:
        """A worker, and an attempt of its own that expects a callback."""
        worker = await self.worker(world)
        [job_id] = await self.enqueue(world, job(**options))
        claimed = await self.claim_one(world, worker, deadline=deadline)
        token = f"token of {job_id}"
        assert await world.store.register_callback(
            worker, job_id, claimed.run_lease, token, timeout
        )
        return worker, claimed, Wait(job_id, claimed.run_lease, token)

    async def test_an_attempt_waits_with_its_worker_and_goes_on_under_its_lease(
        self, world: World
    ) -> None:
        worker, _, wait = await self.expecting(world, deadline=60.0)
        assert await world.store.begin_waits(worker, [wait]) == [Waited(True, None)]
        found = await self.read(world, wait.job_id)
        assert (found.state, found.worker_id) == (S.WAITING_EXTERNAL, worker)
        assert (found.run_lease, found.attempt) == (wait.run_lease, 1)
        assert found.deadline_at is None
        assert found.callback_until is not None
        await world.advance(100)
        await world.store.beat(worker)
        assert await self.rescue(world) == []
        left = attrs.evolve(wait, seconds=40.0)
        assert await world.store.end_waits(worker, [left]) == [Waited(False, None)]
        found = await self.read(world, wait.job_id)
        assert (found.state, found.worker_id) == (S.RUNNING, worker)
        assert found.deadline_at is not None
        assert (found.deadline_at - world.now()).total_seconds() == pytest.approx(40, abs=20)
        unlimited = attrs.evolve(wait, seconds=None)
        assert await world.store.end_waits(worker, [unlimited]) == [Waited(False, None)]
        assert (await self.read(world, wait.job_id)).deadline_at is None

    async def test_waits_are_begun_and_ended_in_sets_each_by_its_own_guard(
        self, world: World
    ) -> None:
        worker = await self.worker(world)
        await self.enqueue(world, *[job() for _ in range(5)])
        waits = []
        for claimed in await self.claim(world, worker):
            token = f"token {claimed.id}"
            await world.store.register_callback(
                worker, claimed.id, claimed.run_lease, token, 600.0
            )
            waits.append(Wait(claimed.id, claimed.run_lease, token))
        waits.reverse()
        waits[1] = attrs.evolve(waits[1], run_lease=7)
        waits[3] = attrs.evolve(waits[3], token="another")
        expected = [Waited(True, None), None, Waited(True, None), None, Waited(True, None)]
        assert await world.store.begin_waits(worker, waits) == expected
        # The answer was lost, and the call is made again.
        assert await world.store.begin_waits(worker, waits) == expected
        ended = [None if one is None else Waited(False, None) for one in expected]
        assert await world.store.end_waits(worker, waits) == ended
        assert await world.store.end_waits(worker, waits) == ended
        other = await self.worker(world)
        assert await world.store.begin_waits(other, waits) == [None] * 5

    async def test_a_callback_answered_early_does_not_wait(self, world: World) -> None:
        worker, _, wait = await self.expecting(world)
        answer = b'{"token":"t","payload":[1.10]}'
        assert await world.store.answer_callback(
            wait.job_id, wait.run_lease, wait.token, answer
        )
        assert await world.store.begin_waits(worker, [wait]) == [Waited(False, answer)]
        assert (await self.read(world, wait.job_id)).state is S.RUNNING

    async def test_an_answer_reaches_the_attempt_that_waits_once(self, world: World) -> None:
        worker, _, wait = await self.expecting(world)
        await world.store.begin_waits(worker, [wait])
        assert await world.store.answered(worker) == []
        await world.news()
        answer = b'{"token":"t","payload":{"a":  1}}'
        give = world.store.answer_callback
        assert not await give(wait.job_id, wait.run_lease + 1, wait.token, answer)
        assert not await give(wait.job_id, wait.run_lease, "another", answer)
        assert await give(wait.job_id, wait.run_lease, wait.token, answer)
        assert not await give(wait.job_id, wait.run_lease, wait.token, b"null")
        assert await world.news() == [Answered(wait.job_id, wait.run_lease)]
        [held] = await world.store.answered(worker)
        assert (held.id, held.token, held.answered) == (wait.job_id, wait.token, True)
        assert await world.store.begin_waits(worker, [wait]) == [Waited(True, answer)]
        assert await world.store.end_waits(worker, [wait]) == [Waited(False, answer)]
        assert await world.store.answered(worker) == []
        found = await self.read(world, wait.job_id)
        assert (found.state, found.raw_callback_answer) == (S.RUNNING, answer)

    async def test_running_lists_attempts_that_wait(self, world: World) -> None:
        worker, _, wait = await self.expecting(world)
        [held] = await world.store.running(worker)
        assert (held.state, held.token, held.answered) == (S.RUNNING, wait.token, False)
        await world.store.begin_waits(worker, [wait])
        [held] = await world.store.running(worker)
        assert (held.state, held.answered) == (S.WAITING_EXTERNAL, False)
        await world.store.answer_callback(wait.job_id, wait.run_lease, wait.token, b"1")
        [held] = await world.store.running(worker)
        assert held.answered

    async def test_nobody_holds_a_parked_job_so_its_answer_comes_with_a_move(
        self, world: World
    ) -> None:
        worker, claimed, wait = await self.expecting(world)
        parked = plan(claimed, S.WAITING_EXTERNAL, token=wait.token)
        assert (await self.settle(world, worker, parked))[0].applied
        give = world.store.answer_callback
        assert not await give(wait.job_id, wait.run_lease, wait.token, b"1")
        found = await self.read(world, wait.job_id)
        moved = plan(found, S.AVAILABLE, token=wait.token, answer=b"[2]", attempt=0, seconds=0)
        again = plan(found, S.COMPLETED, token=wait.token)
        assert [a.applied for a in await self.settle(world, None, moved)] == [True]
        assert [a.applied for a in await self.settle(world, None, again)] == [False]
        claimed = await self.claim_one(world, worker)
        assert (claimed.attempt, claimed.raw_callback_answer) == (1, b"[2]")

    async def test_parking_what_was_answered_makes_it_available_unspent(
        self, world: World
    ) -> None:
        worker, claimed, wait = await self.expecting(world)
        await world.store.answer_callback(wait.job_id, wait.run_lease, wait.token, b"[1]")
        await world.news()
        parked = plan(claimed, S.WAITING_EXTERNAL, token=wait.token)
        assert (await self.settle(world, worker, parked))[0].applied
        found = await self.read(world, wait.job_id)
        assert (found.state, found.attempt, found.worker_id) == (S.AVAILABLE, 0, None)
        assert found.raw_callback_answer == b"[1]"

    @pytest.mark.parametrize("to", [S.COMPLETED, S.FAILED, S.AVAILABLE])
    async def test_what_was_answered_cannot_be_resolved_otherwise(
        self, world: World, to: JobState
    ) -> None:
        worker, _, wait = await self.expecting(world)
        await world.store.begin_waits(worker, [wait])
        before = await self.read(world, wait.job_id)
        await world.store.answer_callback(wait.job_id, wait.run_lease, wait.token, b"1")
        [late] = await self.settle(world, None, plan(before, to, token=wait.token))
        assert not late.applied

    async def test_a_callback_is_found_by_its_token_until_the_next_is_registered(
        self, world: World
    ) -> None:
        worker, claimed, wait = await self.expecting(world)
        find = world.store.find_callback
        found = await find(wait.token)
        assert found is not None
        assert (found.id, found.callback_token, found.state) == (
            wait.job_id,
            wait.token,
            S.RUNNING,
        )
        assert await find("another") is None
        register = world.store.register_callback
        await register(worker, wait.job_id, wait.run_lease, "next", 60.0)
        assert await find(wait.token) is None
        moved = plan(claimed, S.COMPLETED, token="next")
        assert (await self.settle(world, None, moved))[0].applied
        found = await find("next")
        assert found is not None
        assert (found.state, found.callback_until) == (S.COMPLETED, None)

    @pytest.mark.parametrize(
        ("to", "kept"),
        [(S.COMPLETED, True), (S.FAILED, True), (S.AVAILABLE, True), (S.RETRYABLE, False)],
    )
    async def test_a_resolved_callback_is_remembered_and_one_that_timed_out_is_not(
        self, world: World, to: JobState, kept: bool
    ) -> None:
        _, found = await self.in_state(world, S.WAITING_EXTERNAL)
        token = found.callback_token
        assert token is not None
        moved = plan(found, to, token=token, seconds=0.0)
        assert (await self.settle(world, None, moved))[0].applied
        assert (await world.store.find_callback(token) is not None) == kept
        found = await self.read(world, found.id)
        assert found.callback_until is None

    async def test_an_answered_callback_is_remembered_when_its_attempt_has_ended(
        self, world: World
    ) -> None:
        worker, claimed, wait = await self.expecting(world)
        await world.store.answer_callback(wait.job_id, wait.run_lease, wait.token, b"1")
        await self.settle(world, worker, plan(claimed, S.RETRYABLE, seconds=0.0))
        claimed = await self.claim_one(world, worker)
        await self.settle(world, worker, plan(claimed, S.COMPLETED))
        found = await world.store.find_callback(wait.token)
        assert found is not None
        assert (found.state, found.callback_until) == (S.COMPLETED, None)

    async def test_a_callback_times_out_when_nobody_answers(self, world: World) -> None:
        worker, claimed, wait = await self.expecting(world, timeout=60.0)
        await self.settle(world, worker, plan(claimed, S.WAITING_EXTERNAL, token=wait.token))
        await world.advance(50)
        await world.store.beat(worker)
        assert await world.store.extend_callback(wait.token, 60.0)
        await world.advance(50)
        assert await self.rescue(world) == []
        await world.advance(20)
        assert await self.rescue(world) == [(wait.job_id, Lost.CALLBACK_TIMEOUT)]
        # Too late: someone may be about to settle it.
        assert not await world.store.extend_callback(wait.token, 60.0)
        [lost] = await world.store.rescue(
            9, deadline_slack=0.0, kinds=["k"], strangers_after=math.inf
        )
        assert (lost.token, lost.job.state) == (wait.token, S.WAITING_EXTERNAL)
        failed = plan(lost.job, S.RETRYABLE, token=lost.token, seconds=5.0)
        assert (await self.settle(world, None, failed))[0].applied
        assert await self.rescue(world) == []

    async def test_a_timeout_that_meets_an_answer_changes_nothing(self, world: World) -> None:
        worker, _, wait = await self.expecting(world, timeout=20.0)
        await world.store.begin_waits(worker, [wait])
        await world.advance(25)
        [lost] = await world.store.rescue(
            9, deadline_slack=0.0, kinds=["k"], strangers_after=math.inf
        )
        assert lost.reason is Lost.CALLBACK_TIMEOUT
        assert await world.store.answer_callback(wait.job_id, wait.run_lease, wait.token, b"1")
        failed = plan(lost.job, S.FAILED, token=lost.token)
        assert not (await self.settle(world, None, failed))[0].applied
        assert await self.rescue(world) == []

    async def test_a_running_attempt_does_not_time_out_with_its_callback(
        self, world: World
    ) -> None:
        _, _, wait = await self.expecting(world, timeout=1.0)
        await world.advance(20)
        assert await self.rescue(world) == []
        assert not await world.store.extend_callback(wait.token, 60.0)

    async def test_timeouts_of_strangers_are_left_to_who_knows_them_for_a_while(
        self, world: World
    ) -> None:
        _, found = await self.in_state(world, S.WAITING_EXTERNAL)
        await world.advance(3601)
        assert await self.rescue(world, kinds=["other"]) == []
        assert await self.rescue(world, kinds=["other"], strangers_after=60) == []
        await world.advance(61)
        assert await self.rescue(world, kinds=["other"], strangers_after=60) == [
            (found.id, Lost.CALLBACK_TIMEOUT)
        ]

    @pytest.mark.parametrize("gone", ["fenced", "unregistered"])
    @pytest.mark.parametrize("answered", [False, True])
    async def test_what_waited_with_a_worker_that_is_gone_is_detached(
        self, world: World, gone: str, answered: bool
    ) -> None:
        worker, _, wait = await self.expecting(world)
        await world.store.begin_waits(worker, [wait])
        assert await self.rescue(world) == []
        if answered:
            assert await world.store.answer_callback(
                wait.job_id, wait.run_lease, wait.token, b"[1]"
            )
        if gone == "fenced":
            await world.advance(31)
        else:
            await world.store.unregister(worker)
        [lost] = await world.store.rescue(
            9, deadline_slack=0.0, kinds=[], strangers_after=math.inf
        )
        assert (lost.reason, lost.token) == (Lost.STALE_WAITER, wait.token)
        for begin in (world.store.begin_waits, world.store.end_waits):
            with pytest.raises(Fenced):
                await begin(worker, [wait])
        detached = plan(lost.job, S.WAITING_EXTERNAL, token=lost.token)
        assert (await self.settle(world, None, detached))[0].applied
        found = await self.read(world, wait.job_id)
        assert found.worker_id is None
        assert await self.rescue(world) == []
        if answered:
            assert (found.state, found.attempt) == (S.AVAILABLE, 0)
            assert found.raw_callback_answer == b"[1]"
        else:
            assert (found.state, found.attempt) == (S.WAITING_EXTERNAL, 1)

    async def test_settling_what_waits_from_outside_is_news(self, world: World) -> None:
        worker, _, wait = await self.expecting(world)
        await world.store.begin_waits(worker, [wait])
        found = await self.read(world, wait.job_id)
        await world.news()
        await self.settle(world, None, plan(found, S.COMPLETED, token=wait.token))
        assert CutElsewhere(wait.job_id, wait.run_lease, S.COMPLETED) in await world.news()
        assert await world.store.end_waits(worker, [wait]) == [None]
        assert await world.store.running(worker) == []

    async def test_waiting_counts_as_running_for_unique_keys(self, world: World) -> None:
        worker, _, wait = await self.expecting(world, key=KEY, mask=S.RUNNING.bit)
        await world.store.begin_waits(worker, [wait])
        [blocked] = await world.store.enqueue([job(queue="x", key=KEY)])
        await world.store.end_waits(worker, [wait])
        [too] = await world.store.enqueue([job(queue="x", key=KEY)])
        assert (blocked.inserted, too.inserted) == (False, False)

    async def test_a_key_that_only_waiting_holds_is_taken_and_let_go_of(
        self, world: World
    ) -> None:
        worker, _, wait = await self.expecting(world, key=KEY, mask=S.WAITING_EXTERNAL.bit)
        await world.store.begin_waits(worker, [wait])
        [blocked] = await world.store.enqueue([job(queue="x", key=KEY)])
        await world.store.end_waits(worker, [wait])
        [free] = await world.store.enqueue([job(queue="x", key=KEY)])
        assert (blocked.inserted, free.inserted) == (False, True)
        # It cannot have it back, and is cancelled as a duplicate like any other.
        assert await world.store.begin_waits(worker, [wait]) == [None]
        found = await self.read(world, wait.job_id)
        assert (found.state, found.worker_id, found.callback_token) == (S.CANCELLED, None, None)
        assert found.errors[-1].error == f"cancelled: duplicate of job {free.id}"

    # ---- workers

    async def test_workers_have_ids_of_their_own(self, world: World) -> None:
        a, b = await self.worker(world), await self.worker(world)
        await world.store.unregister(a)
        c = await self.worker(world)
        assert len({a, b, c}) == 3

    async def test_a_beat_renews_the_lease(self, world: World) -> None:
        worker = await self.worker(world, lease=30)
        await self.enqueue(world, job())
        await self.claim_one(world, worker)
        for _ in range(3):
            await world.advance(20)
            assert await world.store.beat(worker)
            assert await self.rescue(world) == []

    async def rescue(self, world: World, **changes: Any) -> list[tuple[int, Lost]]:
        options: dict[str, Any] = {
            "deadline_slack": 10.0,
            "kinds": ["k"],
            "strangers_after": math.inf,
        }
        lost = await world.store.rescue(changes.pop("most", 100), **(options | changes))
        return [(found.job.id, found.reason) for found in lost]

    async def test_a_worker_that_missed_its_lease_is_fenced(self, world: World) -> None:
        worker = await self.worker(world, lease=30)
        ids = await self.enqueue(world, job(), job())
        claimed = await self.claim_one(world, worker)
        await world.advance(31)
        assert await self.rescue(world) == [(ids[0], Lost.STALE_WORKER)]
        assert not await world.store.beat(worker)
        with pytest.raises(Fenced):
            await self.claim(world, worker)
        with pytest.raises(Fenced):
            await self.settle(world, worker, plan(claimed, S.COMPLETED, job("b")))
        assert (await self.read(world, ids[0])).state is S.RUNNING
        # What it did not do to the job, others can.
        [answer] = await self.settle(world, None, plan(claimed, S.RETRYABLE, seconds=0.0))
        assert answer.applied
        assert await self.rescue(world) == []

    async def test_a_lost_attempt_is_listed_until_it_is_settled(self, world: World) -> None:
        worker = await self.worker(world)
        await self.enqueue(world, job())
        await self.claim_one(world, worker)
        await world.advance(31)
        assert await self.rescue(world) == await self.rescue(world) != []

    async def test_an_unknown_worker_is_fenced_too(self, world: World) -> None:
        with pytest.raises(Fenced):
            await self.claim(world, 10**12)
        with pytest.raises(Fenced):
            await world.store.settle(
                [Plan(Transition(1, 1, S.RUNNING, S.COMPLETED, 1))], worker=10**12
            )
        assert not await world.store.beat(10**12)

    async def test_what_a_worker_leaves_behind_is_rescued(self, world: World) -> None:
        worker = await self.worker(world)
        [job_id] = await self.enqueue(world, job())
        await self.claim_one(world, worker)
        await world.store.unregister(worker)
        assert await self.rescue(world) == [(job_id, Lost.STALE_WORKER)]

    async def test_an_attempt_far_past_its_deadline_is_rescued_from_a_live_worker(
        self, world: World
    ) -> None:
        worker = await self.worker(world, lease=3600)
        [job_id] = await self.enqueue(world, job())
        await self.claim_one(world, worker, deadline=60.0)
        await world.advance(65)
        assert await self.rescue(world) == []
        await world.advance(10)
        assert await self.rescue(world) == [(job_id, Lost.DEADLINE)]

    async def test_attempts_of_strangers_are_left_to_who_knows_them_for_a_while(
        self, world: World
    ) -> None:
        worker = await self.worker(world, lease=30)
        [job_id] = await self.enqueue(world, job("stranger"))
        await self.claim_one(world, worker, kinds=["stranger"])
        await world.advance(31)
        assert await self.rescue(world, strangers_after=60) == []
        await world.advance(61)
        assert await self.rescue(world) == []
        assert await self.rescue(world, strangers_after=60) == [(job_id, Lost.STALE_WORKER)]

    async def test_a_rescue_lists_no_more_than_asked(self, world: World) -> None:
        worker = await self.worker(world)
        await self.enqueue(world, *[job() for _ in range(5)])
        await self.claim(world, worker)
        await world.advance(31)
        assert len(await self.rescue(world, most=3)) == 3

    async def test_a_rescued_job_is_given_with_its_arguments(self, world: World) -> None:
        worker = await self.worker(world)
        await self.enqueue(world, job(args=b'{"a": 1}', max_attempts=3))
        await self.claim_one(world, worker)
        await world.advance(31)
        [lost] = await world.store.rescue(
            9, deadline_slack=0.0, kinds=["k"], strangers_after=math.inf
        )
        assert (lost.job.raw_args, lost.job.attempt, lost.job.max_attempts) == (
            b'{"a": 1}',
            1,
            3,
        )
        assert lost.job.run_lease == 1

    async def test_running_lists_what_the_rows_say_a_worker_runs(self, world: World) -> None:
        mine, other = await self.worker(world), await self.worker(world)
        await self.enqueue(world, *[job() for _ in range(4)])
        claimed = await self.claim(world, mine, 2)
        await self.claim(world, other, 2)
        await self.settle(world, mine, plan(claimed[0], S.COMPLETED))
        [held] = await world.store.running(mine)
        assert (held.id, held.run_lease, held.kind) == (claimed[1].id, 1, "k")
        assert (held.attempt, held.max_attempts, held.state) == (1, 25, S.RUNNING)

    async def test_one_worker_leads_at_a_time(self, world: World) -> None:
        a, b = await self.worker(world), await self.worker(world)
        store = world.store
        assert await store.lead("duty", a, 10)
        assert await store.lead("duty", a, 10)
        assert not await store.lead("duty", b, 10)
        assert await store.lead("other duty", b, 10)
        await world.advance(11)
        assert await store.lead("duty", b, 10)
        assert not await store.lead("duty", a, 10)

    async def test_a_worker_that_goes_leaves_its_duties(self, world: World) -> None:
        a, b = await self.worker(world), await self.worker(world)
        assert await world.store.lead("duty", a, 1000)
        await world.store.unregister(a)
        assert await world.store.lead("duty", b, 1000)

    # ---- retention

    async def test_prune_removes_what_is_old_and_settled(self, world: World) -> None:
        ids = {}
        for state in S:
            _, found = await self.in_state(world, state, queue=state)
            ids[state] = found.id
        await world.advance(100)
        retention = Retention(completed=50.0, failed=200.0)
        assert await world.store.prune(retention, 100) == 1
        await world.advance(150)
        assert await world.store.prune(retention, 100) == 2
        left = {j.id for j in await self.all_jobs(world)}
        assert left == set(ids.values()) - {
            ids[s] for s in (S.COMPLETED, S.FAILED, S.CANCELLED)
        }

    async def test_prune_removes_no_more_than_asked(self, world: World) -> None:
        for _ in range(3):
            await self.in_state(world, S.COMPLETED)
        await world.advance(100)
        assert await world.store.prune(Retention(completed=1.0), 2) == 2
        assert await world.store.prune(Retention(completed=1.0), 2) == 1
        assert await world.store.prune(Retention(completed=1.0), 2) == 0

    async def test_infinite_retention_keeps_everything(self, world: World) -> None:
        await self.in_state(world, S.COMPLETED)
        await world.advance(1e8)
        assert await world.store.prune(Retention(completed=math.inf, failed=math.inf), 10) == 0

    async def test_dead_letters_have_a_retention_of_their_own(self, world: World) -> None:
        await self.in_state(world, S.FAILED)
        [dead] = await self.dead_letters(world, job())
        await world.advance(100)
        retention = Retention(failed=50.0, dead_letters=200.0)
        assert await world.store.prune(retention, 100) == 1
        assert [j.id for j in await self.all_jobs(world)] == [dead]
        await world.advance(150)
        assert await world.store.prune(attrs.evolve(retention, dead_letters=math.inf), 9) == 0
        assert await world.store.prune(retention, 100) == 1
        assert await self.all_jobs(world) == []

    async def test_prune_removes_no_more_than_asked_of_all_states_together(
        self, world: World
    ) -> None:
        await self.in_state(world, S.COMPLETED)
        await self.in_state(world, S.CANCELLED)
        await self.dead_letters(world, job(), job())
        await world.advance(100)
        retention = Retention(completed=1.0, failed=1.0, dead_letters=1.0)
        assert await world.store.prune(retention, 3) == 3
        assert await world.store.prune(retention, 3) == 1

    # ---- dead letters

    async def dead_letters(
        self, world: World, *jobs: PreparedInsert, reason: str = "because"
    ) -> list[int]:
        """Jobs that have failed and are dead letters."""
        worker = await self.worker(world, 1e6)
        ids = []
        for one in jobs:
            ids += await self.enqueue(world, one)
            claimed = await self.claim_one(world, worker, kinds=(one.kind,), queue=one.queue)
            failed = plan(claimed, S.FAILED, error="no", dead_letter=reason, progress=b"{}")
            await self.settle(world, worker, failed)
        return ids

    async def test_dead_letters_are_listed_newest_first_and_filtered(
        self, world: World
    ) -> None:
        await self.in_state(world, S.FAILED)
        ids = await self.dead_letters(world, job(), job("other"), job(queue="r"))
        ids += await self.dead_letters(world, job(), reason="another")

        async def listed(**wanted: Any) -> list[int]:
            found = await world.store.list_dead_letters(DeadLetterFilter(**wanted), 100)
            assert all(j.state is S.FAILED and j.dead_letter for j in found)
            return [ids.index(j.id) for j in found]

        assert await listed() == [3, 2, 1, 0]
        assert await listed(kind="other") == [1]
        assert await listed(queue="r") == [2]
        assert await listed(reason="another") == [3]
        assert await listed(reason="because", queue="q") == [1, 0]
        assert await listed(before_id=ids[2]) == [1, 0]
        assert await listed(ids=(ids[0], ids[3], 10**12)) == [3, 0]
        assert len(await world.store.list_dead_letters(DeadLetterFilter(), 2)) == 2

    async def retry_dead_letters(
        self, world: World, most: int = 100, after_id: int = 0, **options: Any
    ) -> Swept:
        strict = options.pop("strict", False)
        changes = Replacements(
            options.pop("to_queue", None),
            options.pop("priority", None),
            options.pop("at", None),
        )
        wanted = DeadLetterFilter(**options)
        retry = world.store.retry_dead_letters
        return await retry(wanted, most, changes, after_id=after_id, strict=strict)

    async def test_a_dead_letter_that_is_retried_has_all_its_attempts(
        self, world: World
    ) -> None:
        [dead] = await self.dead_letters(world, job(priority=3))
        before = await self.read(world, dead)
        await world.advance(60)
        assert await self.retry_dead_letters(world, ids=(dead,)) == Swept(1, None)
        found = await self.read(world, dead)
        assert (found.state, found.attempt, found.dead_letter) == (S.AVAILABLE, 0, None)
        assert (found.queue, found.priority, found.finalized_at) == ("q", 3, None)
        assert found.run_at > before.run_at
        assert (found.run_lease, found.raw_progress) == (1, b"{}")
        assert [e.error for e in found.errors] == ["no"]
        worker = await self.worker(world)
        claimed = await self.claim_one(world, worker)
        assert (claimed.id, claimed.run_lease, claimed.attempt) == (dead, 2, 1)
        assert await self.retry_dead_letters(world, ids=(dead,)) == Swept(0, None)

    async def test_it_may_go_elsewhere_at_another_time(self, world: World) -> None:
        [dead] = await self.dead_letters(world, job())
        at = datetime(2999, 5, 6, tzinfo=UTC)
        await world.news()
        await self.retry_dead_letters(world, to_queue="r", priority=1, at=at)
        found = await self.read(world, dead)
        assert (found.state, found.run_at) == (S.SCHEDULED, at)
        assert (found.queue, found.priority) == ("r", 1)
        assert await world.news() == []

    async def test_a_retry_at_a_time_that_has_passed_is_available(self, world: World) -> None:
        [dead] = await self.dead_letters(world, job())
        await self.retry_dead_letters(world, at=datetime(2001, 1, 1, tzinfo=UTC))
        assert (await self.read(world, dead)).state is S.AVAILABLE

    async def test_retried_dead_letters_are_news_of_work_once_a_queue(
        self, world: World
    ) -> None:
        await self.dead_letters(world, job(), job(), job(queue="r"))
        await world.news()
        await self.retry_dead_letters(world)
        news = await world.news()
        assert sorted(n.queue for n in news if isinstance(n, GotWork)) == ["q", "r"]
        assert len(news) == 2

    async def test_dead_letters_are_retried_by_ascending_id_in_batches(
        self, world: World
    ) -> None:
        ids = await self.dead_letters(world, *[job() for _ in range(5)])
        await self.dead_letters(world, job("other"))
        assert await self.retry_dead_letters(world, 2, kind="k") == Swept(2, ids[1])
        states = [(await self.read(world, i)).state for i in ids]
        assert states == [S.AVAILABLE] * 2 + [S.FAILED] * 3
        assert await self.retry_dead_letters(world, 2, ids[2], kind="k") == Swept(2, ids[4])
        assert await self.retry_dead_letters(world, 2, ids[4], kind="k") == Swept(0, None)
        assert await self.retry_dead_letters(world, 2, kind="k") == Swept(1, None)

    async def test_a_retried_dead_letter_takes_its_key_back(self, world: World) -> None:
        [dead] = await self.dead_letters(world, job(key=KEY))
        await self.retry_dead_letters(world)
        [answer] = await world.store.enqueue([job(key=KEY)])
        assert (answer.id, answer.inserted) == (dead, False)

    async def test_or_lets_go_of_one_that_only_failing_holds(self, world: World) -> None:
        [dead] = await self.dead_letters(world, job(key=KEY, mask=S.FAILED.bit))
        fresh = job(key=KEY, mask=S.AVAILABLE.bit)
        [held] = await world.store.enqueue([fresh])
        assert (held.id, held.inserted) == (dead, False)
        await self.retry_dead_letters(world)
        [free] = await world.store.enqueue([fresh])
        assert free.inserted

    async def test_one_whose_key_is_taken_stays_a_dead_letter(self, world: World) -> None:
        first, twin, other = await self.dead_letters(
            world, job(key=KEY), job(key=KEY), job(key=OTHER_KEY)
        )
        [holder] = await self.enqueue(world, job(key=OTHER_KEY))
        with pytest.raises(KeyTaken) as caught:
            await self.retry_dead_letters(world, ids=(other,), strict=True)
        assert caught.value.holder_id == holder
        assert await self.retry_dead_letters(world) == Swept(1, None)
        assert (await self.read(world, first)).state is S.AVAILABLE
        for left in (twin, other):
            found = await self.read(world, left)
            assert (found.state, found.dead_letter) == (S.FAILED, "because")
            assert found.unique_key is not None

    async def test_dead_letters_are_purged_with_their_keys(self, world: World) -> None:
        ids = await self.dead_letters(world, job(key=KEY, mask=S.FAILED.bit), job(), job())
        [other] = await self.dead_letters(world, job(queue="r"))
        _, failed = await self.in_state(world, S.FAILED, queue="s")
        purge = world.store.purge_dead_letters
        assert await purge(DeadLetterFilter(queue="q"), 2) == Swept(2, ids[1])
        assert await purge(DeadLetterFilter(queue="q"), 2, after_id=ids[1]) == Swept(1, None)
        assert {j.id for j in await self.all_jobs(world)} == {other, failed.id}
        assert await purge(DeadLetterFilter(ids=(failed.id,)), 1) == Swept(0, None)
        [free] = await world.store.enqueue([job(key=KEY, mask=S.AVAILABLE.bit)])
        assert free.inserted

    # ---- looking

    async def test_jobs_that_do_not_exist_are_not_found(self, world: World) -> None:
        [job_id] = await self.enqueue(world, job())
        assert [j.id for j in await world.store.get([job_id, 10**12])] == [job_id]

    async def test_the_holder_of_a_unique_key(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING, key=KEY)
        await self.enqueue(world, job(key=OTHER_KEY, mask=S.COMPLETED.bit))
        assert await world.store.holder(KEY) == found.id
        assert await world.store.holder(OTHER_KEY) is None
        await self.settle(world, worker, plan(found, S.FAILED))
        assert await world.store.holder(KEY) is None

    async def test_a_list_is_newest_first_and_filtered(self, world: World) -> None:
        ids = await self.enqueue(
            world,
            job("a"),
            job("b", tags=("t", "u")),
            job("a", queue="r"),
            job("b", run_at=world.now() + timedelta(days=1)),
        )

        async def listed(**wanted: Any) -> list[int]:
            found = await world.store.list(JobFilter(**wanted), 100)
            return [ids.index(j.id) for j in found]

        assert await listed() == [3, 2, 1, 0]
        assert await listed(kind="a") == [2, 0]
        assert await listed(queue="r") == [2]
        assert await listed(tag="u") == [1]
        assert await listed(tag="nobody") == []
        assert await listed(states=(S.SCHEDULED,)) == [3]
        assert await listed(states=(S.SCHEDULED, S.AVAILABLE)) == [3, 2, 1, 0]
        assert await listed(before_id=ids[2]) == [1, 0]
        assert await listed(kind="b", states=(S.AVAILABLE,)) == [1]
        assert len(await world.store.list(JobFilter(), 2)) == 2

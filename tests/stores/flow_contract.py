"""What every store does about flow: pauses, rates, limits by key, overrides, depth."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from awa_trio._core.explaining import Reason, explain
from awa_trio._core.job import JobState
from awa_trio._core.outcome import Lost
from awa_trio._core.queues import check_overrides, settings_to_json
from awa_trio._core.rates import Rate
from awa_trio._core.settings import QueueSettings
from awa_trio._seam.errors import Draining
from awa_trio._seam.hearing import GotWork, Overridden
from awa_trio._seam.values import Claimed, Wait, Want

from .contract import Steps, World, job, plan

S = JobState


class FlowContract(Steps):
    """The contract. Subclasses provide the fixture `world`, and inherit `StoreContract` too."""

    async def override(self, world: World, queue: str = "q", **overrides: Any) -> None:
        await world.store.override_queue(queue, check_overrides(overrides), [])

    def keys(self, claimed: list[Claimed]) -> list[str | None]:
        return [one.limit_key for one in claimed]

    # ---- pause and drain

    async def test_a_paused_queue_gives_nothing_and_others_do(self, world: World) -> None:
        worker = await self.worker(world)
        kinds = [job(), job(limit_key="a"), job(ordering_key="a"), job(queue="r")]
        ids = await self.enqueue(world, *kinds)
        assert await world.store.set_queue("q", paused=True)
        assert not await world.store.set_queue("q", paused=True)
        wants = [Want("q", 9, 0.0), Want("r", 9, 0.0)]
        claimed = await world.store.claim(worker, wants, {"k": None})
        assert [one.id for one in claimed] == [ids[3]]
        assert await world.store.next_due(["q"], ["k"]) is None
        await world.news()
        assert await world.store.set_queue("q", paused=False)
        assert await world.news() == [GotWork("q")]
        assert await world.store.next_due(["q"], ["k"]) == 0
        assert {one.id for one in await self.claim(world, worker)} == set(ids[:3])

    async def test_a_pause_stops_neither_settlements_nor_producers(self, world: World) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        await world.store.set_queue("q", paused=True)
        await self.enqueue(world, job())
        [settled] = await self.settle(world, worker, plan(found, S.COMPLETED, job()))
        assert settled.applied
        assert await self.claim(world, worker) == []

    async def test_a_drained_queue_takes_nothing_but_what_jobs_leave_behind(
        self, world: World
    ) -> None:
        worker, found = await self.in_state(world, S.RUNNING)
        _, failed = await self.in_state(world, S.FAILED)
        assert await world.store.set_queue("q", draining=True)
        for jobs in ([job()], [job(queue="r"), job(limit_key="a")]):
            with pytest.raises(Draining) as refused:
                await world.store.enqueue(jobs)
            assert refused.value.queue == "q"
        assert len(await self.all_jobs(world)) == 2
        await self.enqueue(world, job(queue="r"))
        [settled] = await self.settle(world, worker, plan(found, S.COMPLETED, job()))
        assert settled.insertions[0].id is not None
        [retried] = await self.settle(world, None, plan(failed, S.AVAILABLE, attempt=0))
        assert retried.applied
        assert len(await self.claim(world, worker)) == 2
        assert await world.store.set_queue("q", paused=False, draining=False)
        await self.enqueue(world, job())

    # ---- a queue's rate

    @pytest.mark.parametrize("options", [{}, {"limit_key": "a"}, {"ordering_key": None}])
    async def test_no_more_start_than_a_bucket_holds_and_gets(
        self, world: World, options: dict[str, Any]
    ) -> None:
        await self.override(world, rate=Rate(1, per=10, burst=3))
        worker, other = await self.worker(world), await self.worker(world)
        await self.enqueue(world, *[job(**options)] * 20)
        assert len(await self.claim(world, worker, 2)) == 2
        assert len(await self.claim(world, other)) == 1
        assert await self.claim(world, worker) == []
        due = await world.store.next_due(["q"], ["k"])
        assert due == pytest.approx(10, abs=2)
        await world.advance(10)
        assert len(await self.claim(world, other)) == 1
        await world.advance(24)
        assert len(await self.claim(world, worker)) == 2
        await world.advance(10_000)
        assert len(await self.claim(world, worker)) == 3

    async def test_what_a_rate_leaves_room_for_goes_to_the_first(self, world: World) -> None:
        await self.override(world, rate=Rate(1, per=1000, burst=3))
        worker = await self.worker(world)
        ids = await self.enqueue(
            world,
            job(priority=4),
            job(priority=3, limit_key="a"),
            job(priority=1, limit_key="a"),
            job(priority=2),
            job(priority=1, ordering_key="o"),
        )
        claimed = await self.claim(world, worker)
        assert [ids.index(one.id) for one in claimed] == [2, 4, 3]

    async def test_a_token_is_spent_when_an_attempt_starts_and_never_given_back(
        self, world: World
    ) -> None:
        await self.override(world, rate=Rate(1, per=1000, burst=1))
        worker = await self.worker(world)
        await self.enqueue(world, job())
        claimed = await self.claim_one(world, worker)
        await self.settle(world, worker, plan(claimed, S.AVAILABLE, attempt=0))
        assert await self.claim(world, worker) == []

    async def test_what_is_not_claimed_takes_no_token(self, world: World) -> None:
        await self.override(world, rate=Rate(1, per=1000, burst=2))
        worker = await self.worker(world)
        for _ in range(3):
            assert await self.claim(world, worker) == []
        await self.enqueue(world, *[job()] * 3)
        assert len(await self.claim(world, worker)) == 2

    async def test_a_rate_of_one_queue_is_none_of_another(self, world: World) -> None:
        await self.override(world, rate=Rate(1, per=1000, burst=1))
        worker = await self.worker(world)
        await self.enqueue(world, *[job()] * 2, *[job(queue="r")] * 2)
        wants = [Want("q", 9, 0.0), Want("r", 9, 0.0)]
        claimed = await world.store.claim(worker, wants, {"k": None})
        assert sorted(one.queue for one in claimed) == ["q", "r", "r"]
        assert await world.store.next_due(["q", "r"], ["k"]) > 900  # type: ignore[operator]

    # ---- limits by key

    async def test_at_most_so_many_of_a_key_are_under_way(self, world: World) -> None:
        await self.override(world, max_per_key=2)
        worker, other = await self.worker(world), await self.worker(world)
        await self.enqueue(world, *[job(limit_key="a")] * 5, *[job(limit_key="b")] * 1)
        await self.enqueue(world, *[job()] * 3)
        first = await self.claim(world, worker, 4)
        assert self.keys(first).count("a") == 2
        rest = await self.claim(world, other)
        assert sorted(map(str, self.keys([*first, *rest]))) == ["None"] * 3 + ["a", "a", "b"]
        assert await world.store.next_due(["q"], ["k"]) is None
        await world.news()
        [mine, *_] = [one for one in first if one.limit_key == "a"]
        await self.settle(world, worker, plan(mine, S.COMPLETED))
        assert GotWork("q") in await world.news()
        assert await world.store.next_due(["q"], ["k"]) == 0
        assert self.keys(await self.claim(world, other)) == ["a"]

    async def test_without_a_limit_a_key_limits_nothing(self, world: World) -> None:
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key="a")] * 5)
        assert len(await self.claim(world, worker)) == 5

    @pytest.mark.parametrize("to", [S.AVAILABLE, S.RETRYABLE, S.FAILED, S.CANCELLED])
    async def test_whatever_ends_an_attempt_gives_its_place_back(
        self, world: World, to: JobState
    ) -> None:
        await self.override(world, max_per_key=1)
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key="a")] * 2)
        claimed = await self.claim_one(world, worker)
        assert await self.claim(world, worker) == []
        await self.settle(world, worker, plan(claimed, to, seconds=3600.0))
        assert len(await self.claim(world, worker)) == 1

    async def test_an_attempt_of_a_dead_worker_gives_its_place_back_when_it_is_rescued(
        self, world: World
    ) -> None:
        await self.override(world, max_per_key=1)
        dead, alive = await self.worker(world, lease=30.0), await self.worker(world, lease=1e6)
        await self.enqueue(world, *[job(limit_key="a")] * 2)
        claimed = await self.claim_one(world, dead)
        await world.advance(100)
        assert await self.claim(world, alive) == []
        [lost] = await world.store.rescue(
            9, deadline_slack=5.0, kinds=["k"], strangers_after=60.0
        )
        assert (lost.job.id, lost.reason, lost.job.limit_key) == (
            claimed.id,
            Lost.STALE_WORKER,
            "a",
        )
        await self.settle(world, None, plan(lost.job, S.RETRYABLE, seconds=3600.0))
        assert len(await self.claim(world, alive)) == 1

    async def test_a_handler_that_waits_keeps_its_place_and_a_job_that_is_parked_does_not(
        self, world: World
    ) -> None:
        await self.override(world, max_per_key=1)
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key="a")] * 2)
        claimed = await self.claim_one(world, worker)
        wait = Wait(claimed.id, claimed.run_lease, "token")
        assert await world.store.register_callback(
            worker, claimed.id, claimed.run_lease, "token", 3600.0
        )
        [waited] = await world.store.begin_waits(worker, [wait])
        assert waited is not None
        assert waited.waits
        assert await self.claim(world, worker) == []
        [waited] = await world.store.end_waits(worker, [wait])
        await self.settle(world, worker, plan(claimed, S.WAITING_EXTERNAL))
        assert len(await self.claim(world, worker)) == 1

    async def test_no_more_start_than_the_bucket_of_a_key_holds_and_gets(
        self, world: World
    ) -> None:
        await self.override(world, rate_per_key=Rate(1, per=10, burst=2))
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key=key) for key in "aabbabab"], job())
        claimed = await self.claim(world, worker)
        assert sorted(map(str, self.keys(claimed))) == ["None", "a", "a", "b", "b"]
        assert await world.store.next_due(["q"], ["k"]) == pytest.approx(10, abs=2)
        await world.advance(10)
        assert sorted(map(str, self.keys(await self.claim(world, worker)))) == ["a", "b"]
        assert await self.claim(world, worker) == []

    async def test_a_limit_of_a_key_is_one_for_all_kinds(self, world: World) -> None:
        await self.override(world, max_per_key=3)
        worker = await self.worker(world)
        ids = await self.enqueue(
            world,
            *[job(kind, limit_key="a", priority=p) for p in (3, 1, 2) for kind in ("k", "l")],
            job("a stranger", limit_key="a", priority=1),
        )
        claimed = await self.claim(world, worker, kinds=["k", "l"])
        assert [ids.index(one.id) for one in claimed] == [2, 3, 4]

    async def test_a_key_in_two_queues_is_two(self, world: World) -> None:
        for queue in ("q", "r"):
            await self.override(world, queue, max_per_key=1)
        worker = await self.worker(world)
        await self.enqueue(world, *[job(queue=q, limit_key="a") for q in "qqrr"])
        wants = [Want("q", 9, 0.0), Want("r", 9, 0.0)]
        claimed = await world.store.claim(worker, wants, {"k": None})
        assert sorted(one.queue for one in claimed) == ["q", "r"]

    async def test_the_jobs_of_a_key_that_may_not_start_hold_up_no_others(
        self, world: World
    ) -> None:
        await self.override(world, max_per_key=1)
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key="a", priority=1)] * 200)
        assert len(await self.claim(world, worker)) == 1
        others = await self.enqueue(world, job(priority=4), job(limit_key="b", priority=4))
        assert [one.id for one in await self.claim(world, worker, 2)] == others

    async def test_an_urgent_job_of_any_of_many_keys_is_the_next(self, world: World) -> None:
        """However many jobs of others there are, and whether they have room or not."""
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key=str(n % 60), priority=3) for n in range(600)])
        assert len(await self.claim(world, worker, 20)) == 20
        for most in (None, 3):
            await self.override(world, max_per_key=most)
            [urgent] = await self.enqueue(world, job(limit_key="59", priority=1))
            claimed = await self.claim(world, worker, 20)
            assert claimed[0].id == urgent
            assert len(claimed) == 20

    async def test_a_job_with_both_keys_waits_for_both(self, world: World) -> None:
        await self.override(world, max_per_key=1)
        worker = await self.worker(world)
        ids = await self.enqueue(
            world,
            job(limit_key="a", ordering_key="1"),
            job(limit_key="b", ordering_key="1"),
            job(limit_key="a", ordering_key="2"),
            job(limit_key="b", ordering_key="3"),
        )
        claimed = await self.claim(world, worker)
        assert {ids.index(one.id) for one in claimed} in ({0, 3}, {2, 3})
        [a] = [one for one in claimed if one.limit_key == "a"]
        await self.settle(world, worker, plan(a, S.COMPLETED))
        # The second of key 1 waits for b, wherever the first is.
        assert self.keys(await self.claim(world, worker)) == ["a"]
        assert await self.claim(world, worker) == []

    async def test_a_job_of_the_future_starts_within_the_limits_of_its_key(
        self, world: World
    ) -> None:
        await self.override(world, max_per_key=2)
        worker = await self.worker(world)
        soon = world.now() + timedelta(seconds=60)
        await self.enqueue(world, *[job(limit_key="a", run_at=soon)] * 3)
        assert await self.claim(world, worker) == []
        assert await world.store.next_due(["q"], ["k"]) == pytest.approx(60, abs=5)
        await world.advance(61)
        assert len(await self.claim(world, worker)) == 2
        assert await world.store.next_due(["q"], ["k"]) is None

    async def test_keyed_jobs_start_in_the_order_of_all_others(self, world: World) -> None:
        now = world.now()
        ids = await self.enqueue(
            world,
            *[
                job(limit_key=key, priority=priority, run_at=now - timedelta(seconds=ago))
                for key, priority, ago in [
                    ("a", 2, 10),
                    (None, 2, 11),
                    ("b", 2, 12),
                    ("a", 1, 1),
                    (None, 3, 90),
                ]
            ],
        )
        worker = await self.worker(world)
        claimed = await self.claim(world, worker, 4)
        assert [ids.index(one.id) for one in claimed] == [3, 2, 1, 0]
        await self.enqueue(world, job(limit_key="a", priority=4))
        aged = await self.claim(world, worker, 1, ageing=30.0)
        assert [ids.index(one.id) for one in aged] == [4]

    async def test_a_backlog_has_the_jobs_that_wait_for_room_of_their_key(
        self, world: World
    ) -> None:
        await self.override(world, max_per_key=1)
        now = world.now()
        await self.in_state(world, S.RUNNING, limit_key="a")
        ago = [20.0, 50.0, 30.0, -10.0, -1000.0]
        await self.enqueue(
            world,
            *[job(limit_key="a", run_at=now - timedelta(seconds=s)) for s in ago],
            job(limit_key="b", run_at=now + timedelta(seconds=5)),
            job(),
        )
        await world.advance(60)
        [found] = await world.store.backlogs(["q"], 100)
        assert found.due == 6
        assert found.oldest == pytest.approx(110, abs=5)
        [found] = await world.store.backlogs(["q"], 2)
        assert found.due == 2
        assert found.oldest == pytest.approx(110, abs=5)

    # ---- why a job has not run

    async def test_pauses_and_limits_explain_why_a_job_waits(self, world: World) -> None:
        worker = await self.worker(world, lease=1e6)
        ids = await self.enqueue(world, *[job(limit_key="a")] * 3, job())

        async def reasons(number: int) -> list[Reason]:
            facts = await world.store.facts(ids[number], 10)
            assert facts is not None
            return [one.reason for one in explain(facts)]

        assert await reasons(2) == [Reason.ABOUT_TO_RUN]
        await world.store.set_queue("q", paused=True)
        assert await reasons(2) == [Reason.QUEUE_PAUSED]
        await world.store.set_queue("q", paused=False)
        await self.override(world, max_per_key=1, rate=Rate(1, per=100, burst=1))
        await self.claim_one(world, worker)
        assert await reasons(2) == [Reason.OUT_OF_TOKENS, Reason.LIMIT_KEY_FULL]
        await world.advance(150)
        assert await reasons(2) == [Reason.LIMIT_KEY_FULL]
        assert await reasons(3) == [Reason.ABOUT_TO_RUN]

    # ---- settings

    async def test_the_last_declaration_holds_and_overrides_hold_in_its_place(
        self, world: World
    ) -> None:
        worker = await self.worker(world)
        await self.enqueue(world, *[job(limit_key="a")] * 9)

        async def declare(limit: int) -> None:
            settings = settings_to_json(QueueSettings(max_per_key=limit))
            await world.store.declare_queues({"q": settings})

        await declare(5)
        await declare(1)
        assert len(await self.claim(world, worker)) == 1
        await self.override(world, max_per_key=3, max_workers=7)
        await declare(2)
        assert len(await self.claim(world, worker)) == 2
        assert await world.store.overrides(["q", "r"]) == {
            "q": {"max_per_key": 3, "max_workers": 7}
        }
        await world.news()
        assert await world.store.override_queue("q", {}, ["max_per_key", "rate"])
        assert Overridden("q") in await world.news()
        assert not await world.store.override_queue("q", {}, ["max_per_key", "rate"])
        assert await self.claim(world, worker) == []
        await self.override(world, max_per_key=None)
        assert len(await self.claim(world, worker)) == 6
        [status] = await world.store.list_queues(["q"], 100)
        assert status.settings == QueueSettings(max_per_key=2)
        assert status.overrides == {"max_per_key": None, "max_workers": 7}
        assert status.effective == QueueSettings(max_workers=7)

    async def test_queues_are_listed_with_what_is_in_them(self, world: World) -> None:
        assert await world.store.list_queues(None, 10) == []
        await self.in_state(world, S.RUNNING, queue="runs")
        await self.in_state(world, S.WAITING_EXTERNAL, queue="waits")
        await self.in_state(world, S.COMPLETED, queue="is over")
        later = world.now() + timedelta(hours=1)
        await self.enqueue(
            world,
            *[job(queue="lives")] * 2,
            job(queue="lives", limit_key="a"),
            job(queue="lives", ordering_key="a", limit_key="a"),
            job(queue="lives", run_at=later),
            job(queue="lives", limit_key="b", run_at=later),
            job(queue="only later", limit_key="b", run_at=later),
            job(queue="only a key", limit_key="b"),
        )
        await world.store.set_queue("said", paused=True, draining=True)
        await world.store.register("dead by then", 40, ["was served"])
        await world.advance(50)
        await world.store.register("w", 30, ["served", "lives"])
        await world.store.register("says nothing", 30)
        found = {one.name: one for one in await world.store.list_queues(None, 10)}
        assert {name: [*one.counts.values()] for name, one in found.items()} == {
            "lives": [2, 4, 0, 0, 0],
            "only a key": [0, 1, 0, 0, 0],
            "only later": [1, 0, 0, 0, 0],
            "runs": [0, 0, 0, 1, 0],
            "said": [0, 0, 0, 0, 0],
            "served": [0, 0, 0, 0, 0],
            "waits": [0, 0, 0, 0, 1],
        }
        assert list(found) == sorted(found)
        assert found["lives"].oldest == pytest.approx(50, abs=5)
        assert found["only later"].oldest is None
        assert found["said"].paused
        assert found["said"].draining
        assert not found["lives"].paused
        assert found["lives"].settings is None
        [bounded, unknown] = await world.store.list_queues(["lives", "nobody's"], 3)
        assert sum(bounded.counts.values()) <= 6
        assert bounded.counts[S.AVAILABLE] <= 3
        assert not any(unknown.counts.values())

    async def test_depth_is_what_is_due_up_to_a_limit_that_can_be_overridden(
        self, world: World
    ) -> None:
        later = world.now() + timedelta(hours=1)
        await self.in_state(world, S.RUNNING)
        await self.enqueue(world, *[job()] * 3, job(limit_key="a"), job(run_at=later))
        assert await world.store.depth("q", 10) == (4, 10)
        assert await world.store.depth("q", 2) == (2, 2)
        await self.override(world, max_depth=3)
        assert await world.store.depth("q", 10) == (3, 3)
        await self.override(world, max_depth=None)
        assert (await world.store.depth("q", 10))[1] is None

"""What every store does with schedules; part of `contract.StoreContract`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.schedules import Definition, ScheduleRow
from awa_trio._seam.hearing import GotWork
from awa_trio._seam.values import Enqueued, JobFilter

if TYPE_CHECKING:
    from .contract import World

DAILY = Definition("daily", "0 9 * * *", "Europe/Paris", "k", "coalesce")
KEY = bytes(range(16))


def insert(**options: Any) -> PreparedInsert:
    return PreparedInsert("k", "q", b"{}", **options)


class ScheduleContract:
    """The contract. Its `world` is `contract.StoreContract`'s."""

    async def registered(
        self, world: World, *definitions: Definition, **options: Any
    ) -> list[ScheduleRow]:
        await world.store.register_schedules(definitions, **options)
        return await world.store.schedules([one.name for one in definitions])

    async def schedule(self, world: World, name: str = "daily") -> ScheduleRow:
        [row] = await world.store.schedules([name])
        return row

    async def fire(
        self,
        world: World,
        row: ScheduleRow,
        upto: datetime,
        *jobs: PreparedInsert,
        **options: Any,
    ) -> list[Enqueued] | None:
        return await world.store.fire(row.name, row.cursor, upto, jobs, **options)

    async def inserted(self, world: World) -> int:
        return len(await world.store.list(JobFilter(), 1000))

    async def test_a_schedule_begins_when_it_is_registered(self, world: World) -> None:
        [row] = await self.registered(world, DAILY)
        assert (row.name, row.expression, row.timezone) == (
            "daily",
            "0 9 * * *",
            "Europe/Paris",
        )
        assert (row.kind, row.missed, row.error) == ("k", "coalesce", None)
        assert (row.fires, row.fired_for, row.fired_at, row.last_job_id) == (
            0,
            None,
            None,
            None,
        )
        assert row.since == row.cursor.replace(microsecond=0)
        assert row.cursor == row.seen_at <= row.now
        assert abs(row.now - world.now()) < timedelta(seconds=5)
        assert not row.paused
        assert not row.orphaned

    async def test_schedules_that_are_registered_together_begin_at_one_instant(
        self, world: World
    ) -> None:
        rows = await self.registered(
            world, *[attrs.evolve(DAILY, name=str(n)) for n in range(200)]
        )
        [(since, cursor, seen_at)] = {(row.since, row.cursor, row.seen_at) for row in rows}
        assert since == cursor.replace(microsecond=0)
        assert cursor == seen_at

    async def test_schedules_are_listed_by_name(self, world: World) -> None:
        names = ("b", "a", "C", "ä")
        await self.registered(world, *[attrs.evolve(DAILY, name=name) for name in names])
        listed = [row.name for row in await world.store.schedules()]
        assert listed == ["C", "a", "b", "ä"]
        assert [row.name for row in await world.store.schedules(["b", "nobody"])] == ["b"]
        assert await world.store.schedules([]) == []

    async def test_a_function_has_no_kind_and_a_period_no_zone(self, world: World) -> None:
        [row] = await self.registered(
            world, Definition("p", "every 60 s", None, None, "skip", "it broke")
        )
        assert (row.timezone, row.kind, row.missed, row.error) == (
            None,
            None,
            "skip",
            "it broke",
        )

    async def test_a_fire_moves_the_cursor_and_inserts_the_jobs(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        before = await self.schedule(world)
        upto = before.cursor + timedelta(seconds=30, microseconds=1)
        answers = await self.fire(world, before, upto, insert(), insert(priority=1))
        assert answers is not None
        assert [answer.inserted for answer in answers] == [True, True]
        found = await world.store.get([answer.id for answer in answers])
        assert sorted(job.priority for job in found) == [1, 2]
        row = await self.schedule(world)
        assert (row.cursor, row.fired_for, row.since) == (upto, upto, before.since)
        assert (row.fires, row.last_job_id) == (1, answers[-1].id)
        assert row.fired_at is not None
        assert before.now <= row.fired_at <= row.now

    async def test_from_one_cursor_one_fire_happens(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        row = await self.schedule(world)
        assert await self.fire(world, row, row.cursor + timedelta(seconds=1), insert())
        for seconds in (1, 2):
            upto = row.cursor + timedelta(seconds=seconds)
            assert await self.fire(world, row, upto, insert()) is None
        assert await self.inserted(world) == 1
        assert (await self.schedule(world)).fires == 1

    async def test_nothing_fires_for_the_future_or_backwards(self, world: World) -> None:
        await self.registered(world, DAILY)
        row = await self.schedule(world)
        for upto in (
            row.now + timedelta(minutes=1),
            row.cursor,
            row.cursor - timedelta(hours=1),
        ):
            assert await self.fire(world, row, upto, insert()) is None
        assert await self.inserted(world) == 0
        assert (await self.schedule(world)).cursor == row.cursor

    async def test_an_unknown_schedule_does_not_fire(self, world: World) -> None:
        now = world.now()
        fired = await world.store.fire("nobody", now, now + timedelta(seconds=1), [insert()])
        assert fired is None
        assert await self.inserted(world) == 0

    async def test_instants_may_pass_without_jobs(self, world: World) -> None:
        [row] = await self.registered(world, DAILY)
        await world.advance(60)
        row = await self.schedule(world)
        upto = row.cursor + timedelta(seconds=1)
        assert await self.fire(world, row, upto) == []
        row = await self.schedule(world)
        assert (row.cursor, row.fires, row.fired_for) == (upto, 0, None)

    async def test_a_duplicate_is_left_out_and_its_instant_is_fired_for(
        self, world: World
    ) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        unique = insert(unique_key=KEY, unique_states=31)
        [holder] = await world.store.enqueue([unique])
        row = await self.schedule(world)
        upto = row.cursor + timedelta(seconds=1)
        answers = await self.fire(world, row, upto, unique, insert())
        assert answers is not None
        assert answers[0] == Enqueued(holder.id, False)
        assert answers[1].inserted
        assert (await self.schedule(world)).cursor == upto

    async def test_a_job_that_is_refused_leaves_the_cursor(self, world: World) -> None:
        """In memory nothing is refused; but both happen, or neither."""
        await self.registered(world, DAILY)
        await world.advance(60)
        row = await self.schedule(world)
        refused = False
        try:
            await self.fire(
                world, row, row.cursor + timedelta(seconds=1), insert(), insert(priority=99)
            )
        except Exception:
            refused = True
        after = await self.schedule(world)
        assert (after.cursor == row.cursor) == refused
        assert await self.inserted(world) == (0 if refused else 2)

    async def test_a_fire_is_news_of_work_unless_told_not_to(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        row = await self.schedule(world)
        await world.news()
        await self.fire(world, row, row.cursor + timedelta(seconds=1), insert(), notify=False)
        assert await world.news() == []
        row = await self.schedule(world)
        later = insert(run_at=world.now() + timedelta(days=1))
        await self.fire(world, row, row.cursor + timedelta(seconds=1), later)
        assert await world.news() == []
        row = await self.schedule(world)
        await self.fire(world, row, row.cursor + timedelta(seconds=1), insert())
        assert await world.news() == [GotWork("q")]

    async def test_a_job_of_a_fire_has_every_option(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        row = await self.schedule(world)
        job = insert(
            priority=3,
            max_attempts=7,
            metadata=b'{"awa:cron":"daily"}',
            tags=("t", "u"),
            run_at=world.now().replace(microsecond=0) + timedelta(days=1),
            unique_key=KEY,
            unique_states=3,
            ordering_key="o",
            deadline=5.0,
        )
        answers = await self.fire(world, row, row.cursor + timedelta(seconds=1), job)
        assert answers is not None
        [found] = await world.store.get([answers[0].id])
        assert (found.priority, found.max_attempts, found.tags) == (3, 7, ("t", "u"))
        assert (found.unique_key, found.unique_states, found.ordering_key) == (KEY, 3, "o")
        assert (found.deadline, found.run_at, found.state) == (
            5.0,
            job.run_at,
            JobState.SCHEDULED,
        )
        assert found.schedule == "daily"

    async def test_a_paused_schedule_does_not_fire(self, world: World) -> None:
        await self.registered(world, DAILY)
        assert await world.store.pause_schedule("daily", True)
        await world.advance(60)
        row = await self.schedule(world)
        assert row.paused
        assert row.next_at is None
        assert await self.fire(world, row, row.cursor + timedelta(seconds=1), insert()) is None
        assert await self.inserted(world) == 0

    async def test_what_passed_while_it_was_paused_is_dealt_with(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.store.pause_schedule("daily", True)
        await world.advance(3600)
        assert await world.store.pause_schedule("daily", False)
        row = await self.schedule(world)
        assert not row.paused
        assert row.now - row.cursor < timedelta(seconds=5)
        assert row.now - row.since >= timedelta(hours=1), "it does not begin anew"

    async def test_pausing_again_and_resuming_again_change_nothing(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        cursor = (await self.schedule(world)).cursor
        assert await world.store.pause_schedule("daily", False)
        assert (await self.schedule(world)).cursor == cursor
        await world.store.pause_schedule("daily", True)
        paused_at = (await self.schedule(world)).paused_at
        await world.store.pause_schedule("daily", True)
        assert (await self.schedule(world)).paused_at == paused_at
        assert not await world.store.pause_schedule("nobody", True)

    async def test_registering_again_changes_nothing(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.store.pause_schedule("daily", True)
        await world.advance(60)
        before = await self.schedule(world)
        [after] = await self.registered(world, DAILY, anew=True)
        assert after.seen_at > before.seen_at
        assert attrs.evolve(after, seen_at=before.seen_at, now=before.now) == before

    async def test_another_expression_or_zone_begins_anew(self, world: World) -> None:
        for changes in ({"expression": "0 8 * * *"}, {"timezone": "UTC"}, {"timezone": None}):
            await self.registered(world, DAILY, anew=True)
            await world.advance(3600)
            changed = attrs.evolve(DAILY, **changes)
            [told] = await self.registered(world, changed)
            assert told.now - told.cursor >= timedelta(hours=1), "one that only says so"
            assert (told.expression, told.timezone) == (changed.expression, changed.timezone)
            await self.registered(world, DAILY)
            [row] = await self.registered(world, changed, anew=True)
            assert row.now - row.cursor < timedelta(seconds=5)
            assert row.now - row.since < timedelta(seconds=6)

    async def test_another_policy_or_kind_does_not(self, world: World) -> None:
        [before] = await self.registered(world, DAILY)
        [row] = await self.registered(
            world, attrs.evolve(DAILY, missed="skip", kind="other"), anew=True
        )
        assert (row.missed, row.kind, row.cursor) == ("skip", "other", before.cursor)

    async def test_an_error_stays_until_the_next_fire(self, world: World) -> None:
        await self.registered(world, attrs.evolve(DAILY, error="it broke"))
        await world.advance(60)
        row = await self.schedule(world)
        assert row.error == "it broke"
        await self.fire(world, row, row.cursor + timedelta(seconds=1), insert())
        assert (await self.schedule(world)).error is None

    async def test_one_that_nobody_has_any_more_is_orphaned(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(299)
        assert not (await self.schedule(world)).orphaned
        await world.advance(10)
        assert (await self.schedule(world)).orphaned
        [row] = await self.registered(world, DAILY)
        assert not row.orphaned

    async def test_a_schedule_is_forgotten_and_its_jobs_stay(self, world: World) -> None:
        await self.registered(world, DAILY)
        await world.advance(60)
        row = await self.schedule(world)
        await self.fire(world, row, row.cursor + timedelta(seconds=1), insert())
        assert await world.store.remove_schedule("daily")
        assert await world.store.schedules() == []
        assert not await world.store.remove_schedule("daily")
        assert await self.inserted(world) == 1
        [row] = await self.registered(world, DAILY)
        assert row.fires == 0

"""Bugs planted in a test's own database, or before its store: each is caught, where it is."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest

import awa_trio as awa
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.plan import Plan, Transition
from awa_trio._seam.errors import Fenced, Transient
from awa_trio._seam.values import Claimed, Settled, Want
from tests.runtime.faults import Fault, Settle, make_faulty

from . import STAGED, WORKERS, Verdict, Witness, check, recorded, staged
from .checking import MODELS, Replay
from .conftest import SQL_ENGINES, recorded_database
from .planting import plant
from .test_real_runs import Work, make_app, until_done, work_with

KEY = b"sixteen bytes ok"


Scenario: TypeAlias = "Callable[[Bench], Awaitable[None]]"


class Bench:
    """One worker, whose calls the test makes."""

    def __init__(self, store: Any, dsn: str) -> None:
        self.store = store
        self.dsn = dsn
        self.worker = 0

    def execute(self, statement: str) -> None:
        """Do something that no worker would."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    async def enqueue(self, n: int = 1) -> list[int]:
        jobs = [PreparedInsert("work", "q", b"{}")] * n
        return [one.id for one in await self.store.enqueue(jobs)]

    async def claim(self) -> list[Claimed]:
        self.worker = self.worker or await self.store.register("w", 3600)
        wants = [Want("q", 10, 0.0, 0.0)]
        claimed: list[Claimed] = await self.store.claim(self.worker, wants, {"work": None})
        return claimed

    async def move(self, job: Claimed, source: JobState, to: JobState) -> None:
        """Do what an administrator does."""
        move = Transition(job.id, job.run_lease, source, to, job.attempt)
        [settled] = await self.store.settle([Plan(move)], worker=None)
        assert settled.applied

    async def rescue(self) -> None:
        """Do what a worker does for all of them, once."""
        lost = await self.store.rescue(
            10, deadline_slack=60.0, kinds=["work"], strangers_after=math.inf
        )
        for found in lost:
            await self.move(found.job, JobState.RUNNING, JobState.AVAILABLE)

    async def settle(
        self,
        job: Claimed,
        to: JobState = JobState.COMPLETED,
        *keys: bytes,
        by_others: bool = False,
    ) -> Settled:
        move = Transition(job.id, job.run_lease, JobState.RUNNING, to, job.attempt)
        inserts = tuple(
            PreparedInsert("b", "b", b"{}", unique_key=k, unique_states=31) for k in keys
        )
        worker = None if by_others else self.worker
        [settled] = await self.store.settle([Plan(move, inserts)], worker=worker)
        answer: Settled = settled
        return answer


async def run(dsn: str, *scenarios: Scenario, models: Sequence[Replay] = MODELS) -> Verdict:
    async with awa.connect(dsn) as client:
        for scenario in scenarios:
            await scenario(Bench(client._backend.store, dsn))
    return check(recorded(dsn), models=models)


async def late_completion(bench: Bench) -> None:
    """Cancelled, reopened, claimed again; then the first attempt's completion arrives."""
    await bench.enqueue()
    [first] = await bench.claim()
    await bench.settle(first, JobState.CANCELLED, by_others=True)
    await bench.move(first, JobState.CANCELLED, JobState.AVAILABLE)
    await bench.claim()
    await bench.settle(first)


async def same_key_twice(bench: Bench) -> None:
    await bench.enqueue(2)
    for job in await bench.claim():
        await bench.settle(job, JobState.COMPLETED, KEY)


async def answer_lost(bench: Bench) -> None:
    """The completion is tried again, though the follow-up need not be the same."""
    await bench.enqueue()
    [job] = await bench.claim()
    for key in (KEY, KEY[::-1]):
        await bench.settle(job, JobState.COMPLETED, key)


async def zombie(bench: Bench) -> None:
    """Fenced while it runs; its completion arrives nevertheless."""
    await bench.enqueue()
    [job] = await bench.claim()
    bench.execute(f"UPDATE awa.workers SET fenced_at = now() WHERE id = {bench.worker}")
    with suppress(Fenced):
        await bench.settle(job)


async def fenced_and_rescued(bench: Bench) -> None:
    """Rescued once its worker is fenced, and not before; then another claims it."""
    await bench.enqueue()
    await bench.claim()
    await bench.rescue()
    bench.execute(f"UPDATE awa.workers SET fenced_at = now() WHERE id = {bench.worker}")
    await bench.rescue()
    bench.worker = 0
    for again in await bench.claim():
        await bench.settle(again)


async def truncated_under_an_attempt(bench: Bench) -> None:
    await bench.enqueue()
    await bench.claim()
    bench.execute("SELECT awa.truncate_segment(0::smallint)")


SCENARIOS = (late_completion, same_key_twice, answer_lost, zombie, fenced_and_rescued)


async def test_without_a_bug_it_fits(recording: str) -> None:
    verdict = await run(recording, *SCENARIOS)
    assert verdict.misfit is None, str(verdict)
    assert verdict.steps >= 50


@pytest.mark.parametrize(
    ("function", "right", "wrong", "scenario", "engines", "model", "misfit"),
    [
        pytest.param(
            "settle_unrecorded",
            "AND j.run_lease = p.run_lease",
            "",
            late_completion,
            SQL_ENGINES,
            STAGED,
            "commit 1, 1, frozenset()",
            id="a settlement without the lease guard",
        ),
        pytest.param(
            "settle_unrecorded",
            "IF taking IS NOT NULL OR releasing IS NOT NULL",
            "IF false",
            same_key_twice,
            ["canonical"],
            STAGED,
            "commit 2, 1, frozenset({Key",
            id="keys are not taken",
        ),
        pytest.param(
            "lock_worker",
            "AND w.fenced_at IS NULL",
            "",
            zombie,
            ["segmented"],
            STAGED,
            "commit 1, 1, frozenset(), Worker",
            id="a fenced worker is accepted",
        ),
        pytest.param(
            "complete_in_lanes",
            "c.ids - (SELECT coalesce(range_agg(e.ids), '{}') FROM awa.lane_ends AS e\n"
            "                             WHERE e.segment = c.segment AND e.claim = c.number) AS ids",
            "c.ids",
            answer_lost,
            ["segmented"],
            STAGED,
            "stage 1, 1, Key",
            id="a completion that does not look what has ended",
        ),
        pytest.param(
            "settle_unrecorded",
            "AND j.run_lease = p.run_lease",
            "",
            late_completion,
            ["segmented"],
            WORKERS,
            "commit settle Worker(id=1), frozenset({(Job(id=1), 1)})",
            id="a set without the lease guard",
        ),
        pytest.param(
            "settle_unrecorded",
            "WHEN stale IS NULL OR p <> ALL (stale)",
            "WHEN true",
            answer_lost,
            ["canonical"],
            WORKERS,
            "commit settle Worker(id=1), frozenset(), frozenset({(Job(id=1), 1)})",
            id="a stale plan's follow-ups are inserted",
        ),
        pytest.param(
            "lock_worker",
            "AND w.fenced_at IS NULL",
            "",
            zombie,
            ["canonical"],
            WORKERS,
            "begin settle Worker(id=1)",
            id="a set of a fenced worker is accepted",
        ),
        pytest.param(
            "rescue",
            "WHERE j.state = 'running'\n       AND (l.stale OR",
            "WHERE j.state = 'running'\n       AND (true OR",
            fenced_and_rescued,
            ["canonical"],
            WORKERS,
            "others job 1, available, False",
            id="an attempt of a living worker is rescued",
        ),
    ],
)
async def test_a_planted_bug_is_caught(
    function: str,
    right: str,
    wrong: str,
    scenario: Scenario,
    engines: Collection[str],
    model: Replay,
    misfit: str,
    request: pytest.FixtureRequest,
) -> None:
    for engine in engines:
        dsn = recorded_database(request, engine)
        plant(dsn, [function], right, wrong)
        verdict = await run(dsn, scenario, models=[model])
        assert str(verdict.misfit).startswith(misfit), str(verdict)


async def test_a_truncation_under_what_runs_is_caught(request: pytest.FixtureRequest) -> None:
    dsn = recorded_database(request, "segmented")
    verdict = await run(dsn, truncated_under_an_attempt, models=[STAGED])
    assert str(verdict.misfit) == "lost 1"


# ---- in the worker, before its store


async def run_worker(dsn: str, path: Path, make_fault: Callable[[Any], Fault]) -> Verdict:
    """A worker's first settlement meets a fault; its handlers are watched."""
    app = make_app()
    async with awa.connect(dsn, app=app, observers=[Witness(path)]) as client:
        faulty, backend = make_faulty(client, app)
        backend.faults.append(make_fault(client._backend.store))
        await client.enqueue(Work(1, [1]))
        async with work_with(app, faulty):
            await until_done(client)
    return check(recorded(dsn), staged(path), models=[STAGED])


def insert_apart(store: Any) -> Fault:
    """The follow-ups are inserted in a transaction of their own."""

    async def fault(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
        inserts = [insert for plan in plans for insert in plan.inserts]
        for plan in plans:
            plan.inserts = ()
        answers = await settle()
        await store.enqueue(inserts)
        return answers

    return fault


def drain(store: Any) -> Fault:
    """The first try fails, and has used up the follow-ups."""

    async def fault(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
        for plan in plans:
            plan.inserts = ()
        raise Transient("the connection was lost")

    return fault


@pytest.mark.parametrize(
    ("fault", "misfit"),
    [
        (insert_apart, "commit 1, 1, frozenset(),"),
        (drain, "commit 1, 1, frozenset(),"),
    ],
)
async def test_what_a_worker_does_with_follow_ups(
    recording: str, tmp_path: Path, fault: Callable[[Any], Fault], misfit: str
) -> None:
    verdict = await run_worker(recording, tmp_path / "staged", fault)
    assert str(verdict.misfit).startswith(misfit), str(verdict)

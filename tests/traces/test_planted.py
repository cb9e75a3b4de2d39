"""Bugs planted in a test's own database, or before its store: each is caught, where it is."""

from __future__ import annotations

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

from . import Verdict, Witness, check, recorded, staged
from .conftest import SQL_ENGINES, recorded_database
from .test_real_runs import Work, make_app, until_done, work_with

KEY = b"sixteen bytes ok"


def plant(dsn: str, function: str, right: str, wrong: str) -> None:
    """Change a function of the test's database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT pg_get_functiondef(to_regproc(%s))", [f"awa.{function}"]
        ).fetchone()
        assert row is not None
        assert right in row[0], f"{function} is not what the bug is planted in"
        connection.execute(row[0].replace(right, wrong).encode())


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


async def run(dsn: str, *scenarios: Scenario) -> Verdict:
    async with awa.connect(dsn) as client:
        for scenario in scenarios:
            await scenario(Bench(client._backend.store, dsn))
    return check(recorded(dsn))


async def late_completion(bench: Bench) -> None:
    """Rescued, claimed again; then the first attempt's completion arrives."""
    await bench.enqueue()
    [first] = await bench.claim()
    await bench.settle(first, JobState.AVAILABLE, by_others=True)
    await bench.claim()
    await bench.settle(first)


async def same_key_twice(bench: Bench) -> None:
    await bench.enqueue(2)
    for job in await bench.claim():
        await bench.settle(job, JobState.COMPLETED, KEY)


async def answer_lost(bench: Bench) -> None:
    """The completion is tried again."""
    await bench.enqueue()
    [job] = await bench.claim()
    for _ in range(2):
        await bench.settle(job, JobState.COMPLETED, KEY)


async def zombie(bench: Bench) -> None:
    """Fenced while it runs; its completion arrives nevertheless."""
    await bench.enqueue()
    [job] = await bench.claim()
    bench.execute(f"UPDATE awa.workers SET fenced_at = now() WHERE id = {bench.worker}")
    with suppress(Fenced):
        await bench.settle(job)


async def truncated_under_an_attempt(bench: Bench) -> None:
    await bench.enqueue()
    await bench.claim()
    bench.execute("SELECT awa.truncate_segment(0::smallint)")


async def test_without_a_bug_it_fits(recording: str) -> None:
    verdict = await run(recording, late_completion, same_key_twice, answer_lost, zombie)
    assert verdict.misfit is None, str(verdict)
    assert verdict.steps >= 15


@pytest.mark.parametrize(
    ("function", "right", "wrong", "scenario", "engines", "misfit"),
    [
        pytest.param(
            "settle_unrecorded",
            "AND j.run_lease = p.run_lease",
            "",
            late_completion,
            SQL_ENGINES,
            "commit 1, 1, frozenset()",
            id="a settlement without the lease guard",
        ),
        pytest.param(
            "settle_unrecorded",
            "IF taking IS NOT NULL OR releasing IS NOT NULL",
            "IF false",
            same_key_twice,
            ["canonical"],
            "commit 2, 1, frozenset({Key",
            id="keys are not taken",
        ),
        pytest.param(
            "lock_worker",
            "AND w.fenced_at IS NULL",
            "",
            zombie,
            ["segmented"],
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
            "stage 1, 1, Key",
            id="a completion that does not look what has ended",
        ),
    ],
)
async def test_a_planted_bug_is_caught(
    function: str,
    right: str,
    wrong: str,
    scenario: Scenario,
    engines: Collection[str],
    misfit: str,
    request: pytest.FixtureRequest,
) -> None:
    for engine in engines:
        dsn = recorded_database(request, engine)
        plant(dsn, function, right, wrong)
        verdict = await run(dsn, scenario)
        assert str(verdict.misfit).startswith(misfit), str(verdict)


async def test_a_truncation_under_what_runs_is_caught(request: pytest.FixtureRequest) -> None:
    verdict = await run(recorded_database(request, "segmented"), truncated_under_an_attempt)
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
    return check(recorded(dsn), staged(path))


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

"""Bugs planted in a test's own database, or before its store: each is caught, where it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psycopg
import pytest

import awa_trio as awa
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.plan import Plan, Transition
from awa_trio._seam.values import Claimed, Settled, Want

from . import Verdict, check, recorded
from .conftest import SQL_ENGINES, recorded_database

KEY = b"sixteen bytes ok"


def plant(dsn: str, function: str, right: str, wrong: str) -> None:
    """Change a function of the test's database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        [text] = connection.execute(
            "SELECT pg_get_functiondef(to_regproc(%s))", [f"awa.{function}"]
        ).fetchone() or [""]
        assert right in text, f"{function} is not what the bug is planted in"
        connection.execute(text.replace(right, wrong).encode())


class Bench:
    """One worker, whose calls the test makes."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.worker = 0

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


async def run(dsn: str, scenario: Any) -> Verdict:
    async with awa.connect(dsn) as client:
        await scenario(Bench(client._backend.store))
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


SCENARIOS = [late_completion, same_key_twice, answer_lost]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_without_a_bug_it_fits(recording: str, scenario: Any) -> None:
    verdict = await run(recording, scenario)
    assert verdict.misfit is None, str(verdict)
    assert verdict.steps >= 3


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
            SQL_ENGINES,
            "commit 2, 1, frozenset({Key",
            id="keys are not taken",
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
    scenario: Any,
    engines: Collection[str],
    misfit: str,
    request: pytest.FixtureRequest,
) -> None:
    for engine in engines:
        dsn = recorded_database(request, engine)
        plant(dsn, function, right, wrong)
        verdict = await run(dsn, scenario)
        assert str(verdict.misfit).startswith(misfit), str(verdict)

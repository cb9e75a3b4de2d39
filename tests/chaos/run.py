"""One run: everybody works, faults strike, all of it comes to rest; then it is looked at."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from unittest import mock

import psycopg
import trio
from attrs import frozen

from awa_trio._app import calls
from awa_trio.pg import TrioConnection

from . import tracing
from .app import CANCEL_GRACE
from .bugs import break_product
from .evidence import Evidence, Snapshot, gathered, snapshot
from .faults import Fault
from .ground import Ground, ground
from .invariants import at_most_one_job_holds_a_key, unique_claims_match_rows
from .ledger import Line
from .scene import Scene

#: Seconds after which what has not happened is not going to.
FAR = 60.0


@frozen
class Plan:
    """What a run is to be; the same plan is the same run, but for what the machine decides."""

    seed: int
    engine: str
    faults: Sequence[Fault]
    rounds: int | None = 1
    """How often each fault strikes; None for as long as there is time."""
    seconds: float = float("inf")
    """After which no more faults strike."""
    workers: int = 3
    producers: int = 2
    rate: float = 4.0
    """Jobs that each producer enqueues in a second."""
    most_connections: int = 300
    trace: bool = False
    """Whether it is recorded, and replayed against the models: for runs of few jobs."""
    planted: str | None = None
    """What of `bugs.BUGS` is wrong with the product; None if nothing is."""


@frozen
class Outcome:
    """What came of a run."""

    plan: Plan
    evidence: Evidence
    seconds: float
    samples: int
    """How often the database was looked at while the faults struck."""
    trace: Line | None = None
    """What came of its replay, see `tracing.verdict`."""


def run(plan: Plan, folder: Path) -> Outcome:
    """Run it; files stay in the folder, for who wants to look closer."""
    begun = time.monotonic()
    (servers := folder / "servers").mkdir()
    (ledgers := folder / "ledgers").mkdir()
    with (
        ground(
            servers,
            plan.engine,
            standby=any(fault.standby for fault in plan.faults),
            wal_disk=any(fault.wal_disk for fault in plan.faults),
            most_connections=plan.most_connections,
        ) as made,
        # Whoever waits in vain finds out as fast as the workers do.
        mock.patch.object(calls, "CALL_TIMEOUT", 2.0),
        mock.patch.object(TrioConnection, "cancel_grace", CANCEL_GRACE),
    ):
        if plan.planted is not None:
            break_product(made.primary.dsn(), plan.planted)
        if plan.trace:
            tracing.begin(made.primary.dsn(), ledgers)
        evidence, samples = trio.run(_play, plan, made, ledgers)
        trace = tracing.verdict(made.primary.dsn(), ledgers) if plan.trace else None
    return Outcome(plan, evidence, time.monotonic() - begun, samples, trace)


async def _play(plan: Plan, made: Ground, folder: Path) -> tuple[Evidence, int]:
    scene = Scene.of(
        made,
        folder,
        plan.seed,
        workers=plan.workers,
        producers=plan.producers,
        rate=plan.rate,
    )
    snapshots: list[Snapshot] = []
    sessions: list[str] = []
    async with trio.open_nursery() as network:
        for place in scene.places:
            await network.start(place.serve)
        followed = trio.Event()
        async with trio.open_nursery() as followers:
            followers.start_soon(scene.follow, followed)
            async with trio.open_nursery() as crew:
                for worker in scene.workers:
                    crew.start_soon(scene.keep_up, worker)
                await _until_all_work(scene)
                samples = await _trouble(plan, scene, snapshots)
                undrained = await _drained(scene)
                await scene.call_the_roll(FAR / 2)
                sessions += await _lingering(made, 1.0)
                await scene.stop_workers()
                crew.cancel_scope.deadline = trio.current_time() + FAR / 2
            followed.set()
        network.cancel_scope.cancel()
    sessions += await _outliving(made)
    snapshots.append(await trio.to_thread.run_sync(_looked, made))
    scene.ledger.close()
    return gathered(scene.lines, snapshots, undrained, sessions), samples


async def _until_all_work(scene: Scene) -> None:
    with trio.fail_after(FAR):
        while sum(line["what"] == "works" for line in scene.lines) < len(scene.workers):
            await trio.sleep(0.05)


async def _trouble(plan: Plan, scene: Scene, snapshots: list[Snapshot]) -> int:
    """Let everybody work, and faults strike, until it is over; return how often it was looked."""
    over = trio.Event()
    samples = 0

    async def look() -> None:
        nonlocal samples
        while not over.is_set():
            begun = trio.current_time()
            try:
                seen = await trio.to_thread.run_sync(_looked, scene.ground)
            except psycopg.OperationalError:
                pass
            else:
                samples += 1
                one = Evidence([seen])
                if any(at_most_one_job_holds_a_key(one)) or any(unique_claims_match_rows(one)):
                    snapshots.append(seen)
            with trio.move_on_after(1 + 5 * (trio.current_time() - begun)):
                await over.wait()

    async with trio.open_nursery() as nursery:
        for n, place in enumerate(scene.producers):
            nursery.start_soon(scene.produce, place, 1000 * plan.seed + n, over)
        nursery.start_soon(scene.cancel_some, over)
        nursery.start_soon(look)
        deadline = trio.current_time() + plan.seconds
        chance = Random(plan.seed)
        for fault in _order(plan, chance):
            await trio.sleep(chance.uniform(0.1, 0.8))
            if trio.current_time() >= deadline:
                break
            struck = time.monotonic()
            did = await fault.act(scene, chance)
            lifted = time.monotonic()
            scene.ledger.write("struck", fault=fault.name, did=did, struck=struck)
            # Most strike a queue that works, some one that has just been hurt.
            if chance.random() < 0.8:
                with trio.move_on_after(FAR):
                    while scene.last_completion < lifted:
                        await trio.sleep(0.05)
        over.set()
    return samples


def _order(plan: Plan, chance: Random) -> Iterator[Fault]:
    """Each as often as the others, in an order that chance decides."""
    turn = 0
    while plan.rounds is None or turn < plan.rounds:
        faults = list(plan.faults)
        chance.shuffle(faults)
        yield from faults
        turn += 1


def _looked(made: Ground) -> Snapshot:
    with made.primary.connect() as connection:
        return snapshot(connection)


async def _drained(scene: Scene) -> list[str]:
    """Wait until no job is on its way; those that are after a long time."""

    def on_their_way() -> list[str]:
        rows = scene.ground.primary.execute(
            "SELECT id, kind, state FROM awa.list_jobs("
            "'{scheduled,available,running,retryable,waiting_external}',"
            " NULL, NULL, NULL, NULL, 1000)",
            database="chaos",
        )
        return [f"job {job} ({kind}) is still {state}" for job, kind, state in rows]

    left: list[str] = []
    with trio.move_on_after(FAR):
        while left := await trio.to_thread.run_sync(on_their_way):
            await trio.sleep(0.1)
    return left


async def _lingering(made: Ground, seconds: float) -> list[str]:
    """Sessions that are in a transaction for so long though nobody has anything to do."""

    def transactions() -> dict[tuple[object, ...], str]:
        with made.primary.connect() as connection:
            rows = connection.execute(
                "SELECT pid, xact_start::text, state, query FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend' AND xact_start IS NOT NULL"
            ).fetchall()
            locks = connection.execute(
                "SELECT pid, objid FROM pg_locks WHERE locktype = 'advisory'"
            ).fetchall()
            prepared = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
        return {
            **{row[:2]: f"session {row[0]}, {row[2]} since {row[1]}: {row[3]}" for row in rows},
            **{row: f"session {row[0]} holds advisory lock {row[1]}" for row in locks},
            **{row: f"prepared transaction {row[0]}" for row in prepared},
        }

    first = await trio.to_thread.run_sync(transactions)
    await trio.sleep(seconds)
    then = await trio.to_thread.run_sync(transactions)
    return [said for key, said in first.items() if key in then]


async def _outliving(made: Ground) -> list[str]:
    """Sessions of clients that are no more."""
    look = partial(
        made.primary.execute,
        "SELECT pid, state, query FROM pg_stat_activity WHERE application_name = 'awa_trio'",
    )
    left: list[tuple[object, ...]] = []
    with trio.move_on_after(FAR / 2):
        while left := await trio.to_thread.run_sync(look):
            await trio.sleep(0.1)
    return [f"session {pid} is left, {state}: {query}" for pid, state, query in left]

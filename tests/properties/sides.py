"""The stores that a machine compares, each with what makes its answers comparable.

Whatever differs between two stores and means nothing is taken out here: IDs become the
place of a job in the order of their making, workers likewise, instants become seconds from
now. What is left must be the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeAlias

import attrs
import psycopg

import awa_trio as awa
from awa_trio._app.app import registry_of
from awa_trio._app.connect import PgBackend
from awa_trio._app.connections import Opener
from awa_trio._core.job import TRIGGERED_BY, JobDetails, JobRow
from awa_trio._pg.pool import Pool
from awa_trio._runtime.finalize import Entry
from awa_trio._runtime.planner import Planner
from awa_trio._runtime.upkeep import Upkeep
from awa_trio._seam.errors import Fenced, StoreError
from awa_trio._seam.protocol import WorkerStore
from awa_trio._seam.values import (
    Backlog,
    Claimed,
    Enqueued,
    Held,
    Insertion,
    JobFilter,
    Settled,
    Swept,
)
from awa_trio._store.memory.queue_book import QueueBook
from awa_trio._store.memory.rows import EPOCH
from awa_trio.testing._memory import MemoryBackend
from tests.stores.contract import World
from tests.stores.test_canonical import SqlWorld
from tests.stores.test_memory import MemoryWorld
from tests.stores.test_segmented import SegmentedWorld

#: Seconds by which instants of two stores may differ: one is asked after the other, on a
#: machine that may be busy. Everything that is decided by time is decided by hundreds.
CLOSE = 30.0

#: What a call may raise that is an answer.
ERRORS = (awa.AwaError, Fenced, ValueError)


@attrs.frozen
class JobId:
    """The ID of a job, where nothing else says that it is one."""

    id: int | None


@attrs.frozen
class Error:
    """What an operation raised, and said to people."""

    kind: str
    message: str


Operation: TypeAlias = Callable[["Side"], Awaitable[object]]


class Half(Random):
    """Chance that is the same for all."""

    def random(self) -> float:
        return 0.5


class Direct:
    """Settles what upkeep asks for at once, in the order of the jobs."""

    def __init__(self, store: WorkerStore) -> None:
        self._store = store

    async def settle(self, entries: Sequence[Entry]) -> None:
        plans = sorted((e.plan for e in entries), key=lambda plan: plan.move.job_id)
        await self._store.settle(plans, worker=None)


class Side:
    """One store, and a client on it."""

    def __init__(self, name: str, world: World, client: awa.Client, app: awa.App) -> None:
        self.name = name
        self.world = world
        self.store = world.store
        self.client = client
        self.planner = Planner(registry_of(app), Half())
        self.upkeep = Upkeep(
            self.store,
            Direct(self.store),  # type: ignore[arg-type]
            self.planner,
            app.kinds,
            self._nobody,
            awa.Timings(),
            awa.Retention(),
        )
        self.ids: list[int] = []
        """The jobs there have been, in the order of their making."""
        self.workers: list[int] = []
        self.claims: dict[tuple[int, int], Claimed] = {}
        """What was claimed, by the number of the job and its lease."""

    async def _nobody(self) -> int:
        raise AssertionError("nobody leads")

    async def forget(self) -> None:
        """Begin again without jobs."""
        self.ids, self.workers, self.claims = [], [], {}

    async def holders(self) -> dict[bytes, int]:
        """The unique keys that are held, and by which job."""
        raise NotImplementedError

    async def transact(self, jobs: Sequence[awa.EnqueueRequest], commit: bool) -> object:
        """Enqueue in a transaction that commits, or does not; what was answered."""
        raise NotImplementedError

    # ---- what is the same for all

    def job(self, number: int) -> int:
        """The ID of a job; one that never was, if there are not so many."""
        return self.ids[number] if number < len(self.ids) else 10**9 + number

    def at(self, seconds: float | None) -> datetime | None:
        """An instant, so many seconds from now."""
        return None if seconds is None else self.world.now() + timedelta(seconds=seconds)

    def number(self, job_id: int | None) -> object:
        """The number of a job."""
        if job_id is None:
            return None
        return self.ids.index(job_id) if job_id in self.ids else "no job"

    def worker(self, worker_id: int | None) -> object:
        """The number of a worker."""
        return None if worker_id is None else self.workers.index(worker_id)

    def told(self, text: str) -> str:
        """A message, with numbers of jobs for their IDs."""
        return re.sub(r"\bjob (\d+)", lambda m: f"job #{self.number(int(m[1]))}", text)

    def _since(self, at: datetime | None) -> float | None:
        return None if at is None else (at - self.world.now()).total_seconds()

    def row(self, row: JobRow) -> dict[str, object]:
        """A job as it was claimed or read."""
        metadata = dict(row.all_metadata)
        triggered_by = metadata.pop(TRIGGERED_BY, None)
        found: dict[str, object] = {
            "job": self.number(row.id),
            "kind": row.kind,
            "queue": row.queue,
            "priority": row.priority,
            "attempt": row.attempt,
            "max_attempts": row.max_attempts,
            "args": row.raw_args,
            "metadata": metadata,
            "triggered_by": self.number(triggered_by),
            "tags": row.tags,
            "created_at": self._since(row.created_at),
            "run_at": self._since(row.run_at),
            "deadline": row.deadline,
            "ordering_key": row.ordering_key,
            "limit_key": row.limit_key,
            "run_lease": row.run_lease,
            "progress": row.raw_progress,
            "answer": row.raw_callback_answer,
        }
        if isinstance(row, JobDetails):
            found |= {
                "state": row.state,
                # Not when: they are in a value, which a test's time does not move.
                "errors": [(self.told(e.error), e.attempt, e.terminal) for e in row.errors],
                "worker": self.worker(row.worker_id),
                "attempted_at": self._since(row.attempted_at),
                "deadline_at": self._since(row.deadline_at),
                "finalized_at": self._since(row.finalized_at),
                "unique_key": row.unique_key,
                "unique_states": row.unique_states,
                "output": row.raw_output,
                "dead_letter": row.dead_letter,
                "token": row.callback_token,
                "until": self._since(row.callback_until),
            }
        return found

    def plain(self, answer: object) -> object:
        """What a store answered, comparable with what another did."""
        match answer:
            case JobRow():
                return self.row(answer)
            case JobId(job_id):
                return self.number(job_id)
            case Enqueued(job_id, inserted):
                return (self.number(job_id), inserted)
            case Insertion(job_id, holder_id):
                return (self.number(job_id), self.number(holder_id))
            case Settled(applied, insertions, duplicate_of):
                made = [self.plain(one) for one in insertions]
                return (applied, made, self.number(duplicate_of))
            case Held():
                return attrs.astuple(attrs.evolve(answer, id=0)), self.number(answer.id)
            case Swept(done, last_id):
                return (done, self.number(last_id))
            case Backlog():
                return attrs.astuple(answer)
            case list() | tuple():
                return [self.plain(one) for one in answer]
            case _:
                return answer

    async def do(self, operation: Operation) -> tuple[object, object, object]:
        """Do something; the answer, all jobs, and who holds which key."""
        answer: object
        try:
            answer = await operation(self)
        except ERRORS as error:
            answer = error
        jobs = await self.store.list(JobFilter(), 1_000)
        self.ids += sorted(job.id for job in jobs if job.id not in self.ids)
        holders = await self.holders()
        if isinstance(answer, BaseException):
            said = "" if isinstance(answer, StoreError) else self.told(str(answer))
            answer = Error(type(answer).__name__, said)
        return (
            self.plain(answer),
            [self.row(job) for job in jobs],
            {key: self.number(job_id) for key, job_id in holders.items()},
        )


class MemorySide(Side):
    """The store in memory, in the machine's own time."""

    world: MemoryWorld

    async def forget(self) -> None:
        await super().forget()
        store = self.world.memory
        store._jobs.clear()
        store._claims.clear()
        store._workers.clear()
        store._leaders.clear()
        store._book = QueueBook()

    async def holders(self) -> dict[bytes, int]:
        return dict(self.world.memory._claims)

    async def transact(self, jobs: Sequence[awa.EnqueueRequest], commit: bool) -> object:
        return await self.client.enqueue_many(jobs) if commit else None


#: What is emptied: everything but the schema's version, and the ring of segments.
TABLES = """
    SELECT relname FROM pg_class
     WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
       AND relname IN ('jobs', 'unique_claims', 'workers', 'leaders', 'queues', 'buckets',
                       'lane_jobs', 'lane_claims', 'lane_ends', 'lane_turns')
"""


class SqlSide(Side):
    """A store in PostgreSQL."""

    world: SqlWorld

    async def forget(self) -> None:
        await super().forget()
        async with self.world.pool.connection() as connection:
            tables = await (await connection.execute(TABLES)).fetchall()
            for (table,) in tables:
                await connection.execute(f"DELETE FROM awa.{table}".encode())

    async def holders(self) -> dict[bytes, int]:
        async with self.world.pool.connection() as connection:
            found = await connection.execute("SELECT unique_key, job_id FROM awa.unique_claims")
            return {bytes(key): job_id for key, job_id in await found.fetchall()}

    async def transact(self, jobs: Sequence[awa.EnqueueRequest], commit: bool) -> object:
        committed: list[object] = []
        async with self.client.transaction() as tx:
            made = await tx.enqueue_many(jobs)
            if not commit:
                raise psycopg.Rollback  # The block swallows it.
            committed += made
        return committed or None


class RealMemoryWorld(MemoryWorld):
    """It is as late as for the others, and time passes by itself too."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = (datetime.now(UTC) - EPOCH).total_seconds() - time.monotonic()
        self.memory._clock = lambda: self.seconds + time.monotonic()


async def open_sides(
    stack: AsyncExitStack, app: awa.App, canonical: str, segmented: str
) -> list[Side]:
    """The store in memory, which is the model, and both engines; closed with the stack."""
    memory = RealMemoryWorld()
    backend = MemoryBackend()
    backend.store = memory.memory
    sides: list[Side] = [MemorySide("memory", memory, awa.Client(backend, app), app)]
    for name, dsn, kind in (
        ("canonical", canonical, SqlWorld),
        ("segmented", segmented, SegmentedWorld),
    ):
        opener = Opener.of(dsn, prepare=True)
        pool = await stack.enter_async_context(Pool(opener, size=2, name=name))
        client = awa.Client(PgBackend(opener, opener, pool), app)
        sides.append(SqlSide(name, kind(pool, opener, opener), client, app))
    return sides


def same(one: object, other: object) -> bool:
    """Whether two answers mean the same."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, (int, float)):
        return one == other or abs(one - other) < CLOSE
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two answers differ, for people."""
    if same(one, other):
        return []
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for key in one for d in differences(one[key], other[key], f"{path}.{key}")]
    lists = isinstance(one, (list, tuple)) and isinstance(other, (list, tuple))
    if lists and len(one) == len(other):
        return [
            found
            for n, (a, b) in enumerate(zip(one, other, strict=True))
            for found in differences(a, b, f"{path}[{n}]")
        ]
    return [f"{path or 'it'}: {one!r} is not {other!r}"]

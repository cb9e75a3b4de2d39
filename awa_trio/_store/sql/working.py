"""The thin class over an engine's SQL functions.

An engine is a folder of SQL: the functions have the same names and parameters in each,
so everything here holds for all of them. Which locks a call takes, and what its answer
means, is said at the head of the function's own file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol, TypeAlias, cast

import anyio
import psycopg
from psycopg.types.numeric import Int4, Int8

from ..._core.activity import Figures, Latency
from ..._core.errors import ConfigurationError
from ..._core.explaining import Facts
from ..._core.history import History, Step, history
from ..._core.instants import instant
from ..._core.job import JobDetails, JobState, PreparedInsert
from ..._core.job_errors import job_errors
from ..._core.outcome import Lost
from ..._core.plan import Plan
from ..._core.queues import LIVE, QueueStatus, read_settings
from ..._core.request import Replacements
from ..._core.schedules import Definition, ScheduleRow
from ..._core.settings import QueueSettings, Retention
from ..._core.workers import WorkerRow
from ..._pg import arrays
from ..._pg.listener import Listener
from ..._seam.hearing import (
    Answered,
    CutElsewhere,
    Disconnected,
    GotWork,
    Hear,
    News,
    Overridden,
    Reconnected,
)
from ..._seam.protocol import Joined
from ..._seam.values import (
    APPLIED,
    STALE,
    Backlog,
    Claimed,
    DeadLetterFilter,
    Enqueued,
    Held,
    Insertion,
    JobFilter,
    LostJob,
    Passed,
    Settled,
    Swept,
    Wait,
    Waited,
    Want,
)
from ..block import TransactionBlock
from ..cursors import AsyncStoreCursor
from ..failures import InLane, store_error
from ..inserts import NO_COLUMNS, columns, optional, values

logger = logging.getLogger("awa_trio.worker")

Connect: TypeAlias = Callable[[], Awaitable["psycopg.AsyncConnection[Any]"]]


class Connections(Protocol):
    """Where a store borrows connections; `_pg.pool.Pool` is one."""

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Borrow one for a block."""
        ...


def call(function: str, parameters: int) -> bytes:
    """Return the statement that calls one of the engine's functions."""
    places = ", ".join(f"${n + 1}" for n in range(parameters))
    return f"SELECT * FROM awa.{function}({places})".encode()  # noqa: S608, names of ours


ENQUEUE = call("enqueue", 14)
ENQUEUE_MANY = call("enqueue_many", 14)
REGISTER = call("register", 4)
UNREGISTER = call("unregister", 1)
TELL = (
    b"SELECT pg_catalog.pg_notify('awa:jobs', queue)"
    b" FROM pg_catalog.unnest($1::pg_catalog.text[]) AS queue"
)
BEAT = call("beat", 1)
CLAIM = call("claim", 12)
NEXT_DUE = call("next_due", 2)
SETTLE = call("settle", 30)
SETTLE_IN = (
    SETTLE.replace(b"*", b"s.*, pg_catalog.pg_current_xact_id()::pg_catalog.text") + b" AS s"
)
"""Which transaction it was in, too."""
REGISTER_CALLBACK = call("register_callback", 5)
RECORD_PROGRESS = call("record_progress", 4)
DATABASE_IDENTITY = call("database_identity", 0)
CARRY = call("carry", 1)
"""Of the segmented engine only, which asks for it."""
JOIN_TRANSACTION = call("join_transaction", 3)
HAS_COMMITTED = call("has_committed", 3)
BEGIN_WAITS = call("begin_waits", 4)
END_WAITS = call("end_waits", 5)
ANSWERED = call("answered", 1)
RUNNING = call("running", 1)
FIND_CALLBACK = call("find_callback", 1)
ANSWER_CALLBACK = call("answer_callback", 4)
EXTEND_CALLBACK = call("extend_callback", 2)
LEAD = call("lead", 3)
RESCUE = call("rescue", 4)
PRUNE = call("prune", 4)
GET = call("get_jobs", 1)
HOLDER = call("holder", 1)
LIST = call("list_jobs", 6)
LIST_DEAD_LETTERS = call("list_dead_letters", 6)
COUNT_DEAD_LETTERS = call("count_dead_letters", 4)
RETRY_DEAD_LETTERS = call("retry_dead_letters", 10)
PURGE_DEAD_LETTERS = call("purge_dead_letters", 6)
BACKLOGS = call("backlogs", 2)
LIST_FROM = call("list_from", 6)
COUNT = call("count_jobs", 5)
FOLLOW_UPS = call("follow_ups", 2)
FACTS = b"SELECT * FROM awa.job_facts($1, $2) AS f CROSS JOIN awa.get_jobs(ARRAY[$1]) AS g"
"""In one snapshot."""
WAITING_KINDS = call("waiting_kinds", 1)
WORKERS = call("list_workers", 1)
ACTIVITY = call("activity", 2)
HISTORY = call("history", 3)
REGISTER_SCHEDULES = call("register_schedules", 7)
LIST_SCHEDULES = call("list_schedules", 1)
FIRE_CRON = call("fire_cron", 18)
PAUSE_SCHEDULE = call("pause_schedule", 2)
REMOVE_SCHEDULE = call("remove_schedule", 1)
LIST_QUEUES = call("list_queues", 2)
SET_QUEUE = call("set_queue", 3)
OVERRIDE_QUEUE = call("override_queue", 3)
DECLARE_QUEUES = call("declare_queues", 2)
QUEUE_OVERRIDES = call("queue_overrides", 1)
DEPTH = call("depth", 2)


async def database_identity(connection: psycopg.AsyncConnection[Any]) -> str:
    """Return which database a connection is to, among all there are.

    Raises:
      psycopg.Error: it cannot be asked, or has no ``awa`` schema.
    """
    cursor = AsyncStoreCursor(connection)
    await cursor.execute(DATABASE_IDENTITY, ())
    [identity] = await cursor.fetchone() or [""]
    return cast("str", identity)


class SqlStore:
    """A store whose transactions are calls of the ``awa`` schema's functions."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._identity: str | None = None
        """Which database this is, once somebody asked."""

    async def _rows(self, statement: bytes, parameters: Sequence[Any]) -> list[Any]:
        try:
            async with self._connections.connection() as connection:
                cursor = AsyncStoreCursor(connection)
                await cursor.execute(statement, parameters, binary=True)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise store_error(error) from error

    async def _value(self, statement: bytes, parameters: Sequence[Any]) -> Any:
        return (await self._rows(statement, parameters))[0][0]

    # ---- producing

    async def enqueue(
        self, jobs: Sequence[PreparedInsert], *, notify: bool = True
    ) -> list[Enqueued]:
        """See `_seam.protocol.Producing`."""
        if not jobs:
            return []
        return enqueued(await self._rows(*insertion(jobs, notify)))

    # ---- working

    async def register(
        self,
        name: str,
        lease: float,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> int:
        """See `_seam.protocol.Working`."""
        said = [None if names is None else arrays.texts(names) for names in (queues, kinds)]
        return cast("int", await self._value(REGISTER, (name, float(lease), *said)))

    async def unregister(self, worker: int) -> None:
        """See `_seam.protocol.Working`."""
        await self._rows(UNREGISTER, (Int8(worker),))

    async def beat(self, worker: int) -> bool:
        """See `_seam.protocol.Working`."""
        return cast("bool", await self._value(BEAT, (Int8(worker),)))

    async def claim(
        self, worker: int, wants: Sequence[Want], kinds: Mapping[str, float | None]
    ) -> list[Claimed]:
        """See `_seam.protocol.Working`."""
        after = [(want.queue, passed) for want in wants for passed in want.after]
        rows = await self._rows(
            CLAIM,
            (
                Int8(worker),
                arrays.texts([want.queue for want in wants]),
                arrays.int4s([want.most for want in wants]),
                arrays.float8s([want.deadline for want in wants]),
                arrays.float8s([want.ageing for want in wants]),
                arrays.texts(list(kinds)),
                arrays.float8s(list(kinds.values())),
                *(_after(after) if after else NOT_AFTER),
            ),
        )
        return [Claimed(*row) for row in rows]

    async def next_due(self, queues: Sequence[str], kinds: Sequence[str]) -> float | None:
        """See `_seam.protocol.Working`."""
        parameters = (arrays.texts(queues), arrays.texts(kinds))
        return cast("float | None", await self._value(NEXT_DUE, parameters))

    async def settle(
        self,
        plans: Sequence[Plan],
        *,
        worker: int | None,
        patience: float = 0.25,
        strict: bool = False,
        notify: bool = True,
    ) -> list[Settled]:
        """See `_seam.protocol.Working`."""
        if not plans:
            return []
        [row] = await self._rows(SETTLE, _settlement(plans, worker, patience, strict, notify))
        return _settled(plans, *row)

    async def tell(self, queues: Sequence[str]) -> None:
        """See `_seam.protocol.Working`."""
        await self._rows(TELL, (arrays.texts(queues),))

    async def register_callback(
        self, worker: int, job_id: int, run_lease: int, token: str, timeout: float
    ) -> bool:
        """See `_seam.protocol.Working`."""
        parameters = (Int8(worker), Int8(job_id), Int8(run_lease), token, float(timeout))
        return cast("bool", await self._value(REGISTER_CALLBACK, parameters))

    async def record_progress(
        self, worker: int, reports: Sequence[tuple[int, int, bytes]]
    ) -> list[bool]:
        """See `_seam.protocol.Working`."""
        if not reports:
            return []
        job_ids, run_leases, texts = zip(*reports, strict=True)
        parameters = (
            Int8(worker),
            arrays.int8s(job_ids),
            arrays.int8s(run_leases),
            arrays.jsons(texts),
        )
        kept = {job_id for (job_id,) in await self._rows(RECORD_PROGRESS, parameters)}
        return [job_id in kept for job_id in job_ids]

    @asynccontextmanager
    async def join(
        self, connection: object, worker: int, job_id: int, run_lease: int
    ) -> AsyncIterator[Joined]:
        """See `_seam.protocol.Working`."""
        block = TransactionBlock(connection)
        if self._identity is None:
            self._identity = cast("str", await self._value(DATABASE_IDENTITY, ()))
        joined = JoinedTransaction(block)
        try:
            identity = await joined.begin(worker, job_id, run_lease)
        except InLane:
            await self._rows(CARRY, (arrays.int8s([job_id]),))
            identity = await joined.begin(worker, job_id, run_lease)
        try:
            if identity != self._identity:
                raise ConfigurationError(
                    "this connection leads to another database than the worker's; open it with"
                    " the worker's DSN"
                )
            yield joined
        except BaseException as error:
            if not await block.roll_back(error):
                raise
        else:
            await block.commit()

    async def has_committed(self, job_id: int, run_lease: int, transaction: str) -> bool | None:
        """See `_seam.protocol.Working`."""
        parameters = (Int8(job_id), Int8(run_lease), transaction)
        return cast("bool | None", await self._value(HAS_COMMITTED, parameters))

    async def running(self, worker: int) -> list[Held]:
        """See `_seam.protocol.Working`."""
        return [_held(row) for row in await self._rows(RUNNING, (Int8(worker),))]

    async def answered(self, worker: int) -> list[Held]:
        """See `_seam.protocol.Working`."""
        return [_held(row) for row in await self._rows(ANSWERED, (Int8(worker),))]

    async def begin_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """See `_seam.protocol.Working`."""
        rows = await self._rows(BEGIN_WAITS, (Int8(worker), *_wait_columns(waits)))
        return _waited(waits, rows)

    async def end_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """See `_seam.protocol.Working`."""
        left = arrays.float8s([wait.seconds for wait in waits])
        rows = await self._rows(END_WAITS, (Int8(worker), *_wait_columns(waits), left))
        return _waited(waits, rows)

    # ---- upkeep

    async def lead(self, duty: str, worker: int, seconds: float) -> bool:
        """See `_seam.protocol.Upkeep`."""
        return cast("bool", await self._value(LEAD, (duty, Int8(worker), float(seconds))))

    async def rescue(
        self, most: int, *, deadline_slack: float, kinds: Sequence[str], strangers_after: float
    ) -> list[LostJob]:
        """See `_seam.protocol.Upkeep`."""
        parameters = (
            Int4(most),
            float(deadline_slack),
            arrays.texts(kinds),
            float(strangers_after),
        )
        rows = await self._rows(RESCUE, parameters)
        return [_lost(row) for row in rows]

    async def prune(self, retention: Retention, most: int) -> int:
        """See `_seam.protocol.Upkeep`."""
        parameters = (
            float(retention.completed),
            float(retention.failed),
            float(retention.dead_letters),
            Int4(most),
        )
        return cast("int", await self._value(PRUNE, parameters))

    # ---- dead letters

    async def list_dead_letters(self, wanted: DeadLetterFilter, most: int) -> list[JobDetails]:
        """See `_seam.protocol.KeepingDeadLetters`."""
        before_id = None if wanted.before_id is None else Int8(wanted.before_id)
        rows = await self._rows(LIST_DEAD_LETTERS, (*_which(wanted), before_id, Int4(most)))
        return [_details(row) for row in rows]

    async def count_dead_letters(self, wanted: DeadLetterFilter, most: int) -> int:
        """See `_seam.protocol.KeepingDeadLetters`."""
        parameters = (*_which(wanted)[1:], Int4(most))
        return cast("int", await self._value(COUNT_DEAD_LETTERS, parameters))

    async def retry_dead_letters(
        self,
        wanted: DeadLetterFilter,
        most: int,
        changes: Replacements,
        *,
        after_id: int = 0,
        strict: bool = False,
    ) -> Swept:
        """See `_seam.protocol.KeepingDeadLetters`."""
        priority = None if changes.priority is None else Int4(changes.priority)
        different = (changes.queue, priority, changes.run_at, strict)
        parameters = (*_which(wanted), Int8(after_id), Int4(most), *different)
        [(done, last_id)] = await self._rows(RETRY_DEAD_LETTERS, parameters)
        return Swept(done, last_id)

    async def purge_dead_letters(
        self, wanted: DeadLetterFilter, most: int, *, after_id: int = 0
    ) -> Swept:
        """See `_seam.protocol.KeepingDeadLetters`."""
        parameters = (*_which(wanted), Int8(after_id), Int4(most))
        [(done, last_id)] = await self._rows(PURGE_DEAD_LETTERS, parameters)
        return Swept(done, last_id)

    # ---- schedules

    async def register_schedules(
        self, definitions: Sequence[Definition], *, anew: bool = False
    ) -> None:
        """See `_seam.protocol.Scheduling`."""
        await self._rows(
            REGISTER_SCHEDULES,
            (
                arrays.texts([one.name for one in definitions]),
                arrays.texts([one.expression for one in definitions]),
                arrays.texts([one.timezone for one in definitions]),
                arrays.texts([one.kind for one in definitions]),
                arrays.texts([one.missed for one in definitions]),
                arrays.texts([one.error for one in definitions]),
                anew,
            ),
        )

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """See `_seam.protocol.Scheduling`."""
        wanted = None if names is None else arrays.texts(names)
        rows = await self._rows(LIST_SCHEDULES, (wanted,))
        return [_schedule(row) for row in rows]

    async def fire(
        self,
        name: str,
        cursor: datetime,
        upto: datetime,
        jobs: Sequence[PreparedInsert],
        *,
        patience: float = 0.25,
        notify: bool = True,
    ) -> list[Enqueued] | None:
        """See `_seam.protocol.Scheduling`."""
        parameters = (
            name,
            cursor,
            upto,
            Int4(max(1, round(patience * 1000))),
            *(columns(jobs) if jobs else NO_COLUMNS),
            notify,
        )
        [(fired, ids, inserted)] = await self._rows(FIRE_CRON, parameters)
        if not fired:
            return None
        return [Enqueued(*one) for one in zip(ids or (), inserted or (), strict=True)]

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """See `_seam.protocol.Scheduling`."""
        return cast("bool", await self._value(PAUSE_SCHEDULE, (name, paused)))

    async def remove_schedule(self, name: str) -> bool:
        """See `_seam.protocol.Scheduling`."""
        return cast("bool", await self._value(REMOVE_SCHEDULE, (name,)))

    # ---- resolving

    async def find_callback(self, token: str) -> JobDetails | None:
        """See `_seam.protocol.Resolving`."""
        rows = await self._rows(FIND_CALLBACK, (token,))
        return _details(rows[0]) if rows else None

    async def answer_callback(
        self, job_id: int, run_lease: int, token: str, answer: bytes
    ) -> bool:
        """See `_seam.protocol.Resolving`."""
        parameters = (Int8(job_id), Int8(run_lease), token, answer.decode())
        return cast("bool", await self._value(ANSWER_CALLBACK, parameters))

    async def extend_callback(self, token: str, timeout: float) -> bool:
        """See `_seam.protocol.Resolving`."""
        return cast("bool", await self._value(EXTEND_CALLBACK, (token, float(timeout))))

    # ---- inspecting

    async def get(self, ids: Sequence[int]) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        return [_details(row) for row in await self._rows(GET, (arrays.int8s(ids),))]

    async def backlogs(self, queues: Sequence[str], most: int) -> list[Backlog]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(BACKLOGS, (arrays.texts(queues), Int4(most)))
        return [Backlog(*row) for row in rows]

    async def holder(self, unique_key: bytes) -> int | None:
        """See `_seam.protocol.Inspecting`."""
        return cast("int | None", await self._value(HOLDER, (unique_key,)))

    async def count(self, wanted: JobFilter, most: int) -> int:
        """See `_seam.protocol.Inspecting`."""
        return cast("int", await self._value(COUNT, (*_sort(wanted), Int4(most))))

    async def follow_ups(self, job_id: int, most: int) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(FOLLOW_UPS, (Int8(job_id), Int4(most)))
        return [found for found in map(_details, rows) if found.triggered_by == job_id]

    async def facts(self, job_id: int, most: int) -> Facts | None:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(FACTS, (Int8(job_id), Int4(most)))
        return _facts(rows[0], most) if rows else None

    async def waiting_kinds(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(WAITING_KINDS, (arrays.texts(queues),))
        return [(queue, kind) for queue, kind in rows]

    async def workers(self, most: int) -> list[WorkerRow]:
        """See `_seam.protocol.Inspecting`."""
        return [_worker(row) for row in await self._rows(WORKERS, (Int4(most),))]

    async def activity(self, seconds: float, most: int) -> Figures:
        """See `_seam.protocol.Inspecting`."""
        [row] = await self._rows(ACTIVITY, (float(seconds), Int4(most)))
        present, looked, *counts, pickup, run, newest, failures, queues = row
        completed, failed, cancelled = counts
        return Figures(
            instant(present),
            looked,
            completed,
            failed,
            cancelled,
            Latency.of(pickup),
            Latency.of(run),
            newest,
            tuple(failures),
            tuple(queues),
        )

    async def list_from(
        self, wanted: JobFilter, most: int, *, after_id: int = 0
    ) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(LIST_FROM, (*_sort(wanted), Int8(after_id), Int4(most)))
        return [_details(row) for row in rows]

    async def history(self, seconds: float, step: float, most: int) -> History:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(HISTORY, (float(seconds), float(step), Int4(most)))
        present, since = rows[0][:2]
        known = [
            Step(number, completed, failed, cancelled, Latency.of(pickup), Latency.of(run))
            for _, _, number, completed, failed, cancelled, pickup, run in rows
            if number is not None
        ]
        return history(instant(present), instant(since), step, known)

    async def list(self, wanted: JobFilter, most: int) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        before_id = None if wanted.before_id is None else Int8(wanted.before_id)
        rows = await self._rows(LIST, (*_sort(wanted), before_id, Int4(most)))
        return [_details(row) for row in rows]

    # ---- flow

    async def list_queues(
        self, queues: Sequence[str] | None, most: int
    ) -> Sequence[QueueStatus]:
        """See `_seam.protocol.Flow`."""
        only = None if queues is None else arrays.texts(queues)
        return [_status(row) for row in await self._rows(LIST_QUEUES, (only, Int4(most)))]

    async def set_queue(
        self, queue: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        return cast("bool", await self._value(SET_QUEUE, (queue, paused, draining)))

    async def override_queue(
        self, queue: str, changes: Mapping[str, object], forgotten: Sequence[str]
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        parameters = (queue, json.dumps(changes), arrays.texts(forgotten))
        return cast("bool", await self._value(OVERRIDE_QUEUE, parameters))

    async def declare_queues(self, queues: Mapping[str, Mapping[str, object]]) -> None:
        """See `_seam.protocol.Flow`."""
        settings = arrays.texts([json.dumps(one) for one in queues.values()])
        await self._rows(DECLARE_QUEUES, (arrays.texts(list(queues)), settings))

    async def overrides(self, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `_seam.protocol.Flow`."""
        rows = await self._rows(QUEUE_OVERRIDES, (arrays.texts(queues),))
        return {queue: json.loads(overrides) for queue, overrides in rows}

    async def depth(self, queue: str, max_depth: int) -> tuple[int, int | None]:
        """See `_seam.protocol.Flow`."""
        [(limit, due)] = await self._rows(DEPTH, (queue, Int4(max_depth)))
        return due, limit


class JoinedTransaction:
    """A transaction of a handler's own, in which its attempt completes."""

    transaction = ""
    running = False

    def __init__(self, block: TransactionBlock) -> None:
        self._block = block
        self._store = SqlStore(block)

    async def begin(self, worker: int, job_id: int, run_lease: int) -> str:
        """Begin, find out where this is, and return which database that is.

        Raises:
          InLane: the job is to leave its lane before this begins.
        """
        parameters = (Int8(worker), Int8(job_id), Int8(run_lease))
        await self._block.begin()
        try:
            [(identity, self.transaction, self.running)] = await self._store._rows(
                JOIN_TRANSACTION, parameters
            )
        except BaseException as error:
            await self._block.roll_back(error)
            raise
        return cast("str", identity)

    @property
    def lost(self) -> bool:
        """See `_seam.protocol.Joined`."""
        return self._block.lost

    async def enqueue(self, jobs: Sequence[PreparedInsert]) -> list[Enqueued]:
        """See `_seam.protocol.Joined`."""
        self._block.require_open()
        return await self._store.enqueue(jobs)

    async def settle(self, plan: Plan, *, worker: int, patience: float) -> Settled:
        """See `_seam.protocol.Joined`."""
        self._block.require_open()
        [(*row, transaction)] = await self._store._rows(
            SETTLE_IN, _settlement([plan], worker, patience)
        )
        if transaction != self.transaction:
            # What it wrote until then is committed, or gone; the rest must not go its own way.
            self._block.refuse_another()
        return _settled([plan], *row)[0]


def _sort(wanted: JobFilter) -> tuple[Any, ...]:
    states = None if wanted.states is None else arrays.texts(wanted.states)
    return (states, wanted.kind, wanted.queue, wanted.tag)


def _which(wanted: DeadLetterFilter) -> tuple[Any, ...]:
    ids = None if wanted.ids is None else arrays.int8s(wanted.ids)
    return (ids, wanted.kind, wanted.queue, wanted.reason)


def insertion(jobs: Sequence[PreparedInsert], notify: bool) -> tuple[bytes, tuple[Any, ...]]:
    """Return the statement that inserts jobs, and its parameters."""
    if len(jobs) == 1:
        return ENQUEUE, (*values(jobs[0]), notify)
    return ENQUEUE_MANY, (*columns(jobs), notify)


NOT_AFTER = (None,) * 5


def _after(passed: Sequence[tuple[str, Passed]]) -> tuple[arrays.Array, ...]:
    return (
        arrays.texts([queue for queue, _ in passed]),
        arrays.texts([p.kind for _, p in passed]),
        arrays.int2s([p.priority for _, p in passed]),
        arrays.instants([p.raw_run_at for _, p in passed]),
        arrays.int8s([p.id for _, p in passed]),
    )


def enqueued(rows: Sequence[Any]) -> list[Enqueued]:
    """Return what the statement answered as values."""
    return [Enqueued(*row) for row in rows]


def _settlement(
    plans: Sequence[Plan],
    worker: int | None,
    patience: float,
    strict: bool = False,
    notify: bool = True,
) -> tuple[Any, ...]:
    """Return the parameters of a settlement."""
    moves = [plan.move for plan in plans]
    parents = [n for n, plan in enumerate(plans, 1) for _ in plan.inserts]
    inserts = [insert for plan in plans for insert in plan.inserts]
    return (
        None if worker is None else Int8(worker),
        Int4(max(1, round(patience * 1000))),
        strict,
        arrays.int8s([move.job_id for move in moves]),
        arrays.int8s([move.run_lease for move in moves]),
        "{" + ",".join([move.from_state for move in moves]) + "}",
        "{" + ",".join([move.to_state for move in moves]) + "}",
        arrays.int4s([move.attempt for move in moves]),
        optional(arrays.float8s, [move.seconds for move in moves]),
        optional(arrays.texts, [move.error for move in moves]),
        optional(arrays.texts, [move.token for move in moves]),
        optional(arrays.jsons, [move.answer for move in moves]),
        optional(arrays.jsons, [move.progress for move in moves]),
        optional(arrays.jsons, [move.output for move in moves]),
        optional(arrays.texts, [move.dead_letter for move in moves]),
        arrays.int4s(parents) if parents else None,
        *(columns(inserts) if inserts else NO_COLUMNS),
        notify,
    )


def _settled(
    plans: Sequence[Plan],
    stale: Sequence[int] | None,
    new_ids: Sequence[int | None] | None,
    new_holders: Sequence[int | None] | None,
    losers: Sequence[int] | None,
    holders: Sequence[int] | None,
) -> list[Settled]:
    if stale is None and new_ids is None and losers is None:
        return [APPLIED] * len(plans)
    stale_numbers = frozenset(stale or ())
    duplicate_of = dict(zip(losers or (), holders or (), strict=True))
    answers: list[Settled] = []
    first = 0
    for number, plan in enumerate(plans, 1):
        last = first + len(plan.inserts)
        if number in stale_numbers:
            answers.append(STALE)
        else:
            ids = (new_ids or ())[first:last]
            held_by = (new_holders or (None,) * last)[first:last]
            insertions = tuple(map(Insertion, ids, held_by))
            answers.append(Settled(True, insertions, duplicate_of.get(plan.move.job_id)))
        first = last
    return answers


def _held(row: Sequence[Any]) -> Held:
    job_id, run_lease, kind, attempt, max_attempts, state, token, answered = row
    return Held(
        job_id, run_lease, kind, attempt, max_attempts, JobState(state), token, answered
    )


def _lost(row: Sequence[Any]) -> LostJob:
    *facts, reason, token = row
    job = Claimed(*facts)
    if token is not None:
        job.state = JobState.WAITING_EXTERNAL
    return LostJob(job, Lost[reason], token)


def _schedule(row: Sequence[Any]) -> ScheduleRow:
    what, since, cursor, fires = row[:5], row[5], row[6], row[7]
    fired_for, fired_at, last_job_id, paused_at, seen_at, error, now = row[8:]
    known = [instant(since), instant(cursor), fires, _maybe(fired_for), _maybe(fired_at)]
    rest = [last_job_id, _maybe(paused_at), instant(seen_at), error, instant(now)]
    return ScheduleRow(*what, *known, *rest)


def _maybe(at: int | None) -> datetime | None:
    return None if at is None else instant(at)


def _wait_columns(waits: Sequence[Wait]) -> tuple[arrays.Array, ...]:
    return (
        arrays.int8s([wait.job_id for wait in waits]),
        arrays.int8s([wait.run_lease for wait in waits]),
        arrays.texts([wait.token for wait in waits]),
    )


def _status(row: Sequence[Any]) -> QueueStatus:
    queue, counts, oldest, paused_at, draining_since, settings, overrides = row
    return QueueStatus(
        name=queue,
        counts={state: (json.loads(counts) if counts else {}).get(state, 0) for state in LIVE},
        oldest=oldest,
        paused_at=None if paused_at is None else instant(paused_at),
        draining_since=None if draining_since is None else instant(draining_since),
        settings=None
        if settings is None
        else QueueSettings(**read_settings(json.loads(settings))),
        overrides=read_settings(json.loads(overrides)),
    )


def _waited(waits: Sequence[Wait], rows: Sequence[Any]) -> list[Waited | None]:
    found = {number: Waited(waiting, answer) for number, waiting, answer in rows}
    return [found.get(number) for number in range(1, len(waits) + 1)]


def _details(row: Sequence[Any]) -> JobDetails:
    *facts, state, errors, worker, attempted, deadline, finalized, key, states = row[:22]
    progress, answer, output, dead_letter, token, until, limit_key = row[22:]
    held = None if key is None else bytes(key)
    *instants, until = [
        None if at is None else instant(at) for at in (attempted, deadline, finalized, until)
    ]
    known = job_errors(errors)
    own = [progress, answer, limit_key, JobState(state), known, worker, *instants, held, states]
    return JobDetails(*facts, *own, *[output, dead_letter, token, until])


def _facts(row: Sequence[Any], most: int) -> Facts:
    present, alive, serving, knowing, worker, silent, lease, fenced = row[:8]
    taken_by, taken_state, head, holder, ahead, room_in, key_room = row[8:15]
    return Facts(
        _details(row[15:]),
        instant(present),
        alive,
        serving,
        knowing,
        worker,
        silent,
        lease,
        fenced,
        taken_by,
        None if taken_state is None else JobState(taken_state),
        head,
        holder,
        ahead,
        most,
        room_in,
        key_room,
    )


def _worker(row: Sequence[Any]) -> WorkerRow:
    worker_id, name, started, beat, *facts, queues, kinds, duties = row
    silent, lease, fenced, running, waiting = facts
    return WorkerRow(
        worker_id,
        name,
        instant(started),
        instant(beat),
        silent,
        lease,
        fenced,
        running,
        waiting,
        None if queues is None else tuple(queues),
        None if kinds is None else tuple(kinds),
        tuple(duties),
    )


class SqlPulse:
    """A worker's heartbeat on one connection, opened again whenever it is lost."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def beat(self, worker: int) -> bool:
        """See `_seam.protocol.Pulse`."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = await self._connect()
            cursor = AsyncStoreCursor(self._connection)
            await cursor.execute(BEAT, (Int8(worker),))
            row = await cursor.fetchone()
        except psycopg.Error as error:
            await self.aclose()
            raise store_error(error) from error
        return row is not None and bool(row[0])

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class SqlWorkerStore(SqlStore):
    """A store for one worker, whose connections nobody else can use up.

    Args:
      connections: a pool of its own.
      connect: opens one connection in the running event loop, for the heartbeat.
      hearing: opens one that notifications come by; None if there is no such way.
    """

    threaded_pulse = True

    def __init__(
        self, connections: Connections, connect: Connect, hearing: Connect | None
    ) -> None:
        super().__init__(connections)
        self._connect = connect
        self._hearing = hearing

    def now(self) -> datetime:
        """See `_seam.protocol.WorkerStore`."""
        return datetime.now(UTC)

    @asynccontextmanager
    async def pulse(self) -> AsyncIterator[SqlPulse]:
        """See `_seam.protocol.WorkerStore`."""
        pulse = SqlPulse(self._connect)
        try:
            yield pulse
        finally:
            await pulse.aclose()

    async def listen(self, hear: Hear, ready: Callable[[], None]) -> NoReturn:
        """See `_seam.protocol.WorkerStore`."""

        if self._hearing is None:
            logger.warning(
                "a pooler is in between, which would deliver no notifications: new jobs are found"
                " by polling; to hear of them, connect with listen_dsn=, or --listen-dsn"
            )
            ready()
            while True:
                await anyio.sleep_forever()

        def heard(channel: str, payload: str) -> bool:
            news = parse(channel, payload)
            if news is not None:
                hear(news)
            return news is not None

        listener = Listener(
            self._hearing,
            [JOBS_CHANNEL, CUT_CHANNEL, CALLBACKS_CHANNEL, QUEUES_CHANNEL],
            heard,
            lambda: hear(Reconnected()),
            lost=lambda: hear(Disconnected()),
        )
        try:
            await listener.run(ready)
        except psycopg.Error as error:
            raise store_error(error) from error


#: As the SQL functions name them.
JOBS_CHANNEL = "awa:jobs"
CUT_CHANNEL = "awa:cut"
CALLBACKS_CHANNEL = "awa:callbacks"
QUEUES_CHANNEL = "awa:queues"


def parse(channel: str, payload: str) -> News | None:
    """Return what a notification means; None if it means nothing: anyone may send one."""
    if channel == JOBS_CHANNEL:
        return GotWork(payload) if 0 < len(payload) <= 200 else None
    if channel == QUEUES_CHANNEL:
        return Overridden(payload)
    if channel == CUT_CHANNEL:
        try:
            job_id, run_lease, state = payload.split(" ")
            return CutElsewhere(int(job_id), int(run_lease), JobState(state))
        except ValueError:
            return None
    if channel == CALLBACKS_CHANNEL:
        try:
            job_id, run_lease = payload.split(" ")
            return Answered(int(job_id), int(run_lease))
        except ValueError:
            return None
    return None

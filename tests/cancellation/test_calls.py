"""Every call that writes, of clients and of stores, cut at each of its statements.

`trio.Cancelled` means that it did not happen: the tables are as they were. If the call
returns, it did. Nothing else can be, wherever it is cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import pytest
import trio
from attrs import frozen
from psycopg import pq

import awa_trio as awa
from awa_trio._core.job import JobState
from awa_trio._core.request import Replacements
from awa_trio._core.schedules import Definition
from awa_trio._pg.pool import Pool
from awa_trio._seam.protocol import WorkerStore
from awa_trio._seam.values import Claimed, DeadLetterFilter, Wait, Want
from awa_trio._store.sql.store import SqlWorkerStore
from tests.stores.contract import job, plan

from .cells import Next, Work
from .knife import BEFORE, SENT, CutBackend, CutOpener, Knife, Point

S = JobState

#: Besides the moments of a knife: the server has it, and cannot go on; so it will not have
#: happened.
BLOCKED = "blocked"


class Desk:
    """One database; a client and a store that are cut, and what prepares and looks on."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.knife = Knife()
        self.client: awa.Client
        self.store: WorkerStore
        self.outside: awa.Client
        self.pool: Pool
        self.worker = 0
        self._made = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Desk]:
        desk = cls(dsn)
        opener = CutOpener(dsn, desk.knife)
        async with AsyncExitStack() as stack:
            desk.pool = await stack.enter_async_context(Pool(opener, size=2))
            desk.outside = await stack.enter_async_context(awa.connect(dsn))
            desk.client = awa.Client(CutBackend(opener, desk.pool), _app())
            desk.store = SqlWorkerStore(desk.pool, opener, opener)
            desk.worker = await desk.other.register("prepares", 3600.0)
            yield desk

    @property
    def other(self) -> Any:
        """A store that nobody cuts."""
        return self.outside._backend.store

    def number(self) -> int:
        self._made += 1
        return self._made

    async def execute(self, statement: str) -> list[Any]:
        async with self.outside._backend.connection() as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    async def tables(self) -> dict[str, Any]:
        """All that is in the tables."""
        names = await self.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        found = {}
        for (name,) in names:
            [(found[name],)] = await self.execute(
                f"SELECT array_agg(t::text ORDER BY t::text) FROM awa.{name} AS t"
            )
        return found

    # ---- what calls need

    async def waiting(self, **options: Any) -> int:
        [made] = await self.other.enqueue([job(queue=f"q{self.number()}", **options)])
        return int(made.id)

    async def claimed(self, **options: Any) -> Claimed:
        queue = f"q{self.number()}"
        await self.other.enqueue([job(queue=queue, **options)])
        [claimed] = await self.other.claim(self.worker, [Want(queue, 1, 0.0)], {"k": None})
        return claimed  # type: ignore[no-any-return]

    async def expecting(self) -> tuple[Claimed, str]:
        claimed = await self.claimed()
        token = f"token {self.number()}"
        assert await self.other.register_callback(
            self.worker, claimed.id, claimed.run_lease, token, 3600.0
        )
        return claimed, token

    async def held(self) -> tuple[Claimed, str]:
        """One whose handler waits."""
        claimed, token = await self.expecting()
        wait = Wait(claimed.id, claimed.run_lease, token)
        [waited] = await self.other.begin_waits(self.worker, [wait])
        assert waited.waits
        return claimed, token

    async def parked(self) -> tuple[int, str]:
        claimed, token = await self.expecting()
        await self.settle(claimed, S.WAITING_EXTERNAL, token=token)
        return claimed.id, token

    async def settle(self, claimed: Claimed, to: JobState, **changes: Any) -> None:
        [settled] = await self.other.settle([plan(claimed, to, **changes)], worker=self.worker)
        assert settled.applied

    async def dead(self) -> int:
        claimed = await self.claimed()
        await self.settle(claimed, S.FAILED, error="no", dead_letter="terminal_error")
        return claimed.id


Prepare: TypeAlias = Callable[[Desk], Awaitable[Any]]
Act: TypeAlias = Callable[[Desk, Any], Awaitable[Any]]


@frozen
class Call:
    """A call, and what it needs."""

    prepare: Prepare
    act: Act


async def _nothing(desk: Desk) -> None: ...


async def _in_transaction(desk: Desk, _: object) -> None:
    async with desk.client.transaction() as tx:
        await tx.enqueue(Work(1), queue="mine")
        await tx.enqueue_many([Next(1), Next(2)])


async def _stale(desk: Desk) -> None:
    worker = await desk.other.register("dies", 1.0)
    await desk.execute(
        f"UPDATE awa.workers SET beat_at = beat_at - interval '1 hour' WHERE id = {worker}"
    )


async def _old(desk: Desk) -> None:
    job_id = await desk.waiting()
    await desk.outside.jobs.cancel(job_id, without_follow_ups=True)
    await desk.execute(
        "UPDATE awa.jobs SET finalized_at = finalized_at - interval '1 year'"
        f" WHERE id = {job_id}"
    )


async def _unique(desk: Desk) -> Any:
    number = desk.number()
    return await desk.outside.enqueue(Work(number), unique_opts={}, queue="mine"), number


async def _scheduled(desk: Desk) -> awa.ScheduleRow:
    name = f"s{desk.number()}"
    await desk.other.register_schedules([Definition(name, "0 3 * * *", "UTC", "k", "skip")])
    await desk.execute(
        f"UPDATE awa.schedules SET cursor = cursor - interval '1 hour' WHERE name = '{name}'"
    )
    return await desk.outside.cron.get(name)


async def _paused(desk: Desk) -> awa.ScheduleRow:
    row = await _scheduled(desk)
    await desk.outside.cron.pause(row.name)
    return row


async def _queue(desk: Desk) -> str:
    return f"q{desk.number()}"


async def _drained(desk: Desk) -> str:
    queue = await _queue(desk)
    await desk.outside.queues.drain(queue)
    return queue


async def _overridden(desk: Desk) -> str:
    queue = await _queue(desk)
    await desk.outside.queues.override(queue, max_per_key=3)
    return queue


async def _uncounted(desk: Desk) -> None:
    desk.client.queues._depths._known.clear()


def _app() -> awa.App:
    app = awa.App()
    app.queue("deep", max_depth=1_000)
    app.declare(Next, queue="mine")

    @app.cron("0 3 * * *", name="nightly", args=Work(1))
    @app.task(queue="mine")
    async def work(job: awa.Job[Work]) -> None: ...

    return app


def _follow_ups(desk: Desk) -> list[Any]:
    return [job(queue="mine", key=bytes([desk.number() % 256] * 16)), job(queue="mine")]


CALLS: dict[str, Call] = {
    "client.enqueue": Call(_nothing, lambda d, _: d.client.enqueue(Work(1), queue="mine")),
    "client.enqueue, unique": Call(
        _nothing,
        lambda d, _: d.client.enqueue(Work(d.number()), unique_opts={}, ordering_key="x"),
    ),
    "client.enqueue_many": Call(
        _nothing, lambda d, _: d.client.enqueue_many([Work(1), Work(2)], queue="mine")
    ),
    "client.transaction": Call(_nothing, _in_transaction),
    "jobs.cancel": Call(
        Desk.claimed, lambda d, c: d.client.jobs.cancel(c.id, without_follow_ups=True)
    ),
    "jobs.cancel_by_key": Call(
        _unique,
        lambda d, u: d.client.jobs.cancel_by_key(
            Work(u[1]), unique_opts={}, without_follow_ups=True
        ),
    ),
    "jobs.retry": Call(Desk.dead, lambda d, job_id: d.client.jobs.retry(job_id)),
    "callbacks.resume, held": Call(
        Desk.held, lambda d, held: d.client.callbacks.resume(held[1])
    ),
    "callbacks.resume, parked": Call(
        Desk.parked, lambda d, parked: d.client.callbacks.resume(parked[1])
    ),
    "callbacks.complete": Call(
        Desk.held,
        lambda d, held: d.client.callbacks.complete(held[1], without_follow_ups=True),
    ),
    "callbacks.fail": Call(
        Desk.parked, lambda d, held: d.client.callbacks.fail(held[1], without_follow_ups=True)
    ),
    "callbacks.retry": Call(Desk.held, lambda d, held: d.client.callbacks.retry(held[1])),
    "callbacks.heartbeat": Call(
        Desk.held, lambda d, held: d.client.callbacks.heartbeat(held[1])
    ),
    "dlq.retry": Call(Desk.dead, lambda d, job_id: d.client.dlq.retry(job_id)),
    "dlq.retry_many": Call(Desk.dead, lambda d, _: d.client.dlq.retry_many(everything=True)),
    "dlq.purge": Call(Desk.dead, lambda d, job_id: d.client.dlq.purge(job_id)),
    "dlq.purge_many": Call(Desk.dead, lambda d, _: d.client.dlq.purge_many(everything=True)),
    "cron.pause": Call(_scheduled, lambda d, row: d.client.cron.pause(row.name)),
    "cron.remove": Call(_scheduled, lambda d, row: d.client.cron.remove(row.name)),
    "cron.resume": Call(_paused, lambda d, row: d.client.cron.resume(row.name)),
    "cron.trigger": Call(_nothing, lambda d, _: d.client.cron.trigger("nightly")),
    "queues.pause": Call(_queue, lambda d, queue: d.client.queues.pause(queue)),
    "queues.drain": Call(_queue, lambda d, queue: d.client.queues.drain(queue)),
    "queues.resume": Call(_drained, lambda d, queue: d.client.queues.resume(queue)),
    "queues.override": Call(
        _queue, lambda d, queue: d.client.queues.override(queue, max_workers=3, rate=5)
    ),
    "queues.reset": Call(_overridden, lambda d, queue: d.client.queues.reset(queue)),
    "client.enqueue, with a depth": Call(
        _uncounted, lambda d, _: d.client.enqueue(Work(1), queue="deep", when_full="wait")
    ),
    "declare_queues": Call(
        _queue, lambda d, queue: d.store.declare_queues({queue: {"max_per_key": 5}})
    ),
    "fire": Call(
        _scheduled,
        lambda d, row: d.store.fire(
            row.name, row.cursor, row.now, _follow_ups(d), patience=10.0
        ),
    ),
    "register_schedules": Call(
        _nothing,
        lambda d, _: d.store.register_schedules(
            [Definition(f"s{d.number()}", "0 3 * * *", "UTC", "k", "skip")], anew=True
        ),
    ),
    "register": Call(_nothing, lambda d, _: d.store.register("one", 30.0)),
    "unregister": Call(
        lambda d: d.other.register("one", 30.0), lambda d, w: d.store.unregister(w)
    ),
    "beat": Call(_nothing, lambda d, _: d.store.beat(d.worker)),
    "claim": Call(
        lambda d: d.waiting(ordering_key="x"),
        lambda d, _: d.store.claim(d.worker, [Want(f"q{d._made}", 1, 0.0)], {"k": None}),
    ),
    "claim, in a lane": Call(
        Desk.waiting,
        lambda d, _: d.store.claim(d.worker, [Want(f"q{d._made}", 1, 0.0)], {"k": None}),
    ),
    "settle": Call(
        Desk.claimed,
        lambda d, c: d.store.settle(
            [plan(c, S.COMPLETED, *_follow_ups(d))], worker=d.worker, patience=10.0
        ),
    ),
    "settle, a failure": Call(
        Desk.claimed,
        lambda d, c: d.store.settle(
            [plan(c, S.RETRYABLE, seconds=60.0, error="no")], worker=d.worker, patience=10.0
        ),
    ),
    "register_callback": Call(
        Desk.claimed,
        lambda d, c: d.store.register_callback(d.worker, c.id, c.run_lease, f"t{c.id}", 60.0),
    ),
    "record_progress": Call(
        Desk.claimed,
        lambda d, c: d.store.record_progress(d.worker, [(c.id, c.run_lease, b"{}")]),
    ),
    "begin_waits": Call(
        Desk.expecting,
        lambda d, e: d.store.begin_waits(d.worker, [Wait(e[0].id, e[0].run_lease, e[1])]),
    ),
    "end_waits": Call(
        Desk.held,
        lambda d, h: d.store.end_waits(d.worker, [Wait(h[0].id, h[0].run_lease, h[1], 9.0)]),
    ),
    "answer_callback": Call(
        Desk.held,
        lambda d, h: d.store.answer_callback(h[0].id, h[0].run_lease, h[1], b"{}"),
    ),
    "extend_callback": Call(Desk.held, lambda d, h: d.store.extend_callback(h[1], 99.0)),
    "lead": Call(_nothing, lambda d, _: d.store.lead("duty", d.worker, 60.0)),
    "rescue": Call(
        _stale,
        lambda d, _: d.store.rescue(9, deadline_slack=9.0, kinds=["k"], strangers_after=9.0),
    ),
    "prune": Call(_old, lambda d, _: d.store.prune(awa.Retention(), 100)),
    "retry_dead_letters": Call(
        Desk.dead,
        lambda d, _: d.store.retry_dead_letters(DeadLetterFilter(), 10, Replacements()),
    ),
    "purge_dead_letters": Call(
        Desk.dead, lambda d, _: d.store.purge_dead_letters(DeadLetterFilter(), 10)
    ),
}


async def points_of(desk: Desk, call: Call) -> list[Point]:
    """Where a call can be cut."""
    given = await call.prepare(desk)
    before = await desk.tables()

    async def pass_by(point: Point) -> None: ...

    desk.knife.hold(pass_by)
    await call.act(desk, given)
    desk.knife.put_down()
    assert await desk.tables() != before, "it writes nothing"
    sent = [p for p in desk.knife.passed if p.moment == SENT]
    if any(p.statement == "BEGIN" for p in sent):
        sent = []  # Whoever is to block it would wait for what it has locked.
    return [*desk.knife.passed, *(Point(p.statement, p.number, BLOCKED) for p in sent)]


async def cut(desk: Desk, call: Call, point: Point) -> bool:
    """Cut a call at a point; whether it happened."""
    given = await call.prepare(desk)
    before = await desk.tables()
    moment = SENT if point.moment == BLOCKED else point.moment
    struck = happened = False
    async with AsyncExitStack() as stack:
        if point.moment == BLOCKED:
            connection = await stack.enter_async_context(desk.outside._backend.connection())
            await stack.enter_async_context(connection.transaction())

        async def strike(passed: Point) -> None:
            nonlocal struck
            if point.moment == BLOCKED and passed == Point(
                point.statement, point.number, BEFORE
            ):
                names = ", ".join(f"awa.{name}" for name in before)
                lock = f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"
                await connection.execute(lock.encode())
            if passed == Point(point.statement, point.number, moment):
                struck = True
                if point.moment == BLOCKED:
                    while not await desk.execute(
                        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                        " AND datname = current_database()"
                    ):
                        await trio.sleep(0.001)
                scope.cancel()

        desk.knife.hold(strike)
        with trio.fail_after(30), trio.CancelScope() as scope:
            await call.act(desk, given)
            happened = True
        desk.knife.put_down()
    assert struck, "not reached"
    after = await desk.tables()
    assert (after != before) is happened, "what it says and what it did differ"
    s = desk.pool.statistics()
    assert (s.borrowed, s.connecting) == (0, 0)
    for idle, _ in desk.pool._idle:
        assert idle.info.transaction_status == pq.TransactionStatus.IDLE
    return happened


@pytest.mark.parametrize("engine", ["canonical", "segmented"])
async def test_cancelled_means_that_it_did_not_happen(
    request: pytest.FixtureRequest, engine: str
) -> None:
    failures: list[str] = []
    counts = {True: 0, False: 0}
    async with Desk.open(request.getfixturevalue(engine)) as desk:
        for name, call in CALLS.items():
            for point in await points_of(desk, call):
                try:
                    happened = await cut(desk, call, point)
                    counts[happened] += 1
                    if point.moment == BLOCKED:
                        assert not happened, "it had not happened yet"
                except Exception as error:
                    desk.knife.put_down()
                    failures.append(f"{name} {point}: {error!r}")
    print(counts)
    assert not failures, "\n".join(failures)
    assert counts[True] > 20
    assert counts[False] > 60

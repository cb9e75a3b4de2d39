"""What can be done to jobs, each as one act of a role's, and which roles may.

The table is the one of docs/explanation/security.md. An act prepares what it needs as the owner
of the schema, and then does one thing as the role.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import attrs
import psycopg
import trio
from attrs import frozen
from psycopg import sql

import awa_trio as awa
from awa_trio import Rights
from awa_trio._app.app import registry_of
from awa_trio._core.schedules import Definition
from awa_trio._seam.values import Wait, Want
from awa_trio._store.sql.store import SqlWorkerStore
from awa_trio.pg import TrioConnection
from awa_trio.testing import work_one

app = awa.App()


@frozen
class Plain:
    n: int


@frozen
class Next:
    n: int


@frozen
class Fails:
    n: int


@frozen
class Parks:
    n: int


@app.task
async def plain(job: awa.Job[Plain]) -> None:
    job.progress.set(percent=50)
    await job.flush_progress()
    job.set_output({"n": job.args.n})
    job.enqueue_on_completion(Next(job.args.n), unique_opts={})


@app.task
async def nexts(job: awa.Job[Next]) -> None:
    pass


@app.task
async def fails(job: awa.Job[Fails]) -> None:
    raise awa.TerminalError("as asked")


@app.task
async def parks(job: awa.Job[Parks]) -> object:
    if job.last_callback is not None:
        return None
    return awa.WaitForCallback(await job.register_callback(timeout=600))


@app.on_completed(Parks)
def told(args: Parks, job: awa.JobRow) -> Next:
    return Next(args.n)


@attrs.define
class Desk:
    """A database, as its owner and as a role see it."""

    dsn: str
    """Of the owner."""
    owner: awa.Client
    client: awa.Client
    connection: TrioConnection[Any]
    """Of the role, in autocommit mode."""
    store: SqlWorkerStore
    """Of the role."""
    segmented: bool
    numbers: count[int] = attrs.Factory(count)

    def failed(self) -> int:
        """A dead letter."""
        return self._insert("failed", finalized_at="2026-01-01", dead_letter="terminal")

    def parked(self) -> str:
        """The token of a job that waits."""
        token = f"token {next(self.numbers)}"
        self._insert("waiting_external", callback_token=token, callback_until="9999-01-01")
        return token

    def _insert(self, state: str, **more: str) -> int:
        columns = {"kind": "parks", "args": '{"n": 1}', "attempt": 1, "run_lease": 1} | more
        statement = sql.SQL("INSERT INTO awa.jobs (state, {}) VALUES ({}) RETURNING id").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(map(sql.Literal, [state, *columns.values()])),
        )
        with psycopg.connect(self.dsn) as connection:
            [(job_id,)] = connection.execute(statement)
            return int(job_id)

    async def run(self, statement: str) -> None:
        await self.connection.execute(statement.encode())


Act = Callable[[Desk], Awaitable[object]]


@frozen
class Operation:
    name: str
    allowed: frozenset[Rights]
    act: Act
    only_segmented: bool = False
    in_lanes: frozenset[Rights] | None = None
    """On the segmented engine, if it differs: jobs in their lanes are moved out of them first."""
    ours: bool = True
    """Whether it is done by what we ship, and not by a statement of the role's own."""


P, R, C, W, A = (
    Rights.PRODUCER,
    Rights.READER,
    Rights.RECEIVER,
    Rights.WORKER,
    Rights.ADMIN,
)
EVERYBODY = frozenset(Rights)
ENQUEUERS = EVERYBODY - {R}
LOOKERS = frozenset({R, W, A})
MOVERS = frozenset({C, W, A})
#: Whoever resolves callbacks reads the rows that wait, and can read the others.
ROW_READERS = LOOKERS | MOVERS
WORKERS = frozenset({W})
PEOPLE = frozenset({A})
REMOVERS = frozenset({W, A})
NOBODY: frozenset[Rights] = frozenset()

OPERATIONS: list[Operation] = []


def operation(
    name: str,
    allowed: frozenset[Rights],
    *,
    only_segmented: bool = False,
    in_lanes: frozenset[Rights] | None = None,
    ours: bool = True,
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        OPERATIONS.append(Operation(name, allowed, act, only_segmented, in_lanes, ours))
        return act

    return add


# ---- enqueueing


@operation("enqueue a job", ENQUEUERS)
async def _(desk: Desk) -> None:
    await desk.client.enqueue(Plain(next(desk.numbers)))


@operation("enqueue many, unique", ENQUEUERS)
async def _(desk: Desk) -> None:
    jobs = [Plain(next(desk.numbers)) for _ in range(3)]
    assert all(one.inserted for one in await desk.client.enqueue_many(jobs, unique_opts={}))
    assert not any(one.inserted for one in await desk.client.enqueue_many(jobs, unique_opts={}))


@operation("enqueue with an ordering key, for later", ENQUEUERS)
async def _(desk: Desk) -> None:
    await desk.client.enqueue(
        Plain(next(desk.numbers)),
        ordering_key="key",
        run_at=datetime.now(UTC) + timedelta(days=1),
    )


@operation("enqueue from SQL", ENQUEUERS)
async def _(desk: Desk) -> None:
    await desk.run("SELECT * FROM awa.enqueue('plain', '{\"n\": 1}')")


@operation("enqueue while the segment changes", ENQUEUERS, only_segmented=True)
async def _(desk: Desk) -> None:
    # What a producer does that appended to a segment which is not the current one any more.
    await desk.run("SELECT awa.take_back(0::smallint, ARRAY[1::bigint])")
    await desk.client.enqueue(Plain(next(desk.numbers)))


# ---- looking


@operation("look at a job", ROW_READERS, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.jobs.get(desk.failed())


@operation("look at a job in its lane", LOOKERS, only_segmented=True)
async def _(desk: Desk) -> None:
    enqueued = await desk.owner.enqueue(Plain(next(desk.numbers)))
    await desk.client.jobs.get(enqueued.id)


@operation("list jobs", ROW_READERS, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.jobs.list()


@operation("list dead letters", ROW_READERS, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.dlq.list()


@operation("count what is due", ROW_READERS, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.store.backlogs(["default"], 10)


@operation("see what the jobs take up", EVERYBODY, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.run("SELECT * FROM awa.storage()")


@operation("explain a job", LOOKERS)
async def _(desk: Desk) -> None:
    assert await desk.client.jobs.explain(desk.failed())


@operation("find the follow-ups of a job", ROW_READERS, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.jobs.follow_ups(desk.failed())


@operation("count jobs", ROW_READERS, in_lanes=LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.jobs.count()
    await desk.client.dlq.count()


@operation("list workers", LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.workers.list()


@operation("see what has happened lately", LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.activity()


@operation("check an app with the database", LOOKERS)
async def _(desk: Desk) -> None:
    await awa.check(app, desk.client)


# ---- queues


@operation("enqueue with a limit key", ENQUEUERS)
async def _(desk: Desk) -> None:
    await desk.client.enqueue(Plain(next(desk.numbers)), limit_key="key")


@operation("ask how full a queue is", EVERYBODY)
async def _(desk: Desk) -> None:
    await desk.store.depth("default", 10)


@operation("look at queues", LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.queues.list()


@operation("pause, drain and resume a queue", PEOPLE)
async def _(desk: Desk) -> None:
    await desk.client.queues.pause("nobody's")
    await desk.client.queues.drain("nobody's")
    await desk.client.queues.resume("nobody's")


@operation("override settings of a queue", PEOPLE)
async def _(desk: Desk) -> None:
    await desk.client.queues.override("nobody's", max_workers=next(desk.numbers) % 1000 + 1)
    await desk.client.queues.reset("nobody's")


@operation("say what an app says of its queues", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.declare_queues({"nobody's": {"max_workers": next(desk.numbers)}})


@operation("claim within limits", WORKERS)
async def _(desk: Desk) -> None:
    limits = {"rate": awa.Rate(1), "rate_per_key": awa.Rate(1), "max_per_key": 1}
    await desk.owner.queues.override("limited", **limits)  # type: ignore[arg-type]
    await desk.owner.enqueue(Plain(next(desk.numbers)), queue="limited", limit_key="key")
    worker = await desk.store.register("limited", 60)
    await desk.store.claim(worker, [Want("limited", 1, 0.0)], {"plain": None})


# ---- callbacks


@operation("resume a callback", MOVERS)
async def _(desk: Desk) -> None:
    await desk.client.callbacks.resume(desk.parked(), {"paid": True})


@operation("complete a job by its callback", MOVERS)
async def _(desk: Desk) -> None:
    await desk.client.callbacks.complete(desk.parked(), 1)


@operation("fail a job by its callback", MOVERS)
async def _(desk: Desk) -> None:
    await desk.client.callbacks.fail(desk.parked(), "declined")


@operation("retry a job by its callback", MOVERS)
async def _(desk: Desk) -> None:
    await desk.client.callbacks.retry(desk.parked())


@operation("extend a callback", MOVERS)
async def _(desk: Desk) -> None:
    await desk.client.callbacks.heartbeat(desk.parked(), 60)


# ---- what people do


@operation("cancel a job that waits", MOVERS, in_lanes=REMOVERS)
async def _(desk: Desk) -> None:
    enqueued = await desk.owner.enqueue(Plain(next(desk.numbers)))
    await desk.client.jobs.cancel(enqueued.id)


@operation("cancel a job by its unique key", MOVERS, in_lanes=REMOVERS)
async def _(desk: Desk) -> None:
    args = Plain(next(desk.numbers))
    await desk.owner.enqueue(args, unique_opts={})
    assert await desk.client.jobs.cancel_by_key(args) is not None


@operation("retry a job that failed", MOVERS, in_lanes=REMOVERS)
async def _(desk: Desk) -> None:
    await desk.client.jobs.retry(desk.failed())


@operation("retry a dead letter", PEOPLE)
async def _(desk: Desk) -> None:
    await desk.client.dlq.retry(desk.failed(), queue="other", priority=1)


@operation("purge a dead letter", REMOVERS)
async def _(desk: Desk) -> None:
    await desk.client.dlq.purge(desk.failed())


# ---- working


@operation("run a job", WORKERS)
async def _(desk: Desk) -> None:
    for args, state in (
        (Plain(next(desk.numbers)), awa.JobState.COMPLETED),
        (Fails(next(desk.numbers)), awa.JobState.FAILED),
        (Parks(next(desk.numbers)), awa.JobState.WAITING_EXTERNAL),
    ):
        enqueued = await desk.owner.enqueue(args, queue="run")
        worked = await work_one(app, desk.client, queue="run")
        assert worked is not None
        assert (worked.job.id, worked.job.state) == (enqueued.id, state), worked.job.errors


async def _registered(desk: Desk) -> int:
    async with desk.owner._backend.worker_store() as store:
        return await store.register("of the owner", 60)


@operation("register as a worker", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.unregister(await desk.store.register("a worker", 60))


@operation("end the life of a worker", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.unregister(await _registered(desk))


@operation("beat", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.beat(await _registered(desk))


@operation("claim", WORKERS)
async def _(desk: Desk) -> None:
    await desk.owner.enqueue(Plain(next(desk.numbers)))
    await desk.store.claim(
        await _registered(desk), [Want("default", 1, 0, 0)], {"plain": None, "next": None}
    )


@operation("ask what is due", LOOKERS)
async def _(desk: Desk) -> None:
    await desk.store.next_due(["default"], ["plain"])


@operation("record progress", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.record_progress(await _registered(desk), [(1, 1, b"{}")])


@operation("register a callback", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.register_callback(await _registered(desk), 1, 1, "token", 60)


@operation("begin to wait", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.begin_waits(await _registered(desk), [Wait(1, 1, "token", 1.0)])


@operation("lead", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.lead("rescue", await _registered(desk), 1)


@operation("rescue", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.rescue(10, deadline_slack=5, kinds=["plain"], strangers_after=60)


@operation("remove old jobs", REMOVERS, in_lanes=WORKERS)
async def _(desk: Desk) -> None:
    await desk.owner.enqueue(Plain(next(desk.numbers)))
    await desk.store.prune(
        awa.Retention(completed=0.001, failed=0.001, dead_letters=0.001), 100
    )


@operation("empty a segment", WORKERS, only_segmented=True)
async def _(desk: Desk) -> None:
    # The last of the ring, which has had no jobs yet; it keeps its number.
    async with desk.connection.transaction(force_rollback=True):
        await desk.run("SELECT awa.truncate_segment(5::smallint)")


# ---- schedules

DEFINITION = Definition("nightly", "0 3 * * *", "UTC", "plain", "skip")


async def _scheduled(desk: Desk) -> awa.ScheduleRow:
    """A schedule, of which an instant has passed."""
    await desk.owner._backend.store.register_schedules([DEFINITION])
    with psycopg.connect(desk.dsn) as connection:
        connection.execute("UPDATE awa.schedules SET cursor = '2026-01-01'")
    return await desk.owner.cron.get("nightly")


@operation("look at schedules", LOOKERS)
async def _(desk: Desk) -> None:
    await desk.client.cron.list()


@operation("register a schedule", WORKERS)
async def _(desk: Desk) -> None:
    await desk.store.register_schedules([DEFINITION], anew=True)


@operation("fire a schedule", WORKERS)
async def _(desk: Desk) -> None:
    row = await _scheduled(desk)
    jobs = [registry_of(app).prepare(Plain(next(desk.numbers)), {"unique_opts": {}})]
    assert await desk.store.fire("nightly", row.cursor, row.now, jobs) is not None


@operation("pause and resume a schedule", REMOVERS)
async def _(desk: Desk) -> None:
    await _scheduled(desk)
    await desk.client.cron.pause("nightly")
    await desk.client.cron.resume("nightly")


@operation("forget a schedule", PEOPLE)
async def _(desk: Desk) -> None:
    await _scheduled(desk)
    await desk.client.cron.remove("nightly")


# ---- behind the functions' backs


def statement(
    name: str, allowed: frozenset[Rights], text: str, *, only_segmented: bool = False
) -> None:
    """An act that is one statement, rolled back."""

    @operation(name, allowed, only_segmented=only_segmented, ours=False)
    async def _(desk: Desk) -> None:
        async with desk.connection.transaction(force_rollback=True):
            await desk.run(text)


statement("read arguments", ROW_READERS, "SELECT args FROM awa.jobs")
statement("read who holds a key", LOOKERS | ENQUEUERS, "SELECT job_id FROM awa.unique_claims")
statement("move a row", MOVERS, "UPDATE awa.jobs SET state = state")
statement("remove rows", REMOVERS, "DELETE FROM awa.jobs")
statement("change arguments", NOBODY, "UPDATE awa.jobs SET args = '{}'")
statement("change a kind", NOBODY, "UPDATE awa.jobs SET kind = 'x'")
statement("change an ordering key", NOBODY, "UPDATE awa.jobs SET ordering_key = 'x'")
statement("change a queue", PEOPLE, "UPDATE awa.jobs SET queue = 'x'")
statement("take a lease", WORKERS, "UPDATE awa.jobs SET run_lease = run_lease + 1")
statement(
    "insert a job that has ended",
    NOBODY,
    "INSERT INTO awa.jobs (kind, args, state, finalized_at) VALUES ('x', '1', 'completed', now())",
)
statement("empty the table", NOBODY, "TRUNCATE awa.jobs")
statement("let go of keys", MOVERS, "DELETE FROM awa.unique_claims")
statement("refill a bucket", WORKERS, "UPDATE awa.buckets SET tokens = 9")
statement("change a limit key", NOBODY, "UPDATE awa.jobs SET limit_key = 'x'")
statement("fence a worker", WORKERS, "UPDATE awa.workers SET fenced_at = now()")
statement("see the workers", LOOKERS, "SELECT * FROM awa.workers")
statement("choose the next ID", NOBODY, "SELECT setval('awa.job_ids', 1)")
statement("claim another version", NOBODY, "UPDATE awa.schema_version SET version = 99")
statement("read the version", EVERYBODY, "SELECT * FROM awa.schema_version")
statement("drop the table", NOBODY, "DROP TABLE awa.jobs CASCADE")
statement("create in the schema", NOBODY, "CREATE TABLE awa.mine (x int)")
statement(
    "replace a function",
    NOBODY,
    "CREATE OR REPLACE FUNCTION awa.engine() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$",
)
statement("drop a function", NOBODY, "DROP FUNCTION awa.engine()")
statement("own the table", NOBODY, "ALTER TABLE awa.jobs OWNER TO CURRENT_USER")
statement("put a trigger on the table", NOBODY,
    "CREATE TRIGGER t BEFORE INSERT ON awa.jobs EXECUTE FUNCTION suppress_redundant_updates_trigger()",
)  # fmt: skip
statement("use the schema of others", NOBODY, "SELECT * FROM pg_authid")
statement(
    "read arguments in lanes", LOOKERS, "SELECT args FROM awa.lane_jobs", only_segmented=True
)
statement("remove jobs from lanes", REMOVERS, "DELETE FROM awa.lane_jobs", only_segmented=True)
statement(
    "change jobs in lanes", NOBODY, "UPDATE awa.lane_jobs SET args = '{}'", only_segmented=True
)
statement("empty a segment by hand", WORKERS, "TRUNCATE awa.lane_jobs_5", only_segmented=True)
statement("empty all segments", NOBODY, "TRUNCATE awa.lane_jobs", only_segmented=True)
statement(
    "claim behind a worker's back",
    WORKERS,
    "INSERT INTO awa.lane_claims (worker_id, deadline, upto_xid, upto_id, segment, priority,"
    " kind, queue, ids) VALUES (1, 0, '1', 1, 0, 2, 'x', 'x', '{}')",
    only_segmented=True,
)
statement(
    "turn the ring", WORKERS, "SELECT nextval('awa.segment_numbers')", only_segmented=True
)
statement(
    "turn the ring back", NOBODY, "SELECT setval('awa.segment_numbers', 0)", only_segmented=True
)


def causes(error: BaseException) -> Iterator[BaseException]:
    """What was raised, and all that it came from; which may lead back to it."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            left += filter(None, (one.__cause__, one.__context__))


def was_refused(error: BaseException) -> bool:
    """Whether it came from a lack of rights."""
    return any(isinstance(one, psycopg.errors.InsufficientPrivilege) for one in causes(error))


async def outcome(operation: Operation, desk: Desk) -> str:
    """What came of an act: "done", "refused", or what else was raised."""
    try:
        with trio.fail_after(30):
            await operation.act(desk)
    except BaseException as error:
        if was_refused(error):
            return "refused"
        if not isinstance(error, Exception):
            raise
        return repr(error)
    return "done"

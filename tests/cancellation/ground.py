"""Where cells are run: one database, a client and a worker that can be cut, and one that
looks on; and what must be true afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import trio
from psycopg import pq

import awa_trio as awa
from awa_trio._pg.pool import Pool
from awa_trio._runtime.attempt import Attempt

from .cells import CAUSES, OUTPUT, SCRIPTS, SHAPES, THREAD, Cell, Next, Side, Work
from .knife import ANSWERED, MOMENTS, SENT, CutBackend, CutOpener, Knife, Point

S = awa.JobState

#: Nothing that a cell leaves runs again by itself.
LATER = 3600.0

TIMINGS = awa.Timings(
    heartbeat=0.5,
    lease=20.0,
    finalize_deadline=10.0,
    rescue_interval=0.05,
    poll_interval=0.2,
    abandon_after=0.5,
)

#: Statements that only look, and those of services, which pass at no certain moment of a run.
READS = frozenset(
    {"next_due", "running", "answered", "get_jobs", "find_callback", "database_identity"}
)
SERVICES = frozenset({"lead", "rescue", "prune", "pg_notify", "queue_overrides"})


def _looks(point: Point) -> bool:
    """Whether it is of a claim that comes round again, and finds nothing."""
    return point.statement == "claim" and point.number > 1


#: Seconds within which anything happens that is waited for.
PATIENCE = 30.0


@attrs.define(eq=False)
class Run:
    """One run of the job."""

    ground: Ground
    worker: awa.Worker
    scope: trio.CancelScope
    """Around the worker."""
    number: int
    cell: Cell | None
    script: str
    job_id: int = 0
    token: str = ""
    struck: bool = False
    in_time: bool = False
    """Whether the attempt was cut before it had ended."""
    decided: bool = False
    """Whether its settlement had been decided when it was cut."""
    succeeded: bool = False
    """Whether a client's call, if that was the cause, said that it was the one."""
    happened: dict[str, bool] = attrs.field(factory=dict)
    """What the handler was told of its own writes."""
    begun: bool = False
    over: trio.Event = attrs.field(factory=trio.Event)
    """Set when its handler has ended, in whatever thread."""

    @property
    def client(self) -> awa.Client:
        return self.ground.client

    @property
    def outside(self) -> awa.Client:
        return self.ground.outside

    async def execute(self, statement: str, *parameters: object) -> list[Any]:
        return await self.ground.execute(statement, *parameters)

    def _attempts(self) -> list[Attempt]:
        held = self.worker._parts.ledger._held
        return [a for a in held.values() if a.claimed.id == self.job_id]

    @property
    def has_attempt(self) -> bool:
        return bool(self._attempts())

    @property
    def attempt(self) -> Attempt:
        return self._attempts()[0]

    @asynccontextmanager
    async def told(self, what: str) -> AsyncIterator[None]:
        """Note whether a block happened: it did unless it raises."""
        self.happened[what] = False
        yield
        self.happened[what] = True

    # ---- striking

    async def at(self, point: Point) -> None:
        """The knife is at a point."""
        if self.cell is not None and point == self.cell.point and not self.struck:
            self.struck = True
            await self._strike(self.cell)
        if (point.statement, point.moment) == ("begin_waits", ANSWERED):
            self.ground.nursery.start_soon(self._resume)

    async def _resume(self) -> None:
        try:
            await self.outside.callbacks.resume(self.token)
        except awa.CallbackError:
            pass

    async def _strike(self, cell: Cell) -> None:
        cause = CAUSES[cell.cause]
        attempt = self.attempt if self.has_attempt else None
        self.decided = attempt is not None and attempt.settled
        acted = trio.Event()

        async def act() -> None:
            await cause.act(self)
            acted.set()

        self.ground.nursery.start_soon(act)
        # It may have to wait for a lock of what is being cut, and then it is not in time.
        while not acted.is_set() and not await self.ground.blocked():
            await trio.sleep(0.001)
        if cause.ends_worker:
            await self._until_cut()
        if attempt is not None and not attempt.settled and not attempt.ended:
            cut = attempt.cut_by(trio.current_time()) is not None
            self.in_time = cut or self.worker._drain.cancel_called

    async def _until_cut(self) -> None:
        """Wait until the news has come to the attempts, if it can: a claim that is held here
        keeps the worker from its end."""
        for _ in range(100):
            if self.worker._drain.cancel_called:
                return
            await trio.sleep(0.001)


class Ground:
    """One database, and whoever works on it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.knife = Knife()
        self.runs: dict[int, Run] = {}
        self.client: awa.Client
        self.outside: awa.Client
        self.backend: CutBackend
        self._apps = {shape: self._app(shape) for shape in SHAPES}
        self._worker: tuple[str, awa.Worker, trio.CancelScope, trio.Event] | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Ground]:
        """A ground for a block."""
        async with trio.open_nursery() as nursery:
            ground = cls(nursery)
            opener = CutOpener(dsn, ground.knife)
            async with (
                Pool(opener, size=4, name="the handlers'") as pool,
                awa.connect(dsn, pool_size=4) as ground.outside,
            ):
                await ground.execute("CREATE TABLE mine (cell int)")
                ground.backend = CutBackend(opener, pool)
                ground.client = awa.Client(ground.backend, None)
                yield ground
                await ground._end_worker()

    async def execute(self, statement: str, *parameters: object) -> list[Any]:
        """Do something that nobody cuts."""
        async with self.outside._backend.connection() as connection:
            cursor = await connection.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def blocked(self) -> bool:
        """Whether anybody waits for a lock."""
        rows = await self.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'"
        )
        return bool(rows)

    # ---- the app, and its worker

    def _app(self, shape: str) -> awa.App:
        app = awa.App()
        app.declare(Next, queue="nobody")
        app.declare(Side, queue="nobody")
        take = SHAPES[shape]

        async def handle(job: awa.Job[Work]) -> object:
            run = self.runs[job.args.cell]
            if run.begun:
                # Handed back or resumed, and the worker is alive: whatever was to be seen has been.
                return awa.Snooze(LATER)
            run.begun = True
            try:
                await take(SCRIPTS[run.script], job, run)
            finally:
                run.over.set()
            return None

        def handle_in_thread(job: awa.Job[Work]) -> object:
            return trio.from_thread.run(handle, job)

        app.task(queue="work", deadline=LATER, backoff=lambda attempt: LATER)(
            handle_in_thread if shape == THREAD else handle
        )
        return app

    async def _worker_for(self, shape: str) -> tuple[awa.Worker, trio.CancelScope]:
        """A worker that takes jobs in this shape: the one there is, if it does."""
        if self._worker is not None:
            known, worker, scope, ended = self._worker
            if known == shape and not ended.is_set():
                return worker, scope
            await self._end_worker()
        scope, ended = trio.CancelScope(), trio.Event()

        async def run(task_status: trio.TaskStatus[awa.Worker]) -> None:
            with scope:
                await awa.run_worker(
                    self._apps[shape],
                    self.client,
                    queues={"work": 1},
                    grace=0.0,
                    timings=TIMINGS,
                    random=Random(0),
                    task_status=task_status,
                )
            ended.set()

        begun: awa.Worker = await self.nursery.start(run)
        self._worker = shape, begun, scope, ended
        return begun, scope

    async def _end_worker(self) -> None:
        if self._worker is not None:
            _, worker, _, ended = self._worker
            worker.stop()
            with trio.fail_after(PATIENCE):
                await ended.wait()
            self._worker = None

    # ---- running

    async def points(self, script: str) -> list[Point]:
        """The points that a run passes that nobody cuts, and at which something is written."""
        run = await self._run(script, "plain", None)
        passed = list(self.knife.passed)
        await self._check_quiet(run)
        row = await self.outside.jobs.get(run.job_id)
        assert (row.state, row.output) == (S.COMPLETED, OUTPUT)
        return [p for p in passed if p.statement not in READS | SERVICES and not _looks(p)]

    async def cut(self, cell: Cell) -> bool:
        """Run a cell, and check everything; whether its point was reached."""
        run = await self._run(cell.script, cell.shape, cell)
        if run.struck:
            await self._check(run, cell)
        # Or the next worker would begin with it.
        await self.outside.jobs.cancel(run.job_id, without_follow_ups=True)
        return run.struck

    async def _run(self, script: str, shape: str, cell: Cell | None) -> Run:
        worker, scope = await self._worker_for(shape)
        number = len(self.runs) + 1
        run = self.runs[number] = Run(self, worker, scope, number, cell, script)
        enqueued = trio.Event()

        async def at(point: Point) -> None:
            await enqueued.wait()
            await run.at(point)

        # A claim that is under way could take the job and be counted by nobody.
        while self.backend.worker_pool.statistics().borrowed:
            await trio.sleep(0.001)
        self.knife.hold(at)
        run.job_id = (await self.outside.enqueue(Work(number), queue="work")).id
        enqueued.set()
        with trio.move_on_after(PATIENCE) as patience:
            await self._settled(run)
        self.knife.put_down()
        if patience.cancelled_caught:
            row = await self.outside.jobs.get(run.job_id)
            said = f"it does not come to rest: {row}, {worker.statistics()}, {run}"
            scope.cancel()
            raise AssertionError(said)
        return run

    async def _settled(self, run: Run) -> None:
        """Wait until nothing more will become of a run."""
        assert self._worker is not None
        ended = self._worker[3]
        ends = run.cell is not None and CAUSES[run.cell.cause].ends_worker
        while True:
            # A thread goes on for a while, in which others may take the job up.
            if run.begun:
                await run.over.wait()
            row = await self.outside.jobs.get(run.job_id)
            resting = row.state.terminal or (
                row.state in (S.RETRYABLE, S.SCHEDULED, S.AVAILABLE, S.WAITING_EXTERNAL)
                and (run.struck or run.cell is None)
            )
            still = ended.is_set() if ends and run.struck else self._idle(run.worker)
            # What was answered while nobody held it will be made available, and then be claimed.
            answered = row.state is S.WAITING_EXTERNAL and row.callback_until is None
            moves = row.state is S.AVAILABLE or answered
            over = run.over.is_set() or not run.begun
            if resting and still and over and (not moves or ends):
                return
            await trio.sleep(0.002)

    def _idle(self, worker: awa.Worker) -> bool:
        s = worker.statistics()
        return (s.running, s.waiting, s.finalizing) == (0, 0, 0) and len(
            worker._parts.ledger
        ) == 0

    # ---- what must be true afterwards

    async def _check(self, run: Run, cell: Cell) -> None:
        row = await self.outside.jobs.get(run.job_id)
        landed = row.state is S.COMPLETED and row.output == OUTPUT
        nexts = [
            j
            for j in await self.outside.jobs.list(kind="next", limit=1)
            if j.args_json["cell"] == run.number
        ]
        sides = [
            job.args_json["how"]
            for job in await self.outside.jobs.list(kind="side", limit=2)
            if job.args_json["cell"] == run.number
        ]
        mine = await self.execute("SELECT cell FROM mine WHERE cell = %s", run.number)
        told = f"{row.state}, attempt {row.attempt}, {row.errors}, {run}"

        # The follow-up is there if, and only if, the completion by its handler is.
        assert len(nexts) == landed, told
        # A cut that came before the attempt ended discards; one that came after its
        # settlement was decided changes nothing, unless the job had become someone else's.
        assert not (run.in_time and landed and not self._may_land(cell)), told
        if run.decided and cell.cause in ("deadline", "shutdown", "outer scope"):
            assert landed, told
        cause = CAUSES[cell.cause]
        assert landed or row.state in cause.leaves, told
        if run.succeeded:
            assert not landed, told
        if not landed:
            spent = 1 if row.attempted_at is not None else 0
            if row.state in (S.AVAILABLE, S.SCHEDULED):
                spent = 0
            assert row.attempt == spent, told
        if cell.cause == "deadline" and not landed:
            assert "the deadline of" in row.errors[-1].error, told

        # What the handler wrote by itself is there as it was told, and whole.
        if cell.script == "write":
            assert sides.count("at once") == run.happened.get("enqueued", False), told
            committed = run.happened.get("committed", False)
            assert (sides.count("with a row"), len(mine)) == (committed, committed), told
        else:
            assert len(mine) == landed, told
        await self._check_quiet(run)

    def _may_land(self, cell: Cell) -> bool:
        """Whether a completion may land though the attempt was cut before it had ended: in a
        transaction of the handler's, if the cut did not reach the handler in its block."""
        if cell.script != "complete_in":
            return False
        late = (("settle", SENT), ("settle", ANSWERED), *(("COMMIT", m) for m in MOMENTS))
        if (cell.point.statement, cell.point.moment) in late:
            return True
        return cell.shape in ("shielded", THREAD) and cell.cause != "lost lease"

    async def _check_quiet(self, run: Run) -> None:
        """No connection is missing or in a transaction, every slot is free, and a worker that
        lives works."""
        assert self._worker is not None
        ended = self._worker[3].is_set()
        pools = [self.backend.pool] if ended else [self.backend.pool, self.backend.worker_pool]
        slots = [] if ended else run.worker._parts.dispatcher.slots()

        def out() -> list[object]:
            """What is in use; of a worker's services something may be, for a moment."""
            found = [p.statistics() for p in pools]
            used: list[object] = [s for s in found if s.borrowed or s.connecting or s.waiting]
            used += [s for s in slots if (s.free, s.waiting, s.promised) != (1, 0, 0)]
            return used

        with trio.move_on_after(PATIENCE) as patience:
            while out():
                await trio.sleep(0.001)
        assert not patience.cancelled_caught, f"{out()}, {run.worker.statistics()}"
        for pool in pools:
            for connection, _ in pool._idle:
                assert connection.info.transaction_status == pq.TransactionStatus.IDLE
        stuck = await self.execute(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%%'"
        )
        assert stuck == []

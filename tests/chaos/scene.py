"""Workers, producers and those who answer, at work; and what they see."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import trio
from attrs import define, field

import awa_trio as awa

from .app import TIMINGS, Own, Resolve, app_that_tells, own_queue
from .ground import Ground
from .ledger import Ledger, Line, Reader
from .places import Place

ROOT = Path(__file__).parents[2]

#: Seconds until a worker that has ended is started again, as whoever keeps it up would.
RESTART = 0.3

#: What a job's runs do, each as often as it is here. See `app.Resolve`.
SCRIPTS: tuple[tuple[str, ...], ...] = (
    *(("complete",),) * 8,
    *(("retry", "complete"), ("snooze", "complete"), ("raise", "complete")) * 2,
    ("hang", "complete"),
    ("silence", "complete"),
    *(("wait",), ("park",)) * 2,
    ("snooze", "retry", "wait"),
    ("raise", "park", "complete"),
)
DOOMED = ("raise",)

#: Seconds in which an attempt that hangs is cut.
DEADLINE = 0.6


def no_app_of_its_own(what: str, **said: object) -> None:
    """Clients need to know the app, whose handlers run elsewhere."""


@define(eq=False)
class WorkerProcess:
    """One worker, in the present one of its lives."""

    slot: int
    place: Place
    process: trio.Process | None = None
    name: str = ""
    """Of its ledger."""
    killed: bool = False
    """Whether we did it."""

    def signal(self, which: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self.process is not None and self.process.returncode is None:
            self.killed = self.killed or which == signal.SIGKILL
            self.process.send_signal(which)

    async def set_clock(self, off: float) -> None:
        """Put its clock so many seconds off."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.process.stdin.send_all(b"%g\n" % off)


@define(eq=False)
class Scene:
    """Everybody, and the ground they stand on."""

    ground: Ground
    folder: Path
    chance: Random
    rate: float
    """Jobs a second that each producer enqueues, follow-ups not counted."""
    workers: list[WorkerProcess]
    producers: list[Place]
    admin: Place
    """Of whoever answers callbacks and cancels jobs."""
    ledger: Ledger
    lines: list[Line] = field(factory=list)
    """All that anybody has written down, as far as it has been read."""
    last_completion: float = 0.0
    stopping: bool = False
    _numbers: Iterator[int] = field(factory=count)
    _known: list[int] = field(factory=list)

    @classmethod
    def of(
        cls,
        ground: Ground,
        folder: Path,
        seed: int,
        *,
        workers: int,
        producers: int,
        rate: float,
    ) -> Scene:
        """Set one up; nothing runs yet."""
        dsns = [node.dsn() for node in ground.nodes]
        return cls(
            ground,
            folder,
            Random(seed),
            rate,
            [WorkerProcess(n, Place(f"worker {n}", dsns)) for n in range(workers)],
            [Place(f"producer {n}", dsns) for n in range(producers)],
            Place("admin", dsns),
            Ledger(folder / "run.jsonl", durable=True),
        )

    @property
    def places(self) -> list[Place]:
        """Everybody's."""
        return [*(w.place for w in self.workers), *self.producers, self.admin]

    # ---- Workers

    async def keep_up(self, worker: WorkerProcess) -> None:
        """Run a worker, and start it again whenever it ends, until all stop."""
        for life in count():
            worker.name = f"worker-{worker.slot}-{life}"
            worker.killed = False
            path = self.folder / worker.name
            with path.with_suffix(".log").open("wb") as log:
                worker.process = await trio.lowlevel.open_process(
                    [
                        *(sys.executable, "-W", "error", "-m", "tests.chaos.worker"),
                        *(str(worker.slot), f"{path}.jsonl", worker.place.dsn),
                    ],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )
                try:
                    code = await worker.process.wait()
                finally:
                    # Also one that is stopped.
                    worker.process.kill()
            self.ledger.write(
                "ended",
                name=worker.name,
                code=code,
                killed=worker.killed,
                asked=self.stopping,
                said=path.with_suffix(".log").read_text(errors="replace")[-2000:],
            )
            if self.stopping:
                return
            await trio.sleep(RESTART)

    async def stop_workers(self) -> None:
        """Tell all to stop in peace."""
        self.stopping = True
        for worker in self.workers:
            if worker.process is not None and worker.process.stdin is not None:
                await worker.process.stdin.aclose()

    # ---- Producers

    async def produce(self, place: Place, seed: int, over: trio.Event) -> None:
        """Enqueue until it is over, in every way there is."""
        chance = Random(seed)

        async def act(client: awa.Client) -> None:
            with trio.move_on_after(chance.expovariate(self.rate)):
                await over.wait()
            await self._enqueue_some(client, chance)

        await self._keep_at_it(place, over, act)

    async def _keep_at_it(
        self, place: Place, over: trio.Event, act: Callable[[awa.Client], Awaitable[None]]
    ) -> None:
        """Do something with a client until it is over; with another, if a fault struck one that
        was connecting."""
        app = app_that_tells(no_app_of_its_own)
        client: awa.Client
        while not over.is_set():
            try:
                async with awa.connect(place.dsn, app=app, pool_size=2) as client:
                    while not over.is_set():
                        await act(client)
            except (awa.DatabaseUnavailable, psycopg.OperationalError):
                await trio.sleep(0.1)

    async def _enqueue_some(self, client: awa.Client, chance: Random) -> None:
        how = chance.choice(("one", "one", "again", "many", "transaction"))
        numbers = [
            next(self._numbers) for _ in range(chance.randint(2, 4) if how == "many" else 1)
        ]
        jobs = [_job(n, chance) for n in numbers]

        async def in_transaction() -> list[awa.Enqueued]:
            async with client.transaction() as tx:
                answers = [await tx.enqueue(job) for job in jobs]
                await trio.sleep(0)
            return answers

        async def at_once() -> list[awa.Enqueued]:
            return await client.enqueue_many(jobs)

        call = in_transaction if how == "transaction" else at_once
        self.ledger.write("asked", jobs=numbers)
        answers = await self._acknowledged(call, again=how == "again")
        if answers is not None:
            ids = [answer.id for answer in answers]
            self.ledger.write("enqueued", jobs=list(zip(ids, numbers, strict=True)))
            self._known += ids

    async def _acknowledged(
        self, call: Callable[[], Awaitable[Any]], *, again: bool = True
    ) -> Any:
        """Call until it is acknowledged, or once; None if nobody knows."""
        while True:
            try:
                return await call()
            except (awa.DatabaseUnavailable, psycopg.OperationalError):
                if not again:
                    return None
                await trio.sleep(0.1)

    # ---- Whoever answers callbacks and cancels jobs

    async def follow(self, over: trio.Event) -> None:
        """Read what is written down, and answer callbacks, until it is over."""
        reader = Reader(self.folder)
        app = app_that_tells(no_app_of_its_own)
        async with (
            awa.connect(self.admin.dsn, app=app) as client,
            trio.open_nursery() as nursery,
        ):
            while not over.is_set():
                for line in reader.new():
                    self.lines.append(line)
                    if line["what"] == "expects" and not line["silent"]:
                        nursery.start_soon(self._answer, client, line)
                    if line["what"] == "settled" and line["to"] == "completed":
                        self.last_completion = max(self.last_completion, line["at"])
                with trio.move_on_after(0.03):
                    await over.wait()
            nursery.cancel_scope.cancel()
        # All have ended: what they wrote last.
        self.lines += reader.new()

    async def _answer(self, client: awa.Client, line: Line) -> None:
        await trio.sleep(self.chance.uniform(0, 0.5))
        payload = f"for {line['run']}"
        self.ledger.write("answering", job=line["job"], payload=payload)
        with suppress(awa.CallbackError):
            await self._acknowledged(partial(client.callbacks.resume, line["token"], payload))
            self.ledger.write("answered", job=line["job"], payload=payload)

    async def cancel_some(self, over: trio.Event) -> None:
        """Cancel a job now and then."""

        async def act(client: awa.Client) -> None:
            with trio.move_on_after(self.chance.expovariate(self.rate / 5)):
                await over.wait()
            if not self._known:
                return
            job_id = self.chance.choice(self._known[-20:])
            self.ledger.write("cancelling", job=job_id)
            call = partial(client.jobs.cancel, job_id)
            done = await self._acknowledged(call, again=False)
            self.ledger.write("cancelled", job=job_id, done=done)

        await self._keep_at_it(self.admin, over, act)

    # ---- What is asked of workers in the end

    async def call_the_roll(self, within: float) -> None:
        """See that every worker works: each gets a job that only it can do."""
        app = app_that_tells(no_app_of_its_own)
        async with awa.connect(self.ground.primary.dsn(), app=app) as client:
            for worker in self.workers:
                answer = await client.enqueue(Own(worker.slot), queue=own_queue(worker.slot))
                with trio.move_on_after(within) as scope:
                    await client.jobs.wait(answer.id)
                self.ledger.write("roll", slot=worker.slot, works=not scope.cancelled_caught)


def _job(n: int, chance: Random) -> awa.EnqueueRequest:
    """One whose script chance decides."""
    doomed = chance.random() < 0.05
    script = DOOMED if doomed else chance.choice(SCRIPTS)
    args = Resolve(n, list(script), chance.choice((0.01, 0.05, 0.4)))
    # By a key, so that it can be enqueued again when nobody knows.
    return awa.EnqueueRequest(
        args,
        unique_opts={"states": 127},
        max_attempts=2 if doomed else 1000,
        deadline=DEADLINE + args.seconds if "hang" in script else None,
    )


#: How long a worker's lease is; faults that are to outlast one do.
LEASE = TIMINGS.lease

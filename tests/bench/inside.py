"""What concerns this project alone, measured in one process.

``python -m tests.bench.inside NAME DSN JOBS`` prints a line of JSON at the moments between
which the parent counts what the server spends, and one with the result.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import trio
from attrs import field, frozen

import awa_trio as awa
from awa_trio import events
from awa_trio._core.job import JobState
from awa_trio._core.plan import Plan, Transition
from awa_trio._runtime import finalize
from awa_trio._seam.values import APPLIED, Claimed, Want

from .contenders.ours import Nothing, Ping, StageB, app
from .figures import percentile

#: A queue that no worker here serves.
ELSEWHERE = "elsewhere"

#: Of so many jobs one stages a follow-up that the database refuses: one for each set.
POISON_EVERY = 256

#: Of so many jobs one stages a follow-up whose unique key a producer holds.
HELD_EVERY = 1_000

#: Numbers of follow-ups that are refused, and whose key is held.
POISONED, HELD = -1, -2

#: Jobs in one claim, where claims are timed; and how many claims are.
CLAIM, CLAIMS = 10, 300

Figures = dict[str, float]


@frozen
class Stager:
    n: int
    follow_ups: int
    unique: bool
    odd: int = 0
    """The number of a follow-up besides, for `POISONED` and `HELD`."""


@app.task()
async def stager(job: awa.Job[Stager]) -> None:
    args = job.args
    options: Any = {"unique_opts": {}} if args.unique else {}
    for n in range(args.follow_ups):
        job.enqueue_on_completion(StageB(args.n * 100 + n, 0.0), queue=ELSEWHERE, **options)
    if args.odd:
        job.enqueue_on_completion(StageB(args.odd, 0.0), queue=ELSEWHERE, unique_opts={})


def mark(moment: str) -> None:
    """Tell the parent to read the server's counters, and wait until it has."""
    print(json.dumps({"mark": moment}), flush=True)
    sys.stdin.readline()


class Clock:
    """Between two marks: seconds that went by, and of CPU that this process took."""

    def __init__(self) -> None:
        mark("begin")
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self, jobs: float) -> Figures:
        """Stop, and return what that is for each of so many jobs."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        mark("end")
        return {"jobs": jobs, "per_s": jobs / wall, "worker_us": cpu / jobs * 1e6}


async def fill(client: awa.Client, jobs: Iterable[object], **options: Any) -> None:
    """Enqueue, 5,000 at a time."""
    batch: list[object] = []
    for job in jobs:
        batch.append(job)
        if len(batch) == 5_000:
            await client.enqueue_many(batch, **options)
            batch = []
    await client.enqueue_many(batch, **options)


async def bulk_unique(client: awa.Client, jobs: int) -> Figures:
    """Calls of 5,000, each job with a unique key of its own."""
    clock = Clock()
    await fill(client, (Nothing(n, 0.0) for n in range(jobs)), unique_opts={})
    return clock.read(jobs)


# ---- drains


@asynccontextmanager
async def working(
    client: awa.Client, observers: Sequence[awa.Observer] = ()
) -> AsyncIterator[awa.Worker]:
    """Run a worker for as long as the block does."""
    async with trio.open_nursery() as nursery:
        run = partial(awa.run_worker, observers=observers)
        worker = await nursery.start(run, app, client)
        yield worker
        worker.stop()


async def until_settled(worker: awa.Worker, jobs: int) -> None:
    """Wait until so many are completed or failed, durably."""
    while True:
        settled = worker.statistics().settled
        if settled[awa.JobState.COMPLETED] + settled[awa.JobState.FAILED] >= jobs:
            return
        await trio.sleep(0.001)


async def drained(
    client: awa.Client, jobs: int, observers: Sequence[awa.Observer] = ()
) -> Figures:
    """Run a worker until it has settled what is enqueued."""
    clock = Clock()
    async with working(client, observers) as worker:
        await until_settled(worker, jobs)
        return clock.read(jobs)


async def drain_observed(client: awa.Client, jobs: int) -> Figures:
    """A backlog of handlers that do nothing, with an observer that counts events."""

    class Counting(awa.Observer):
        seen = 0

        def observe(self, event: events.Event) -> None:
            self.seen += 1

    await fill(client, (Nothing(n, 0.0) for n in range(jobs)))
    return await drained(client, jobs, [Counting()])


async def drain_traced(client: awa.Client, jobs: int) -> Figures:
    """The same, with spans and metrics of OpenTelemetry's SDK, exported to nowhere."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    from awa_trio.telemetry import Telemetry

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()])
    await fill(client, (Nothing(n, 0.0) for n in range(jobs)))
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
    return await drained(client, jobs, [telemetry])


def drain_ordered(per_key: int | None) -> Measured:
    """Return the measure of a backlog with ordering keys.

    Args:
      per_key: jobs of each key; None for twelve keys, however many jobs.
    """

    async def measure(client: awa.Client, jobs: int) -> Figures:
        keys = 12 if per_key is None else max(jobs // per_key, 1)
        await fill(
            client,
            (
                awa.EnqueueRequest(Nothing(n, 0.0), ordering_key=f"key {n % keys}")
                for n in range(jobs)
            ),
        )
        return await drained(client, jobs)

    return measure


# ---- the cost of staging


def staging(
    follow_ups: int,
    *,
    unique: bool = False,
    odd: int = 0,
    every: int = 0,
    singly: bool = False,
) -> Measured:
    """Return the measure of completions that stage follow-ups, which nobody runs.

    Args:
      follow_ups: of each completion.
      unique: whether they have unique keys, all different.
      odd: another one, with this number, ...
      every: ... of one in so many completions.
      singly: whether each completion has a transaction of its own.
    """

    async def measure(client: awa.Client, jobs: int) -> Figures:
        await fill(
            client,
            (
                Stager(n, follow_ups, unique, odd if every and n % every == 0 else 0)
                for n in range(jobs)
            ),
        )
        if singly:
            finalize.MOST_PLANS = finalize.WORTH_A_SET = 1
        if odd == POISONED:
            refuse_poison()
        if odd == HELD:
            return await beside_a_holder(client, jobs, -(-jobs // every))
        return await drained(client, jobs)

    return measure


def refuse_poison() -> None:
    """Let the database refuse follow-ups that are `POISONED`, wherever it keeps jobs."""
    with psycopg.connect(sys.argv[2], autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'poison'; END $$"
        )
        tables = connection.execute(
            "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_attribute AS a ON attrelid = c.oid"
            " WHERE relnamespace = 'awa'::regnamespace AND relkind = 'r' AND attname = 'args'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(
                f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW"
                f" WHEN (NEW.args::text LIKE '%\"n\":{POISONED},%')"
                " EXECUTE FUNCTION public.refuse()".encode()
            )


async def beside_a_holder(client: awa.Client, jobs: int, held: int) -> Figures:
    """Drain all but those whose follow-up's key is held by a producer's open transaction."""
    with psycopg.connect(sys.argv[2]) as producer:
        request = awa.EnqueueRequest(
            StageB(HELD, 0.0), queue=ELSEWHERE, unique_opts={}, kind="stage_b"
        )
        awa.enqueue(producer, request)
        clock = Clock()
        async with working(client) as worker:
            await until_settled(worker, jobs - held)
            figures = clock.read(jobs - held)
            producer.rollback()
            await until_settled(worker, jobs)
    return figures


# ---- claims behind a million rows


async def claim(client: awa.Client, jobs: int) -> Figures:
    """Claim from a queue that holds nothing else."""
    return await claims(client)


async def claim_beside_scheduled(client: awa.Client, jobs: int) -> Figures:
    """Claim where so many jobs of the same kind are scheduled for tomorrow."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await fill(client, (Nothing(n, 0.0) for n in range(jobs)), run_at=tomorrow)
    return await claims(client)


async def claim_from_backlog(client: awa.Client, jobs: int) -> Figures:
    """Claim from so many jobs that are all due."""
    await fill(client, (Nothing(n, 0.0) for n in range(jobs)))
    return await claims(client)


async def claim_behind_strangers(client: awa.Client, jobs: int) -> Figures:
    """Claim where so many jobs of a kind that this worker does not know come first."""
    await fill(client, (Ping(n, 0.0) for n in range(jobs)), priority=1)
    return await claims(client)


async def claims(client: awa.Client) -> Figures:
    """Time claims of ten jobs that are there."""
    await fill(client, (Nothing(n, 0.0) for n in range(CLAIM * (CLAIMS + 1))))
    with psycopg.connect(sys.argv[2], autocommit=True) as connection:
        connection.execute("ANALYZE")
    kinds = {"nothing": None, "stage_a": None, "stage_b": None}
    wants = [Want("default", CLAIM, 300.0, 60.0)]
    times = []
    async with client._backend.worker_store() as store:
        worker = await store.register("bench", 3600)
        assert len(await store.claim(worker, wants, kinds)) == CLAIM
        clock = Clock()
        for _ in range(CLAIMS):
            begun = time.perf_counter()
            found = await store.claim(worker, wants, kinds)
            times.append(time.perf_counter() - begun)
            assert len(found) == CLAIM
        figures = clock.read(CLAIM * CLAIMS)
    times.sort()
    return figures | {
        "p50_ms": percentile(times, 50) * 1000,
        "p95_ms": percentile(times, 95) * 1000,
    }


# ---- ceilings


async def engine(client: awa.Client, jobs: int) -> Figures:
    """Claims of 500 and settlements in sets of 256, two at a time, and no handlers."""
    await fill(client, (Nothing(n, 0.0) for n in range(jobs)))
    kinds = {"nothing": None}
    send, receive = trio.open_memory_channel[list[Claimed]](4)
    async with client._backend.worker_store() as store:
        worker = await store.register("bench", 3600)

        async def claim_all() -> None:
            async with send:
                while found := await store.claim(
                    worker, [Want("default", 500, 300.0, 60.0)], kinds
                ):
                    for first in range(0, len(found), 256):
                        await send.send(found[first : first + 256])

        async def settle_all() -> None:
            async for found in receive:
                plans = [Plan(completion(job)) for job in found]
                assert await store.settle(plans, worker=worker) == [APPLIED] * len(plans)

        clock = Clock()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(claim_all)
            nursery.start_soon(settle_all)
            nursery.start_soon(settle_all)
        return clock.read(jobs)


def completion(job: Claimed) -> Transition:
    """The move of an attempt that returned."""
    return Transition(job.id, job.run_lease, JobState.RUNNING, JobState.COMPLETED, job.attempt)


class NoStore:
    """A store that has so many jobs, and does nothing."""

    threaded_pulse = False

    def __init__(self, jobs: int) -> None:
        self._left = jobs

    async def register(self, *given: object) -> int:
        return 1

    async def lead(self, *given: object) -> bool:
        return False

    async def unregister(self, *given: object) -> None:
        pass

    async def running(self, *given: object, **options: object) -> list[object]:
        return []

    answered = rescue = running

    async def next_due(self, *given: object) -> None:
        return None

    async def claim(self, worker: int, wants: Sequence[Want], *given: object) -> list[Claimed]:
        await trio.lowlevel.checkpoint()
        most = min(wants[0].most, self._left)
        self._left -= most
        return [
            Claimed(
                n + 1, "nothing", "default", 2, 1, 25, b'{"n":1,"moment":0.0}', None, None,
                0, 0, 300.0, None, 1, None, None, None,
            )
            for n in range(self._left, self._left + most)
        ]  # fmt: skip

    async def declare_queues(self, queues: object) -> None:
        await trio.lowlevel.checkpoint()

    async def overrides(self, queues: object) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {}

    async def begin_waits(self, *given: object) -> list[object]:
        return []

    end_waits = begin_waits

    async def settle(self, plans: Sequence[Plan], **given: object) -> list[object]:
        await trio.lowlevel.checkpoint()
        return [APPLIED] * len(plans)

    @asynccontextmanager
    async def pulse(self) -> AsyncIterator[Any]:
        yield self

    async def beat(self, worker: int) -> bool:
        return True

    async def listen(self, hear: object, ready: Callable[[], None]) -> None:
        ready()
        await trio.sleep_forever()


@frozen
class NoBackend:
    store: Any = field(converter=NoStore)

    @asynccontextmanager
    async def worker_store(self) -> AsyncIterator[Any]:
        yield self.store


async def worker_alone(client: awa.Client, jobs: int) -> Figures:
    """The whole worker, on a store that does nothing: no database."""
    backend: Any = NoBackend(jobs)
    return await drained(awa.Client(backend, app), jobs)


Measured = Callable[[awa.Client, int], Awaitable[Figures]]

MEASURES: dict[str, Measured] = {
    "bulk-unique": bulk_unique,
    "observed": drain_observed,
    "telemetry": drain_traced,
    "ordered-12": drain_ordered(None),
    "ordered-10": drain_ordered(10),
    "staged-0": staging(0),
    "staged-1": staging(1),
    "staged-4": staging(4),
    "staged-16": staging(16),
    "unique-1": staging(1, unique=True),
    "unique-4": staging(4, unique=True),
    "unique-16": staging(16, unique=True),
    "poison": staging(1, unique=True, odd=POISONED, every=POISON_EVERY),
    "held": staging(1, unique=True, odd=HELD, every=HELD_EVERY),
    "singly-0": staging(0, singly=True),
    "singly-1": staging(1, unique=True, singly=True),
    "claim": claim,
    "claim-scheduled": claim_beside_scheduled,
    "claim-backlog": claim_from_backlog,
    "claim-strangers": claim_behind_strangers,
    "worker-alone": worker_alone,
    "engine-alone": engine,
}
"""By the names that the command line takes."""


async def main(name: str, dsn: str, jobs: int) -> None:
    """Measure once, and print what came of it."""
    async with awa.connect(dsn, app=app) as client:
        result = await MEASURES[name](client, jobs)
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))

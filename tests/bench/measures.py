"""The measures: each runs in a process and a database of its own, and returns numbers.

``python -m tests.bench.measures NAME DSN JOBS`` prints them as JSON.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio import events

#: As many slots as the peers were given in the measurements we compare with.
SLOTS = 500

app = awa.App()
app.queue("default", max_workers=SLOTS)


@frozen
class Nothing:
    a: int
    b: int


@frozen
class StageA:
    n: int


@frozen
class StageB:
    n: int


@frozen
class Ping:
    sent: float


class Counter:
    """Counts handlers, and tells when there have been enough."""

    def __init__(self) -> None:
        self.seen = 0
        self.wanted = 0
        self.enough = trio.Event()
        self.latencies: list[float] = []

    def expect(self, wanted: int) -> None:
        self.seen, self.wanted, self.enough = 0, wanted, trio.Event()

    def count(self) -> None:
        self.seen += 1
        if self.seen == self.wanted:
            self.enough.set()


counter = Counter()


@app.task()
async def nothing(job: awa.Job[Nothing]) -> None:
    counter.count()


@app.task()
async def stage_a(job: awa.Job[StageA]) -> None:
    job.enqueue_on_completion(StageB(job.args.n), unique_opts={})


@app.task()
async def stage_b(job: awa.Job[StageB]) -> None:
    counter.count()


@app.task()
async def ping(job: awa.Job[Ping]) -> None:
    counter.latencies.append(time.monotonic() - job.args.sent)
    counter.count()


@asynccontextmanager
async def working(
    client: awa.Client, observers: Sequence[awa.Observer] = ()
) -> AsyncIterator[awa.Worker]:
    async with trio.open_nursery() as nursery:
        run = partial(awa.run_worker, observers=observers)
        worker = await nursery.start(run, app, client)
        yield worker
        worker.stop()


class Clock:
    """Seconds that went by, and seconds of CPU that this process took."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = _cpu()

    def read(self, jobs: int) -> dict[str, float]:
        wall = time.perf_counter() - self._wall
        cpu = _cpu() - self._cpu
        return {"jobs_per_s": jobs / wall, "python_us": cpu / jobs * 1e6, "jobs": jobs}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def enqueue_single(client: awa.Client, jobs: int) -> dict[str, float]:
    """One producer, one transaction each."""
    clock = Clock()
    for n in range(jobs):
        await client.enqueue(Nothing(n, 2))
    return clock.read(jobs)


async def enqueue_bulk(client: awa.Client, jobs: int) -> dict[str, float]:
    """Calls of 5,000."""
    clock = Clock()
    for start in range(0, jobs, 5_000):
        await client.enqueue_many(Nothing(n, 2) for n in range(start, start + 5_000))
    return clock.read(jobs)


async def enqueue_bulk_unique(client: awa.Client, jobs: int) -> dict[str, float]:
    """Calls of 5,000, each job with a unique key of its own."""
    clock = Clock()
    for start in range(0, jobs, 5_000):
        await client.enqueue_many(
            (Nothing(n, 2) for n in range(start, start + 5_000)), unique_opts={}
        )
    return clock.read(jobs)


async def drain(
    client: awa.Client, jobs: int, observers: Sequence[awa.Observer] = ()
) -> dict[str, float]:
    """A backlog of handlers that do nothing, until the last one's completion has committed."""
    for start in range(0, jobs, 5_000):
        await client.enqueue_many(Nothing(n, 2) for n in range(start, start + 5_000))
    return await _until_drained(client, jobs, observers)


async def _until_drained(
    client: awa.Client, jobs: int, observers: Sequence[awa.Observer] = ()
) -> dict[str, float]:
    mark("begin")
    counter.expect(jobs)
    clock = Clock()
    async with working(client, observers) as worker:
        await counter.enough.wait()
        while worker.statistics().settled[awa.JobState.COMPLETED] < jobs:
            await trio.sleep(0.001)
        read = clock.read(jobs)
        mark("end")
    return read


async def drain_observed(client: awa.Client, jobs: int) -> dict[str, float]:
    """The same, with an observer that counts events."""

    class Counting(awa.Observer):
        seen = 0

        def observe(self, event: events.Event) -> None:
            self.seen += 1

    return await drain(client, jobs, [Counting()])


async def drain_traced(client: awa.Client, jobs: int) -> dict[str, float]:
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
    return await drain(
        client, jobs, [Telemetry(tracer_provider=tracers, meter_provider=meters)]
    )


async def drain_ordered(client: awa.Client, jobs: int) -> dict[str, float]:
    """The same with 12 ordering keys: at most 12 of the jobs can run at once."""
    for start in range(0, jobs, 5_000):
        await client.enqueue_many(
            awa.EnqueueRequest(Nothing(n, 2), ordering_key=f"key {n % 12}")
            for n in range(start, start + 5_000)
        )
    return await _until_drained(client, jobs)


async def drain_ordered_apart(client: awa.Client, jobs: int) -> dict[str, float]:
    """The same with an ordering key for every ten jobs."""
    for start in range(0, jobs, 5_000):
        await client.enqueue_many(
            awa.EnqueueRequest(Nothing(n, 2), ordering_key=f"key {n % (jobs // 10)}")
            for n in range(start, start + 5_000)
        )
    return await _until_drained(client, jobs)


async def pipeline(client: awa.Client, jobs: int) -> dict[str, float]:
    """Each A stages one unique B, and B runs: pairs, until the last B's completion has committed."""
    for start in range(0, jobs, 5_000):
        await client.enqueue_many(StageA(n) for n in range(start, start + 5_000))
    mark("begin")
    counter.expect(jobs)
    clock = Clock()
    async with working(client) as worker:
        await counter.enough.wait()
        while worker.statistics().settled[awa.JobState.COMPLETED] < 2 * jobs:
            await trio.sleep(0.001)
        read = clock.read(jobs)
        mark("end")
    return read


async def latency(client: awa.Client, jobs: int) -> dict[str, float]:
    """From the enqueue call to the handler's first line, at 50 jobs a second."""
    counter.expect(jobs)
    async with working(client):
        await trio.sleep(1)
        gc.collect()
        begin = trio.current_time()
        for n in range(jobs):
            await trio.sleep_until(begin + n / 50)
            await client.enqueue(Ping(time.monotonic()))
        with trio.fail_after(30):
            await counter.enough.wait()
    ordered = sorted(counter.latencies)
    return {
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p95_ms": ordered[int(len(ordered) * 0.95)] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "max_ms": ordered[-1] * 1000,
        "jobs": jobs,
    }


def mark(moment: str) -> None:
    """Tell the parent to read the server's counters, and wait until it has."""
    print(json.dumps({"mark": moment}), flush=True)
    sys.stdin.readline()


MEASURES: dict[str, tuple[Callable[[awa.Client, int], Awaitable[dict[str, float]]], int]] = {
    "enqueue, one by one": (enqueue_single, 2_000),
    "enqueue, in bulk": (enqueue_bulk, 50_000),
    "enqueue, in bulk, unique": (enqueue_bulk_unique, 50_000),
    "drain, no-op": (drain, 50_000),
    "drain, no-op, observed": (drain_observed, 50_000),
    "drain, no-op, OpenTelemetry": (drain_traced, 50_000),
    "ordered drain, 12 keys": (drain_ordered, 10_000),
    "ordered drain, a key for ten jobs": (drain_ordered_apart, 20_000),
    "pipeline A to unique B, pairs": (pipeline, 20_000),
    "pickup latency at 50/s": (latency, 500),
}
"""What is measured, and with how many jobs."""


async def main(name: str, dsn: str, jobs: int) -> None:
    measure, _ = MEASURES[name]
    await awa.migrate(dsn)
    async with awa.connect(dsn, app=app) as client:
        marks = measure in (
            drain,
            drain_observed,
            drain_traced,
            drain_ordered,
            drain_ordered_apart,
            pipeline,
        )
        if not marks:
            mark("begin")
        result: dict[str, Any] = dict(await measure(client, jobs))
        if not marks:
            mark("end")
    result["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))

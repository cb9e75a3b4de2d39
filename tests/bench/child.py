"""What one contender does in a process of its own, told by lines of JSON on standard input.

``python -m tests.bench.child CONTENDER DSN``; each line is a command with its options,
and is answered by a line:

- ``install``: create the schema;
- ``enqueue`` and ``bulk`` (kind, count): enqueue one by one, or in bulk calls; answered
  with the seconds, and the seconds of CPU, and over with another line;
- ``pace`` (rate, seconds): enqueue pings at a rate; answered with the rate that came of it,
  and over with another line;
- ``work`` (tell): run a worker until a line ``stop``; every ``tell`` seconds, if that is
  not 0 and there is something new, a line says how many jobs have begun; answered with
  how long each ping took to begin, and the mean of the moments they carried.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from . import contenders
from .contenders import Contender, Settled

#: Jobs a second above which a producer enqueues in bulk, in batches 10 ms apart.
SINGLY = 100

#: Seconds of the same load before what is measured.
WARM_UP = 1.0


def say(**told: Any) -> None:
    """Write a line to the parent."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def heard() -> Any:
    """Wait for a line of the parent's; None if it is gone."""
    line = await anyio.to_thread.run_sync(sys.stdin.readline)
    return json.loads(line) if line else None


async def commands() -> AsyncIterator[dict[str, Any]]:
    """The parent's lines, until it closes the pipe."""
    while (command := await heard()) is not None:
        yield command


class Counted:
    """What handlers report."""

    def __init__(self) -> None:
        self.begun = 0
        self.first: float | None = None
        self.latencies: list[float] = []
        self.moments: list[float] = []

    def handle(self, kind: str, n: int, moment: float) -> None:
        """See `contenders.Handle`. A job whose number is negative is not measured."""
        now = time.time()
        if self.first is None:
            self.first = now
        self.begun += 1
        if kind == "ping" and n >= 0:
            self.latencies.append(now - moment)
            self.moments.append(moment)


async def install(contender: Contender, dsn: str) -> None:
    """Create the schema."""
    await contender.install(dsn)
    say(result={})


async def enqueue(contender: Contender, dsn: str, kind: str, count: int) -> None:
    """One by one, from one task."""
    async with contender.producing(dsn) as producer:
        await producer.one(kind, 0, 0.0)
        wall, cpu = time.perf_counter(), time.process_time()
        for n in range(1, count):
            await producer.one(kind, n, 0.0)
        await done(wall, cpu)


async def bulk(contender: Contender, dsn: str, kind: str, count: int) -> None:
    """As many at a time as is fastest, from one task."""
    async with contender.producing(dsn) as producer:
        # The first opens the connection.
        await producer.many(kind, range(1), 0.0)
        wall, cpu = time.perf_counter(), time.process_time()
        for first in range(1, count, contender.bulk):
            await producer.many(kind, range(first, min(first + contender.bulk, count)), 0.0)
        await done(wall, cpu)


async def done(wall: float, cpu: float) -> None:
    """Answer with the seconds since both were read, while the connections are still open.

    The parent reads what their servers have spent before they end.
    """
    say(result={"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu})
    await heard()


async def pace(contender: Contender, dsn: str, rate: float, seconds: float) -> None:
    """Enqueue pings evenly, those of the warm-up with negative numbers."""
    batch = 1 if rate <= SINGLY else round(rate / 100)
    async with contender.producing(dsn) as producer:
        await _paced(producer, -1, batch, rate, WARM_UP)
        await anyio.sleep(WARM_UP / 2)
        begun = time.time()
        count, last = await _paced(producer, 1, batch, rate, seconds)
        offered = count / (last - begun)
        say(result={"begun": begun, "count": count, "offered": offered})
        await heard()


async def _paced(
    producer: contenders.Producer, sign: int, batch: int, rate: float, seconds: float
) -> tuple[int, float]:
    begun = time.perf_counter()
    count = 0
    while count < rate * seconds:
        await _until(begun + count / rate)
        if batch == 1:
            await producer.one("ping", sign * (count + 1), time.time())
        else:
            ns = [sign * (count + n + 1) for n in range(batch)]
            await producer.many("ping", ns, time.time())
        count += batch
    await _until(begun + count / rate)
    return count, time.time()


async def _until(moment: float) -> None:
    await anyio.sleep(max(moment - time.perf_counter(), 0))


async def work(contender: Contender, dsn: str, tell: float) -> None:
    """Run a worker until told to stop."""
    counted = Counted()
    async with contender.working(dsn, counted.handle) as settled:
        say(working=True)
        async with anyio.create_task_group() as group:
            if tell:
                group.start_soon(_tell, counted, settled, tell)
            await heard()
            group.cancel_scope.cancel()
    moment = statistics.fmean(counted.moments) if counted.moments else None
    latencies = counted.latencies
    say(result={"latencies": latencies, "moment": moment, **_progress(counted, settled)})


async def _tell(counted: Counted, settled: Settled, every: float) -> None:
    told: dict[str, Any] = {}
    while True:
        await anyio.sleep(every)
        now = _progress(counted, settled)
        if now != told:
            told = now
            say(**now)


def _progress(counted: Counted, settled: Settled) -> dict[str, Any]:
    known = None if settled is None else settled()
    return {"begun": counted.begun, "first": counted.first, "settled": known}


async def serve(contender: Contender, dsn: str) -> None:
    """Do what the parent says until it is gone."""
    does: dict[str, Callable[..., Awaitable[None]]] = {
        "install": install,
        "enqueue": enqueue,
        "bulk": bulk,
        "pace": pace,
        "work": work,
    }
    say(ready=os.getpid())
    async for command in commands():
        await does[command.pop("do")](contender, dsn, **command)


def main(name: str, dsn: str) -> None:
    """Run in the event loop that the contender is used with."""
    contender = contenders.load(name)
    options = {"use_uvloop": contender.uvloop} if contender.backend == "asyncio" else {}
    anyio.run(
        partial(serve, contender, dsn), backend=contender.backend, backend_options=options
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

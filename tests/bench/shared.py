"""The measures that every contender takes part in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

import psycopg
from attrs import frozen

from . import contenders
from .contenders import Contender
from .figures import percentile
from .ground import Database, Server
from .parent import Child, ChildFailed

Result: TypeAlias = dict[str, Any]
"""What one measure found in one round: numbers by name, or a list of them."""

#: Seconds in which all of a measure's jobs must be completed.
PATIENCE = 300.0

#: Seconds a worker is given to become quiet after it has started.
QUIET = 1.5

#: Waves of a drain.
WAVES = 10


@frozen
class Measure:
    """Something to measure."""

    title: str
    does: Callable[[Database, str, int], Result]
    """Measures once: in a database, a contender, with so many jobs, or for so many seconds."""
    jobs: int
    quick: int
    """Instead of ``jobs``, for a first impression."""
    once: bool = False
    """Whether it takes so long that one round must do."""
    ours: bool = False
    """Whether it is about this project alone."""

    def count(self, name: str, contender: str, scale: float, *, quick: bool) -> int:
        """How many jobs a contender is given, or how many seconds."""
        shares = contenders.load(contender).share
        share = shares.get(name, shares.get(name.rstrip("0123456789"), 1.0))
        return max(1, round((self.quick if quick else self.jobs) * share * scale))


def child(name: str, dsn: str) -> Child:
    """Start a process for a contender, and wait until it listens."""
    process = Child("tests.bench.child", name, dsn)
    process.hear()
    return process


def enqueue(database: Database, name: str, jobs: int) -> Result:
    """One producer, one transaction each."""
    return _enqueue(database, name, jobs, "enqueue")


def bulk(database: Database, name: str, jobs: int) -> Result:
    """One producer, the fastest bulk call there is."""
    return _enqueue(database, name, jobs, "bulk")


def _enqueue(database: Database, name: str, jobs: int, how: str) -> Result:
    with child(name, database.dsn) as producer:
        database.settle_down()
        counters = database.counters()
        took = producer.do(how, kind="nothing", count=jobs)
        spent = database.spent_since(counters)
        producer.let_go()
    return {
        "jobs": jobs,
        "per_s": (jobs - 1) / took["seconds"],
        "client_us": took["cpu"] / jobs * 1e6,
        "postgres_us": spent.cpu / jobs * 1e6,
        "wal_b": spent.wal / jobs,
    }


def drain(workers: int) -> Callable[[Database, str, int], Result]:
    """Return the measure of a backlog of handlers that do nothing."""

    def measure(database: Database, name: str, jobs: int) -> Result:
        """Drained by so many worker processes."""
        return _drain(database, name, jobs, workers=workers)

    return measure


def pairs(database: Database, name: str, jobs: int) -> Result:
    """Each A is followed by a B that it enqueues; until the last B is completed."""
    return _drain(database, name, jobs, workers=1, kind="stage_a", steps=2)


def _drain(
    database: Database,
    name: str,
    jobs: int,
    *,
    workers: int,
    kind: str = "nothing",
    steps: int = 1,
) -> Result:
    contender = contenders.load(name)
    with child(name, database.dsn) as producer:
        database.settle_down()
        enqueued = database.counters()
        producer.do("bulk", kind=kind, count=jobs)
        producer.let_go()
        wal_of_enqueue = database.spent_since(enqueued).wal
    if contender.analyze:
        database.analyze()
    before = database.wear()
    with ExitStack() as stack:
        children = [stack.enter_context(child(name, database.dsn)) for _ in range(workers)]
        drained = Drain(database, contender, children, jobs * steps)
        drained.run()
        rss = sum(worker.rss() for worker in children)
        for worker in children:
            worker.let_go()
            worker.result()
    after = database.wear()
    done = jobs * steps
    return {
        "jobs": jobs,
        "per_s": jobs / drained.seconds,
        "worker_us": drained.cpu / done * 1e6,
        "postgres_us": drained.spent.cpu / done * 1e6,
        "wal_b": drained.spent.wal / done,
        "wal_all_b": (drained.spent.wal + wal_of_enqueue) / done,
        "commits": (after.commits - before.commits) / done,
        "dead": (after.dead - before.dead) / done,
        "rss_mb": rss / 2**20,
    }


class Drain:
    """Workers that are let loose on a backlog, until all of it is durably completed.

    Its seconds are those from the first handler's first line to the commit of the last
    completion.
    """

    def __init__(
        self, database: Database, contender: Contender, workers: Sequence[Child], jobs: int
    ) -> None:
        self._database = database
        self._contender = contender
        self._workers = workers
        self._jobs = jobs

    def run(self) -> None:
        """Let them loose."""
        since = self._database.now()
        counters = self._database.counters()
        cpu = sum(worker.cpu() for worker in self._workers)
        for worker in self._workers:
            worker.say({"do": "work", "tell": 0.02})
        first, last = self._watch(since)
        self.seconds = last - first
        self.cpu = sum(worker.cpu() for worker in self._workers) - cpu
        self.spent = self._database.spent_since(counters)

    def _watch(self, since: object) -> tuple[float, float]:
        told: list[Result] = [{"begun": 0, "first": None, "settled": None}] * len(self._workers)
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            time.sleep(0.005)
            for number, worker in enumerate(self._workers):
                for line in worker.heard():
                    told[number] = line if "begun" in line else told[number]
            if sum(line["begun"] for line in told) < self._jobs:
                continue
            first = min(line["first"] for line in told if line["first"] is not None)
            if self._contender.completed is None:
                if sum(line["settled"] or 0 for line in told) >= self._jobs:
                    return first, time.time()
                continue
            done, _, last = self._database.completed(self._contender.completed, since)
            if done >= self._jobs:
                return first, last
            time.sleep(0.02)
        begun = sum(line["begun"] for line in told)
        raise ChildFailed(f"{begun:,} of {self._jobs:,} jobs had begun in {PATIENCE:.0f} s")


def pickup(rate: float) -> Callable[[Database, str, int], Result]:
    """Return the measure of what an otherwise idle worker takes to begin a job."""

    def measure(database: Database, name: str, seconds: int) -> Result:
        """From the enqueue call to the handler's first line, and to the durable completion."""
        contender = contenders.load(name)
        with child(name, database.dsn) as worker, child(name, database.dsn) as producer:
            database.settle_down()
            worker.say({"do": "work", "tell": 0})
            worker.hear()
            time.sleep(QUIET)
            counters, cpu, begun = database.counters(), worker.cpu(), time.perf_counter()
            paced = producer.do("pace", rate=rate, seconds=seconds)
            mean = _until_completed(database, contender, paced)
            took = time.perf_counter() - begun
            spent, cpu = database.spent_since(counters), worker.cpu() - cpu
            producer.let_go()
            worker.let_go()
            found = worker.result()
        latencies = sorted(found["latencies"])
        if not latencies:
            raise ChildFailed(f"{name} began none of the pings")
        result = {
            "jobs": len(latencies),
            "offered": paced["offered"],
            "p50_ms": percentile(latencies, 50) * 1000,
            "p95_ms": percentile(latencies, 95) * 1000,
            "p99_ms": percentile(latencies, 99) * 1000,
            "worker_cpu": cpu / took * 100,
            "postgres_cpu": spent.cpu / took * 100,
        }
        if mean is not None:
            result["durable_ms"] = (mean - found["moment"]) * 1000
        return result

    return measure


def _until_completed(
    database: Database, contender: Contender, paced: Mapping[str, Any]
) -> float | None:
    """Wait until everything paced is completed; when that was, on average."""
    if contender.completed is None:
        time.sleep(QUIET)
        return None
    [(since,)] = database.rows("SELECT to_timestamp(%s)", paced["begun"])
    give_up = time.monotonic() + PATIENCE / 10
    while time.monotonic() < give_up:
        time.sleep(0.2)
        done, mean, _ = database.completed(contender.completed, since)
        if done >= paced["count"]:
            # More: some of the warm-up came late, and the mean would mix the two.
            return mean if done == paced["count"] else None
    return None


def idle(database: Database, name: str, seconds: int) -> Result:
    """A worker that has nothing to do."""
    with child(name, database.dsn) as worker:
        database.settle_down()
        worker.say({"do": "work", "tell": 0})
        worker.hear()
        # A session that rests reports what it did at its start only after ten seconds.
        time.sleep(max(2 * QUIET, min(seconds, 12)))
        [(connections,)] = database.rows(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        before, counters, cpu = database.wear(), database.counters(), worker.cpu()
        begun = time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - begun
        cpu, spent, after = worker.cpu() - cpu, database.spent_since(counters), database.wear()
        worker.let_go()
        worker.result()
    return {
        # Sessions report what they have done up to a second late.
        "commits_per_s": max(after.commits - before.commits, 0) / took,
        "wal_b_per_s": spent.wal / took,
        "worker_cpu": cpu / took * 100,
        "postgres_cpu": spent.cpu / took * 100,
        "connections": connections,
    }


def memory(database: Database, name: str, jobs: int) -> Result:
    """What a worker's memory grows by, from a tenth of the jobs to the last."""
    with child(name, database.dsn) as worker, child(name, database.dsn) as producer:
        worker.say({"do": "work", "tell": 0.05})
        worker.hear()
        producer.say({"do": "bulk", "kind": "nothing", "count": jobs})
        early = 0
        while (begun := worker.hear().get("begun", 0)) < jobs:
            if not early and begun >= jobs / 10:
                early = worker.rss()
        late = worker.rss()
        producer.result()
        producer.let_go()
        worker.let_go()
        worker.result()
    return {
        "jobs": jobs,
        "early_mb": early / 2**20,
        "late_mb": late / 2**20,
        "growth_mb": (late - early) / 2**20,
    }


def waves(database: Database, name: str, jobs: int) -> Result:
    """A drain in waves, each with a new worker, while a session holds an old snapshot."""
    contender = contenders.load(name)
    rates = []
    with child(name, database.dsn) as producer, psycopg.connect(database.dsn) as pin:
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT count(*) FROM pg_class")
        for _ in range(WAVES):
            database.settle_down()
            producer.do("bulk", kind="nothing", count=jobs)
            producer.let_go()
            if contender.analyze:
                database.analyze()
            with child(name, database.dsn) as worker:
                drained = Drain(database, contender, [worker], jobs)
                drained.run()
                worker.let_go()
                worker.result()
            rates.append(jobs / drained.seconds)
    return {"jobs": jobs * WAVES, "waves": rates, "last_by_first": rates[-1] / rates[0]}


MEASURES: Mapping[str, Measure] = {
    "enqueue": Measure("Enqueue, one by one", enqueue, 2_000, 400),
    "bulk": Measure("Enqueue, in bulk", bulk, 50_000, 10_000),
    "drain": Measure("Drain, one worker", drain(1), 50_000, 10_000),
    "drain2": Measure("Drain, two workers", drain(2), 50_000, 10_000),
    "drain4": Measure("Drain, four workers", drain(4), 50_000, 10_000, ours=True),
    "drain8": Measure("Drain, eight workers", drain(8), 50_000, 10_000, ours=True),
    "pairs": Measure("A, then B: pairs", pairs, 10_000, 2_000),
    "pickup50": Measure("Pickup at 50 jobs/s", pickup(50), 10, 2),
    "pickup500": Measure("Pickup at 500 jobs/s", pickup(500), 10, 2),
    "pickup2000": Measure("Pickup at 2,000 jobs/s", pickup(2_000), 6, 2),
    "idle": Measure("An idle worker", idle, 20, 4, once=True),
    "memory": Measure("Memory", memory, 200_000, 20_000, once=True),
    "waves": Measure("Waves under an old snapshot", waves, 20_000, 1_000, once=True),
}
"""What is measured of all, by the names that the command line takes."""


def run(server: Server, measure: Measure, name: str, count: int) -> Result:
    """Measure once, in a database of its own."""
    with server.database(name, partial(install, name)) as database:
        return measure.does(database, name, count)


def install(name: str, dsn: str) -> None:
    """Create a contender's schema."""
    with child(name, dsn) as process:
        process.do("install")

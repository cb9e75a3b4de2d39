"""The measures of this project alone: what each is, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attrs import frozen

from .ground import Database, Server, Spent
from .parent import Child
from .shared import Result, install


@frozen
class Own:
    """A measure of `inside`."""

    group: str
    """The table it is in."""
    title: str
    jobs: int
    quick: int
    once: bool = False
    """Whether it takes so long that one round must do."""


STAGING = "Staging: completions a second, with follow-ups that nobody runs"
CLAIMS = "Claims of ten jobs"
CEILINGS = "Ceilings"
OTHERS = "Variants"

MEASURES: Mapping[str, Own] = {
    "staged-0": Own(STAGING, "no follow-up", 10_000, 2_000),
    "staged-1": Own(STAGING, "1 follow-up", 10_000, 2_000),
    "staged-4": Own(STAGING, "4 follow-ups", 5_000, 1_000),
    "staged-16": Own(STAGING, "16 follow-ups", 2_000, 500),
    "unique-1": Own(STAGING, "1 unique follow-up", 10_000, 2_000),
    "unique-4": Own(STAGING, "4 unique follow-ups", 5_000, 1_000),
    "unique-16": Own(STAGING, "16 unique follow-ups", 2_000, 500),
    "poison": Own(
        STAGING, "1 unique, and in each 256 jobs one the database refuses", 10_000, 2_000
    ),
    "held": Own(
        STAGING, "1 unique, and in each 1,000 jobs one whose key is held", 10_000, 2_000
    ),
    "singly-0": Own(STAGING, "no follow-up, one transaction per job", 4_000, 800),
    "singly-1": Own(STAGING, "1 unique follow-up, one transaction per job", 4_000, 800),
    "claim": Own(CLAIMS, "nothing else there", 1, 1),
    "claim-scheduled": Own(CLAIMS, "1,000,000 jobs scheduled", 1_000_000, 20_000, once=True),
    "claim-backlog": Own(CLAIMS, "1,000,000 jobs due", 1_000_000, 20_000, once=True),
    "claim-strangers": Own(
        CLAIMS, "1,000,000 jobs of an unknown kind before them", 1_000_000, 20_000, once=True
    ),
    "worker-alone": Own(CEILINGS, "the worker, without a database", 50_000, 10_000),
    "engine-alone": Own(CEILINGS, "claims and settlements, without handlers", 50_000, 10_000),
    "observed": Own(OTHERS, "drain, an observer that counts", 50_000, 5_000),
    "telemetry": Own(OTHERS, "drain, OpenTelemetry's spans and metrics", 20_000, 3_000),
    "ordered-12": Own(OTHERS, "drain, 12 ordering keys", 10_000, 2_000),
    "ordered-10": Own(OTHERS, "drain, an ordering key for ten jobs", 20_000, 3_000),
    "bulk-unique": Own(OTHERS, "enqueue in bulk, unique", 50_000, 10_000),
}
"""In the order of the tables. With --quick, the millions are fewer."""


def run(server: Server, name: str, engine: str, jobs: int) -> Result:
    """Measure once, in a process and a database of its own."""
    with (
        server.database(engine, partial(install, engine)) as database,
        Child("tests.bench.inside", name, database.dsn, str(jobs)) as process,
    ):
        return _watched(process, database)


def _watched(process: Child, database: Database) -> Result:
    spent = Spent(0, 0)
    database.settle_down()
    counters = database.counters()
    while "result" not in (told := process.hear()):
        if told["mark"] == "begin":
            counters = database.counters()
        else:
            spent = database.spent_since(counters)
        process.say("go on")
    result: Result = told["result"]
    return result | {
        "postgres_us": spent.cpu / result["jobs"] * 1e6,
        "wal_b": spent.wal / result["jobs"],
    }

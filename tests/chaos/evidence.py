"""What a run has left behind, put together: who saw what, and what is in the database."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from attrs import field, frozen

from .ledger import Line


@frozen
class Row:
    """A job, as it is in the database."""

    id: int
    kind: str
    state: str
    attempt: int = 1
    lease: int = 1
    args: Mapping[str, Any] = field(factory=dict)
    metadata: Mapping[str, Any] = field(factory=dict)
    unique_key: bytes | None = None
    unique_states: int | None = None

    @property
    def triggered_by(self) -> int | None:
        """The job whose settlement inserted it."""
        return self.metadata.get("awa:triggered_by")


@frozen
class Snapshot:
    """The jobs, and the rows that say who holds a key, at one moment."""

    rows: Mapping[int, Row]
    claims: Mapping[bytes, int]
    """The jobs that hold keys."""


@frozen
class Run:
    """One run of a handler of a `Resolve`."""

    name: str
    job: int
    n: int
    attempt: int
    lease: int
    process: str
    items: tuple[int, ...]
    """What it found, and staged follow-ups for."""
    begun: float
    ended: float = math.inf
    """When it ended, or its process did."""
    waited: tuple[float, float] | None = None
    """From when to when it waited for a callback, if it did."""


@frozen
class Life:
    """One process of a worker."""

    name: str
    awake: tuple[float, ...] = ()
    """Moments at which its event loop came round."""
    code: int | None = 0
    """What it ended with; None if it never did."""
    said: str = ""
    """What was on its standard error, the end of it."""
    killed: bool = False
    """Whether we ended it."""
    asked: bool = True
    """Whether it was told to stop when it ended."""


@frozen
class Settled:
    """What a worker was told had committed."""

    job: int
    kind: str
    to: str
    inserted: tuple[int, ...]


@frozen
class Struck:
    """A fault."""

    name: str
    did: str
    at: float
    over: float


@frozen
class Evidence:
    """All of it."""

    snapshots: Sequence[Snapshot]
    """In order; the last one after everybody has stopped."""
    enqueued: Mapping[int, int] = field(factory=dict)
    """Acknowledged jobs, and the number of each."""
    settled: Sequence[Settled] = ()
    settled_at: Sequence[tuple[float, int]] = ()
    """When jobs completed, by their workers."""
    answered: Mapping[int, set[str]] = field(factory=dict)
    """Jobs whose callback was answered, acknowledged, and with what."""
    cancelling: frozenset[int] = frozenset()
    """Jobs that somebody tried to cancel."""
    cancelled: frozenset[int] = frozenset()
    """Jobs of which that was acknowledged."""
    runs: Sequence[Run] = ()
    lives: Mapping[str, Life] = field(factory=dict)
    roll: Mapping[int, bool] = field(factory=dict)
    """Each worker's slot, and whether it did a job of its own in the end."""
    undrained: Sequence[str] = ()
    """What still was on its way when all should have been over with."""
    sessions: Sequence[str] = ()
    """Sessions that stayed in a transaction, held a lock, or outlived the workers."""
    faults: Sequence[Struck] = ()

    @property
    def last(self) -> Snapshot:
        """What is in the database in the end."""
        return self.snapshots[-1]


def snapshot(connection: psycopg.Connection[Any]) -> Snapshot:
    """Read everything there is, as it is at one moment."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = connection.execute(
            "SELECT id, kind, state, attempt, run_lease, args, metadata, unique_key, unique_states"
            " FROM awa.list_jobs(NULL, NULL, NULL, NULL, NULL, 10000000)"
        ).fetchall()
        claims = connection.execute(
            "SELECT unique_key, job_id FROM awa.unique_claims"
        ).fetchall()
    rows = [
        Row(job, kind, state, attempt, lease, args, metadata or {}, key, states)
        for job, kind, state, attempt, lease, args, metadata, key, states in found
    ]
    return Snapshot({row.id: row for row in rows}, dict(claims))


def gathered(
    lines: Iterable[Line],
    snapshots: Sequence[Snapshot],
    undrained: Sequence[str],
    sessions: Sequence[str],
) -> Evidence:
    """Put together what everybody has written down."""
    of: dict[str, list[Line]] = {}
    by: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["at"]):
        of.setdefault(line["what"], []).append(line)
        by.setdefault(line["by"], []).append(line)

    def those(what: str) -> list[Line]:
        return of.get(what, [])

    ends = {line["name"]: line for line in those("ended")}
    times = {
        what: {line["run"]: line["at"] for line in those(what)}
        for what in ("end", "waits", "waited")
    }
    answered: dict[int, set[str]] = {}
    for line in those("answered"):
        answered.setdefault(line["job"], set()).add(line["payload"])
    lives = {}
    for name, own in by.items():
        if not name.startswith("worker-"):
            continue
        end = ends.get(name, {})
        lives[name] = Life(
            name,
            tuple(line["at"] for line in own if line["what"] == "awake"),
            end.get("code"),
            end.get("said", ""),
            end.get("killed", False),
            end.get("asked", False),
        )
    return Evidence(
        snapshots,
        enqueued={job: n for line in those("enqueued") for job, n in line["jobs"]},
        settled=[
            Settled(line["job"], line["kind"], line["to"], tuple(line["inserted"]))
            for line in those("settled")
        ],
        settled_at=[
            (line["at"], line["job"]) for line in those("settled") if line["to"] == "completed"
        ],
        answered=answered,
        cancelling=frozenset(line["job"] for line in those("cancelling")),
        cancelled=frozenset(line["job"] for line in those("cancelled") if line["done"]),
        runs=[_run(line, by[line["by"]][-1]["at"], times) for line in those("begin")],
        lives=lives,
        roll={line["slot"]: line["works"] for line in those("roll")},
        undrained=undrained,
        sessions=sessions,
        faults=[
            Struck(line["fault"], line["did"], line["struck"], line["at"])
            for line in those("struck")
        ],
    )


def _run(begin: Line, ends: float, times: Mapping[str, Mapping[str, float]]) -> Run:
    """A run, of a process that ended at some time, with what else it has written down."""
    name = begin["run"]
    ended = times["end"].get(name, ends)
    began_to_wait = times["waits"].get(name)
    return Run(
        name,
        begin["job"],
        begin["n"],
        begin["attempt"],
        begin["lease"],
        begin["by"],
        tuple(begin["items"]),
        begin["at"],
        ended,
        None if began_to_wait is None else (began_to_wait, times["waited"].get(name, ended)),
    )


def shown(row: Row) -> str:
    """A job, for a message."""
    return f"job {row.id} ({row.kind} {json.dumps(row.args)}), {row.state}"

"""What must hold after every run: each a function that returns what contradicts it.

No invariant looks at what a fault did: they hold whatever happens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

from awa_trio._core.job import JobState, holds

from .app import ITEMS
from .evidence import Evidence, Life, Run, Snapshot, shown

Invariant: TypeAlias = Callable[[Evidence], Iterator[str]]

INVARIANTS: list[Invariant] = []


def _invariant(check: Invariant) -> Invariant:
    INVARIANTS.append(check)
    return check


def name_of(invariant: Invariant) -> str:
    """Its name, for people."""
    return invariant.__name__.replace("_", " ")


def violations(evidence: Evidence) -> dict[str, list[str]]:
    """Everything that contradicts an invariant, by its name; empty if all hold."""
    found = {name_of(check): list(check(evidence)) for check in INVARIANTS}
    return {name: contradictions for name, contradictions in found.items() if contradictions}


@_invariant
def nothing_acknowledged_is_lost(evidence: Evidence) -> Iterator[str]:
    """Jobs, completions with what they inserted, answers to callbacks, cancellations."""
    rows = evidence.last.rows
    for job, n in evidence.enqueued.items():
        if job not in rows:
            yield f"job {job} was enqueued as number {n}, and is gone"
        elif rows[job].args.get("n") != n:
            yield f"job {job} was enqueued as number {n}, and is {shown(rows[job])}"
    for settled in evidence.settled:
        row = rows.get(settled.job)
        if row is None:
            yield f"job {settled.job} was {settled.to}, and is gone"
        elif settled.to == "completed" and row.state != settled.to:
            yield f"it had completed: {shown(row)}"
        for job in settled.inserted:
            if job not in rows:
                yield f"follow-up {job} of job {settled.job} was inserted, and is gone"
    payloads = {
        row.triggered_by: row.args["payload"] for row in rows.values() if row.kind == "receipt"
    }
    for job, said in evidence.answered.items():
        if job in payloads and payloads[job] not in said:
            yield f"job {job} was answered {sorted(said)}, and got {payloads[job]!r}"
    for job in evidence.cancelled:
        if job in rows and rows[job].state != "cancelled":
            yield f"it had been cancelled: {shown(rows[job])}"


@_invariant
def every_job_ends_as_it_should(evidence: Evidence) -> Iterator[str]:
    """Whatever was done to its attempts: each is done once, unless it must fail or was cancelled."""
    numbers: Counter[int] = Counter()
    for row in evidence.last.rows.values():
        expected = {"completed"}
        if row.kind == "resolve":
            numbers[row.args["n"]] += 1
            if row.args["script"] == ["raise"]:
                expected = {"failed"}
            if row.id in evidence.cancelling:
                expected |= {"cancelled"}
        if JobState(row.state).terminal and row.state not in expected:
            yield f"not {' or '.join(sorted(expected))}: {shown(row)}"
    for n, times in numbers.items():
        if times > 1:
            yield f"number {n} was enqueued {times} times, though by a key"


@_invariant
def no_attempt_overlaps_another_past_fencing(evidence: Evidence) -> Iterator[str]:
    """An attempt has ended when another one of its job begins; but for what it cannot know.

    A process that stood still does not know that it was fenced, nor a handler that waits for
    a callback that this has timed out. Each is told, and ends, as soon as it goes on.
    """
    by_job: dict[int, list[Run]] = {}
    for run in evidence.runs:
        by_job.setdefault(run.job, []).append(run)
    for runs in by_job.values():
        runs.sort(key=lambda run: run.lease)
        for earlier, later in pairwise(runs):
            if earlier.lease == later.lease:
                yield f"{_told(earlier)} and {_told(later)} have one lease"
            elif earlier.ended > later.begun and not _excused(evidence, earlier, later.begun):
                late = earlier.ended - later.begun
                yield f"{_told(earlier)} went on for {late:.2f} s after {_told(later)} began"


#: Signs of being awake after which who goes on has learned what there is to know, and has
#: ended: those on which a process wakes up, fences itself, and cancels. See `worker.AWAKE`.
ROUNDS = 4

#: Seconds without such a sign that are a standstill.
STANDSTILL = 0.25


def _excused(evidence: Evidence, run: Run, other: float) -> bool:
    """Whether a run could not know, when another began, that it was over."""
    life = evidence.lives[run.process]
    if run.waited is not None and run.waited[0] < other <= run.waited[1]:
        return _rounds(life, run.waited[1], run.ended) <= ROUNDS
    # The sign before the other began is the last one, or one of the last, before a standstill.
    place = bisect_right(life.awake, other)
    for at in range(max(place - ROUNDS, 1), min(place + 1, len(life.awake))):
        stood, woke = life.awake[at - 1], life.awake[at]
        if woke - stood > STANDSTILL and _rounds(life, woke, run.ended) <= ROUNDS:
            return True
    return False


def _rounds(life: Life, since: float, until: float) -> int:
    return bisect_right(life.awake, until) - bisect_right(life.awake, since)


def _told(run: Run) -> str:
    return f"attempt {run.attempt} (lease {run.lease}) of job {run.job} in {run.process}"


@_invariant
def follow_ups_exist_iff_a_completion_that_staged_them_committed(
    evidence: Evidence,
) -> Iterator[str]:
    """Those staged, of the very run that committed; and those registered, for how it ended."""
    rows = evidence.last.rows
    runs = {run.name: run for run in evidence.runs}
    committed: dict[int, str] = {}
    registered: Counter[tuple[str, int]] = Counter()
    items = {
        kind: {row.args["item"] for row in rows.values() if row.kind == kind}
        for kind in ("index", "touch")
    }
    for row in rows.values():
        if row.kind == "receipt":
            if row.triggered_by is None or row.triggered_by in committed:
                yield f"a second receipt, or of nobody: {shown(row)}"
            else:
                committed[row.triggered_by] = row.args["run"]
        if row.kind in ("note", "obituary"):
            registered[row.kind, row.triggered_by or 0] += 1
    for row in rows.values():
        trigger = rows.get(row.triggered_by or 0)
        of_completion = row.kind in ("index", "touch", "receipt", "note")
        if of_completion and (trigger is None or trigger.state != "completed"):
            yield f"nobody who completed has staged it: {shown(row)}"
        if row.kind == "obituary" and (trigger is None or trigger.state != "failed"):
            yield f"nobody who failed has left it: {shown(row)}"
        if row.kind in ("index", "touch", "receipt"):
            run = runs.get(row.metadata.get("run", ""))
            if run is None or run.job != row.triggered_by:
                yield f"no run has staged it: {shown(row)}"
            elif row.kind != "receipt" and row.args["item"] not in run.items:
                yield f"its run has not staged it: {shown(row)}"
            elif committed.get(run.job) != run.name:
                yield f"of a run that did not commit, {run.name}: {shown(row)}"
        if row.kind != "resolve":
            continue
        for kind, state in (("note", "completed"), ("obituary", "failed")):
            if registered[kind, row.id] != (row.state == state):
                yield f"{registered[kind, row.id]} of {kind}: {shown(row)}"
        if row.state == "completed":
            run = runs.get(committed.get(row.id, ""))
            if run is None:
                yield f"it completed without its receipt: {shown(row)}"
                continue
            if run.lease != row.lease:
                yield f"lease {row.lease} completed it, {run.name} had {run.lease}: {shown(row)}"
            for kind, found in items.items():
                if missing := set(run.items) - found:
                    yield f"it staged {kind} {sorted(missing)}, which do not exist: {shown(row)}"


@_invariant
def at_most_one_job_holds_a_key(evidence: Evidence) -> Iterator[str]:
    """In its states, at any moment that was looked at."""
    for moment in evidence.snapshots:
        held: dict[bytes, int] = {}
        for key, job in _held(moment):
            if key in held:
                other = moment.rows[held[key]]
                yield f"{shown(moment.rows[job])}, and {shown(other)}, hold one key"
            held[key] = job
    indexed = Counter(
        row.args["item"] for row in evidence.last.rows.values() if row.kind == "index"
    )
    for item, times in indexed.items():
        if times > 1 or not 0 <= item < ITEMS:
            yield f"item {item} was indexed {times} times"


@_invariant
def every_claim_of_a_job_is_settled(evidence: Evidence) -> Iterator[str]:
    """The queue drains: what was claimed is over with, what was lost is claimed again."""
    yield from evidence.undrained
    for row in evidence.last.rows.values():
        if not JobState(row.state).terminal:
            yield f"left behind: {shown(row)}"


@_invariant
def unique_claims_match_rows(evidence: Evidence) -> Iterator[str]:
    """Who holds a key is in the table of keys, and nobody else."""
    for moment in evidence.snapshots:
        held = dict(_held(moment))
        for key in moment.claims.keys() | held.keys():
            job, claim = held.get(key), moment.claims.get(key)
            if job != claim:
                told = "nobody" if job is None else shown(moment.rows[job])
                yield f"key {key.hex()} is held by {told}; the table says job {claim}"


def _held(moment: Snapshot) -> Iterator[tuple[bytes, int]]:
    for row in moment.rows.values():
        if row.unique_key is not None and holds(row.unique_states, JobState(row.state)):
            yield row.unique_key, row.id


@_invariant
def no_session_is_left_in_a_transaction(evidence: Evidence) -> Iterator[str]:
    """Nor with a lock, nor at all once the workers have stopped."""
    yield from evidence.sessions


@_invariant
def every_worker_recovered_or_exited_loudly(evidence: Evidence) -> Iterator[str]:
    """In the end each works; one that ended by itself said why, and with an exit code."""
    for slot, works in evidence.roll.items():
        if not works:
            yield f"worker {slot} does nothing any more"
    for life in evidence.lives.values():
        if life.code is None:
            yield f"{life.name} does not stop"
        elif life.asked and not life.killed and life.code:
            yield f"{life.name} was told to stop, and failed: {life.said[-300:]}"
        elif not life.asked and not life.killed and not (life.code and life.said.strip()):
            yield f"{life.name} ended by itself with {life.code}, and said: {life.said[-300:]!r}"

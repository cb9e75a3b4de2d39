"""What a run was like, in a few lines; pure."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .evidence import Evidence, Struck
from .faults import FAULTS
from .invariants import INVARIANTS, violations
from .ledger import Line
from .run import Outcome


def command(outcome: Outcome) -> str:
    """What repeats a run."""
    plan = outcome.plan
    faults = ",".join(fault.name for fault in plan.faults)
    length = (
        f"--minutes {plan.seconds / 60:g}" if plan.rounds is None else f"--rounds {plan.rounds}"
    )
    return (
        f"python -m tests.chaos --seed {plan.seed} --engine {plan.engine} {length}"
        f" --workers {plan.workers} --producers {plan.producers} --rate {plan.rate:g}"
        f" --connections {plan.most_connections}{' --trace' * plan.trace} --faults '{faults}'"
        + (f" --plant '{plan.planted}'" if plan.planted else "")
    )


def recovery(evidence: Evidence, struck: Struck) -> float | None:
    """Seconds that passed without a completed job: the longest time, from when a fault struck on.

    The time that it was over in counts to its end: until the next job completed. None if
    none did any more.
    """
    moments = [at for at, _ in evidence.settled_at]
    first, next_ = bisect_right(moments, struck.at), bisect_right(moments, struck.over)
    if next_ == len(moments):
        return None
    seen = [struck.at, *moments[first : next_ + 1]]
    return max(then - before for before, then in pairwise(seen))


def lost_time(evidence: Evidence, struck: Struck) -> float | None:
    """Seconds from a fault's beginning until the last job that ran then had completed.

    None if none of them is known to have completed.
    """
    completed = {job: at for at, job in evidence.settled_at}
    times = [
        completed[run.job] - struck.at
        for run in evidence.runs
        if run.begun < struck.at < run.ended and run.job in completed
    ]
    return max(times, default=None)


def figures(outcome: Outcome) -> dict[str, Any]:
    """The run in numbers, as JSON takes them."""
    evidence = outcome.evidence
    faults: dict[str, dict[str, Any]] = {}
    for struck in evidence.faults:
        kind = faults.setdefault(
            struck.name, {"struck": 0, "survived": 0, "recovery": [], "lost": [], "lasted": []}
        )
        took, lost = recovery(evidence, struck), lost_time(evidence, struck)
        kind["struck"] += 1
        kind["survived"] += took is not None
        kind["lasted"].append(struck.over - struck.at)
        kind["recovery"] += [] if took is None else [took]
        kind["lost"] += [] if lost is None else [lost]
    states: dict[str, int] = {}
    for row in evidence.last.rows.values():
        states[row.state] = states.get(row.state, 0) + 1
    return {
        "seed": outcome.plan.seed,
        "engine": outcome.plan.engine,
        "seconds": outcome.seconds,
        "jobs": len(evidence.last.rows),
        "states": states,
        "acknowledged": len(evidence.enqueued),
        "runs": len(evidence.runs),
        "rescued": sum(row.attempt > 1 for row in evidence.last.rows.values()),
        "answered": len(evidence.answered),
        "cancelled": len(evidence.cancelled),
        "lives": len(evidence.lives),
        "loud": sum(not life.killed and not life.asked for life in evidence.lives.values()),
        "samples": outcome.samples,
        "faults": faults,
        "trace": outcome.trace,
        "violations": {**violations(evidence), **_misfit(outcome.trace)},
    }


def _misfit(trace: Line | None) -> dict[str, list[str]]:
    if trace is None or trace["fits"]:
        return {}
    return {"what was recorded is a behaviour of the models": [trace["said"]]}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The figures of a run, for people."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(found["states"].items()))
    yield (
        f"seed {found['seed']}, {found['engine']}, {found['seconds']:.0f} s:"
        f" {found['jobs']} jobs ({states}), {found['acknowledged']} of them enqueued and"
        f" acknowledged; {found['runs']} runs of handlers that stage; {found['answered']}"
        f" callbacks answered, {found['cancelled']} jobs cancelled"
    )
    yield (
        f"{found['lives']} processes of workers, {found['loud']} of which ended by themselves;"
        f" the database was looked at {found['samples']} times meanwhile"
    )
    if found["trace"]:
        yield f"{found['trace']['events']} events recorded: {found['trace']['said']}"
    yield from table(found["faults"])
    for name, contradictions in found["violations"].items():
        yield f"VIOLATED: {name} ({len(contradictions)})"
        yield from (f"    {contradiction}" for contradiction in contradictions[:10])
    if not found["violations"]:
        yield f"all {len(INVARIANTS)} invariants hold"


HEADS = (
    "fault", "struck", "survived", "lasted, s", "no job completed for, s",
    "all that ran had completed after, s",
)  # fmt: skip


def table(faults: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Faults by kind: the median and the longest time."""
    rows = [HEADS]
    rows += [
        (
            name,
            str(kind["struck"]),
            str(kind["survived"]),
            *(_spread(kind[times]) for times in ("lasted", "recovery", "lost")),
        )  # type: ignore[misc]
        for name, kind in faults.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def _spread(times: Sequence[float]) -> str:
    if not times:
        return "-"
    return f"{statistics.median(times):.2f} ({max(times):.2f})"


def together(all_found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The faults of several runs, by kind."""
    faults: dict[str, dict[str, Any]] = {}
    for found in all_found:
        for name, kind in found["faults"].items():
            sum_of = faults.setdefault(
                name, {key: type(value)() for key, value in kind.items()}
            )
            for key, value in kind.items():
                sum_of[key] += value
    return faults


def markdown(all_found: Sequence[Mapping[str, Any]]) -> str:
    """The table of the page: each kind of fault, over all runs."""
    rows = ["| Fault | Struck | Survived | Without a completed job, s |", "|---|--:|--:|--:|"]
    for name, kind in sorted(together(all_found).items()):
        what = (FAULTS[name].act.__doc__ or "").strip().rstrip(".")
        times = _spread(kind["recovery"])
        rows.append(f"| **{name}**: {what} | {kind['struck']} | {kind['survived']} | {times} |")
    jobs = sum(found["jobs"] for found in all_found)
    violated = sum(bool(found["violations"]) for found in all_found)
    engines = " and ".join(sorted({found["engine"] for found in all_found}))
    seeds = ", ".join(map(str, sorted({found["seed"] for found in all_found})))
    told = (
        f"{len(all_found)} runs on {engines}, {jobs:,} jobs, seeds {seeds}; an invariant was"
        f" violated in {violated or 'none'} of them."
    )
    return "\n".join((told, "", *rows))

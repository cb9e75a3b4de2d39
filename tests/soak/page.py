"""What is shown of a soak: a table, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bench import plots
from ..bench.figures import short
from ..bench.tables import Table
from .verdict import Bound, Finding, Sample

#: What is drawn, each relative to its own first minutes.
DRAWN = ("memory", "fds", "size", "cpu_per_job", "p50_relative")


def table(title: str, found: Sequence[Finding]) -> Table:
    """Write what was found, a line for each thing that must be flat."""
    header = (
        "what",
        "first third",
        "last third",
        "most",
        "slope, an hour",
        "rise",
        "allowed",
        "",
    )
    return Table(title, header, tuple(map(_row, found)))


def _row(finding: Finding) -> tuple[str, ...]:
    bound = finding.bound

    def said(value: float) -> str:
        return short(value / bound.scale)

    unit = f", {bound.unit}" if bound.unit else ""
    return (
        bound.title + unit,
        said(finding.first),
        said(finding.last),
        said(finding.most),
        said(finding.per_hour),
        said(finding.rise),
        said(finding.allowed),
        "GROWS" if finding.grows else "flat" if finding.bound.judged else "",
    )


def plot(title: str, samples: Sequence[Sample], bounds: Sequence[Bound]) -> str:
    """Draw some of it over the run, as SVG; 1 is its middle value.

    A point is the mean of a sixtieth of the run: what a reader looks for is whether it rises.
    """
    size = -(-len(samples) // 60)
    series: dict[str, Sequence[float]] = {}
    for bound in bounds:
        if bound.name not in DRAWN:
            continue
        points = []
        for start in range(0, len(samples), size):
            some = [v for s in samples[start : start + size] if (v := s.get(bound.name))]
            if some:
                points.append(sum(some) / len(some))
        middle = sorted(points)[len(points) // 2] if points else 0
        if middle:
            series[bound.title] = [point / middle for point in points]
    return plots.lines(title, series, below="sixtieth of the run")


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """Say in words what was run, and what was done."""
    done = ", ".join(f"{count:,} {what}" for what, count in facts["done"].items())
    worker = facts["worker"]
    settled = ", ".join(f"{count:,} {to}" for to, count in sorted(worker["settled"].items()))
    return [
        (
            f"{facts['minutes']:g} minutes at {facts['rate']:g} jobs a second and what follows from"
            f" them, on the {facts['engine']} engine, seed {facts['seed']}; PostgreSQL"
            f" {facts['server_version']}, Python {facts['python']}."
        ),
        f"Done from outside: {done}.",
        (
            f"Settled by the worker: {settled}; {worker['stale']:,} came too late, "
            f"{worker['given up']:,} were given up; it registered {worker['lives']} time"
            f"{'s' if worker['lives'] != 1 else ''}."
        ),
        f"The worker used {facts['cpu']:.0%} of a core, PostgreSQL {facts['server_cpu']:.0%}.",
    ]

"""Whether recorded events are a behaviour of the models; the first that is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

from ..model import tlc
from .history import History
from .recording import Event
from .staged import Step, Trace, traces
from .witness import Staged

CONFIG = """
INIT TraceInit
NEXT TraceNext
CONSTANTS
    Jobs = {}  Keys = {}  MaxLease = 1000000  MaxStaged = 1000  Nobody = Nobody
    Insertion = "with"  GuardLease = TRUE  Borrow = TRUE  Carried = TRUE  Dedup = TRUE
INVARIANTS Traceable OnePerKey Covered Current
"""


@frozen
class Verdict:
    """What came of a check."""

    traces: int
    steps: int
    distinct: int
    """States of the model that were visited."""
    misfit: Step | None
    """The first step of a trace that the model cannot make; None if all fit."""
    violated: str | None
    """The invariant that does not hold after it; "Deadlock" if no step of the model fits."""

    def __str__(self) -> str:
        if self.misfit is None:
            return f"{self.steps} steps in {self.traces} traces fit the model"
        events = "\n  ".join(map(str, self.misfit.transaction.events))
        return f"the model cannot make this step ({self.violated}): {self.misfit}\n  {events}"


def check(
    events: Iterable[Event], seen: Staged | None = None, *, seconds: float = 300
) -> Verdict:
    """Replay events against the model.

    Args:
      events: all of a database, from its first job on, as `recorded` or `load` returns them.
      seen: what witnesses saw being staged, as `staged` returns it.
      seconds: how long TLC may take.

    Raises:
      NoTLC: TLC cannot be run here.
    """
    found = traces(History().apply(events), seen)
    return replay(found, seconds=seconds)


def replay(found: Sequence[Trace], *, seconds: float = 300) -> Verdict:
    """Replay traces against the model."""
    steps = sum(len(trace.steps) for trace in found)
    if not steps:
        return Verdict(0, 0, 0, None, None)
    with TemporaryDirectory(prefix="awa-trace-") as folder:
        data = Path(folder) / "TraceData.tla"
        data.write_text(
            "---- MODULE TraceData ----\nEXTENDS Naturals, Sequences\nTraces == <<\n"
            + ",\n".join(trace.text() for trace in found)
            + ">>\n====\n"
        )
        done = tlc.check(
            tlc.MODELS / "TraceStagedFollowUps.tla",
            CONFIG,
            beside=[data],
            deadlock=True,
            seconds=seconds,
        )
    if done.code == tlc.OK:
        return Verdict(len(found), steps, done.distinct, None, None)
    if done.code not in (tlc.DEADLOCK, tlc.SAFETY):
        raise RuntimeError(done.output)
    # A violated invariant shows in the state after the step.
    at = int(done.value("at")) - (1 if done.code == tlc.DEADLOCK else 2)
    misfit = found[int(done.value("trace")) - 1].steps[at]
    return Verdict(len(found), steps, done.distinct, misfit, done.violated)

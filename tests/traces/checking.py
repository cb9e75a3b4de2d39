"""Whether recorded events are a behaviour of the models; the first that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from attrs import evolve, frozen

from ..model import tlc
from . import staged, workers
from .history import History, Transaction
from .recording import Event
from .staged import Step
from .witness import Staged


class Trace(Protocol):
    """Steps that a model is to make one after another."""

    @property
    def steps(self) -> Sequence[Step]:
        """The steps."""

    def text(self) -> str:
        """Return it as a TLA+ record."""


@frozen
class Replay:
    """A model that a history is replayed against."""

    module: str
    """Its module of docs/model for that."""
    config: str
    """Its constants and invariants."""
    traces: Callable[[Iterable[Transaction], Staged | None], Sequence[Trace]]


STAGED = Replay(
    "TraceStagedFollowUps",
    """
    Jobs = {}  Keys = {}  MaxLease = 1000000  MaxStaged = 1000  Nobody = Nobody
    Insertion = "with"  GuardLease = TRUE  Borrow = TRUE  Carried = TRUE  Dedup = TRUE
INVARIANTS Traceable OnePerKey Covered Current
""",
    staged.traces,
)
WORKERS = Replay(
    "TraceWorkers",
    """
    Jobs = {}  Workers = {}  MaxLease = 1000000  Nobody = Nobody  Poison = {}  Endings = {}
    FenceGuard = TRUE  FenceLock = TRUE  LeaseGuard = TRUE  PlanGuard = TRUE  Alone = TRUE
    ClaimLock = TRUE
INVARIANTS Silent Exclusive Together Current Recoverable
""",
    lambda history, _: workers.traces(history),
)
MODELS = (STAGED, WORKERS)


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
            return f"{self.steps} steps in {self.traces} traces fit the models"
        events = "\n  ".join(map(str, self.misfit.transaction.events))
        return f"a model cannot make this step ({self.violated}): {self.misfit}\n  {events}"


def check(
    events: Iterable[Event],
    seen: Staged | None = None,
    *,
    models: Sequence[Replay] = MODELS,
    seconds: float = 300,
) -> Verdict:
    """Replay events against the models, one after another, until one cannot make a step.

    Args:
      events: all of a database, from its first job on, as `recorded` or `load` returns them.
      seen: what witnesses saw being staged, as `staged` returns it.
      models: which.
      seconds: how long TLC may take for each.

    Raises:
      NoTLC: TLC cannot be run here.
    """
    history = list(History().apply(events))
    all_found = Verdict(0, 0, 0, None, None)
    for model in models:
        found = replay(model, model.traces(history, seen), seconds=seconds)
        all_found = evolve(
            found,
            traces=all_found.traces + found.traces,
            steps=all_found.steps + found.steps,
            distinct=all_found.distinct + found.distinct,
        )
        if found.misfit is not None:
            break
    return all_found


def replay(model: Replay, found: Sequence[Trace], *, seconds: float = 300) -> Verdict:
    """Replay traces against one model."""
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
            tlc.MODELS / f"{model.module}.tla",
            f"INIT TraceInit\nNEXT TraceNext\nCONSTANTS{model.config}",
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

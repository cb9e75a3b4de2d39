"""A run recorded by `tests.traces`, and replayed against the model."""

from __future__ import annotations

from pathlib import Path

import awa_trio as awa

from .. import traces
from ..model import tlc
from .ledger import Line

#: Beside the ledgers, if the run is recorded: what witnesses in the workers write.
WITNESSED = "witnessed"


def impossible() -> str | None:
    """Why nothing can be replayed on this machine; None if it can."""
    try:
        tlc.java()
        tlc.jar()
    except tlc.NoTLC as error:
        return str(error)
    return None


def witnesses(folder: Path) -> list[awa.Observer]:
    """Observers for a worker whose ledger is in a folder."""
    path = folder / WITNESSED
    return [traces.Witness(path)] if path.exists() else []


def begin(dsn: str, folder: Path) -> None:
    """Record from now on, before the first job."""
    traces.install(dsn)
    folder.joinpath(WITNESSED).touch()


def verdict(dsn: str, folder: Path) -> Line:
    """Replay what was recorded; what came of that, and whether it is a behaviour of the model.

    Raises:
      NoTLC: it cannot be replayed on this machine.
    """
    events = traces.recorded(dsn)
    traces.save(events, folder / "trace")
    found = traces.check(events, traces.staged(folder / WITNESSED))
    return {"events": len(events), "fits": found.misfit is None, "said": str(found)}

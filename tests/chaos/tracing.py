"""A run recorded by `tests.traces`, and replayed against the model."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import awa_trio as awa

from .ledger import Line

PACKAGE = "tests.traces"

#: Beside the ledgers, if the run is recorded: what witnesses in the workers write.
WITNESSED = "witnessed"


def recorder() -> Any:
    """What records and replays; None if this project has none."""
    return import_module(PACKAGE) if find_spec(PACKAGE) else None


def witnesses(folder: Path) -> list[awa.Observer]:
    """Observers for a worker whose ledger is in a folder."""
    path = folder / WITNESSED
    return [recorder().Witness(path)] if path.exists() else []


def begin(dsn: str, folder: Path) -> None:
    """Record from now on, before the first job."""
    recorder().install(dsn)
    folder.joinpath(WITNESSED).touch()


def verdict(dsn: str, folder: Path) -> Line:
    """Replay what was recorded; what came of that, and whether it is a behaviour of the model.

    Raises:
      tests.model.tlc.NoTLC: it cannot be replayed on this machine.
    """
    traces = recorder()
    events = traces.recorded(dsn)
    traces.save(events, folder / "trace")
    found = traces.check(events, traces.staged(folder / WITNESSED))
    return {"events": len(events), "fits": found.misfit is None, "said": str(found)}

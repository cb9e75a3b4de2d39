"""Real runs, replayed against the models of docs/model.

Triggers in the test's database write down what is committed, in the transactions that commit
it: so it does not matter how many processes work there, or which of them are killed.

    traces.install(dsn)                 # after the migration, before the first job
    ...                                 # any number of workers, in any processes
    events = traces.recorded(dsn)
    traces.save(events, path)           # a line of JSON each
    verdict = traces.check(traces.load(path))
    assert verdict.misfit is None, str(verdict)

What should have been inserted, only the handlers know: workers whose observers include a
`Witness(path)` say what was staged, and ``check(events, staged(path))`` compares.

``python -m tests.traces FILE`` does the last two for a file.
"""

from __future__ import annotations

from .checking import STAGED, WORKERS, Verdict, check
from .recording import Event, install, load, recorded, save
from .witness import Witness, staged

__all__ = [
    "STAGED",
    "WORKERS",
    "Event",
    "Verdict",
    "Witness",
    "check",
    "install",
    "load",
    "recorded",
    "save",
    "staged",
]

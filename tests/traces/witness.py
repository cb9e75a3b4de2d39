"""What handlers staged, seen by an observer in the process that runs them.

The database knows what was inserted. What should have been, only whoever staged it knows.
"""

from __future__ import annotations

import json
from pathlib import Path

import awa_trio as awa
from awa_trio import events


class Witness(awa.Observer):
    """Writes a line into a file for each attempt that completed: what it had staged.

    Args:
      path: the file, which any number of processes may append to. A line is written at once,
          before the settlement is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def observe(self, event: events.Event) -> None:
        """See `awa_trio.Observer`."""
        if isinstance(event, events.Ended) and event.ending is events.Ending.COMPLETED:
            what = [event.worker_id, event.job.id, event.job.attempt, list(event.staged)]
            with self._path.open("a") as file:
                file.write(json.dumps(what) + "\n")


Staged = dict[tuple[int, int, int], list[list[str]]]
"""By worker, job and attempt, the kinds that were staged; once per attempt of that number, of
which there may be several: a hand-back leaves it unspent."""


def staged(path: Path) -> Staged:
    """Read what witnesses wrote."""
    found: Staged = {}
    for line in path.read_text().splitlines():
        worker, job, attempt, kinds = json.loads(line)
        found.setdefault((worker, job, attempt), []).append(kinds)
    return found

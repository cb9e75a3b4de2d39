"""The collector of cyclic garbage, in a process that does nothing but run jobs."""

from __future__ import annotations

import gc

#: Objects made and not freed before the collector looks for cycles among them. An attempt
#: makes some thirty and leaves no cycle; at Python's own number, 700, a worker of short jobs
#: spends a fifth of its time in looking.
OBJECTS = 10_000

_PYTHONS_OWN = gc.get_threshold()


def spare_the_collector() -> None:
    """Let it look less often, and never again at what is there now, which stays.

    An app whose module has set it up, or turned it off, has decided for itself.
    """
    if gc.isenabled() and gc.get_threshold() == _PYTHONS_OWN:
        gc.collect()
        gc.freeze()
        gc.set_threshold(OBJECTS, *_PYTHONS_OWN[1:])

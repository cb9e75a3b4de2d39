"""Random lives of a queue: the model and both engines agree at every step."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import awa_trio as awa

from .machine import Queue, app
from .portal import Portal
from .sides import open_sides

#: Each says how to run it again: the steps, and a blob for `hypothesis.reproduce_failure`.
COMMON = settings(
    deadline=None,
    derandomize=True,
    print_blob=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


#: What must have happened, or these lives were too dull to show anything.
EXCITING = {
    *awa.JobState,
    "CallbackNotFound",
    "Fenced",
    "InvalidTransition",
    "JobNotFound",
    "QueueDraining",
}


def live(canonical: str, segmented: str, how: settings) -> Counter[str]:
    met: Counter[str] = Counter()
    with Portal() as portal:
        sides = portal(open_sides, portal.stack, app, canonical, segmented)
        machine = type("Life", (Queue,), {"portal": portal, "sides": sides, "met": met})
        run_state_machine_as_test(machine, settings=how)
    print(dict(met))
    assert not EXCITING - met.keys()
    return met


def test_the_engines_do_what_the_model_does(canonical: str, segmented: str) -> None:
    # Not made smaller: that takes minutes, and can be had by its blob, or with -m slow.
    found_first = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
    how = settings(COMMON, max_examples=40, stateful_step_count=40, phases=found_first)
    live(canonical, segmented, how)


@pytest.mark.slow
def test_the_engines_do_what_the_model_does_for_long(canonical: str, segmented: str) -> None:
    how = settings(COMMON, derandomize=False, max_examples=400, stateful_step_count=60)
    met = live(canonical, segmented, how)
    assert met["UniqueConflict"]
    assert met["CallbackAlreadyResolved"]

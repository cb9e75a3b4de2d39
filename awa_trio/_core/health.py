"""Whether a worker is alive, and ready for jobs: decided from what is known of it.

Alive is what a restart can mend; ready is what it can do at this moment. A database that
does not answer makes a worker not ready, and no restart of the worker would help. Source:
ADR 0036.
"""

from __future__ import annotations

import attrs

from .._times import in_words

#: Seconds that a heartbeat may take to come round whatever the lease: opening a connection
#: to a server that went silent takes ten, for each address it has, and then comes a pause.
COMES_ROUND = 60.0

#: Heartbeats without an answer after which the database counts as silent.
UNANSWERED = 3


@attrs.frozen
class Vitals:
    """What is known of a worker at one moment."""

    worker_id: int | None
    """None between two lives."""
    stopping: bool
    ended: bool
    came_round: float
    """Seconds since its heartbeat last came round."""
    answered: float
    """Seconds since it sent what the database last answered."""
    listens: bool
    """Whether it is to hear of new jobs."""
    hears: bool
    """Whether it does."""


@attrs.frozen
class WorkerHealth:
    """How a worker is, at one moment; `Worker.health` tells it."""

    live: bool
    """Whether its heartbeat comes round, and it has not ended. False is worth a restart."""
    ready: bool
    """Whether it would run a job that came now."""
    problems: tuple[str, ...]
    """Why it is not ready, or not live, each in a few words; empty if it is both."""
    worker_id: int | None
    """Its ID in the database; None while it has none."""
    stopping: bool
    """Whether it has been told to stop, and claims no more."""
    ended: bool
    """Whether it has ended."""
    listening: bool
    """Whether it hears of new jobs; else it polls."""
    answered: float
    """Seconds since it sent what the database last answered: a beat, or its registration."""


def judge(
    vitals: Vitals, *, lease: float, heartbeat: float, answer_within: float | None
) -> WorkerHealth:
    """Say how a worker is.

    Args:
      vitals: what is known of it.
      lease: seconds of its lease.
      heartbeat: seconds between its beats.
      answer_within: seconds in which the database must have answered; None for three beats.
    """
    silence = UNANSWERED * heartbeat if answer_within is None else answer_within
    fatal, passing = [], []
    if vitals.ended:
        fatal.append("the worker has ended")
    elif vitals.came_round > max(lease, COMES_ROUND):
        fatal.append(f"the heartbeat has not come round for {in_words(vitals.came_round)}")
    if vitals.stopping and not vitals.ended:
        passing.append("the worker is stopping")
    if vitals.worker_id is None and not vitals.ended:
        passing.append("the worker was presumed dead, and has not registered again")
    elif vitals.answered > silence and not vitals.ended:
        passing.append(f"the database has not answered for {in_words(vitals.answered)}")
    return WorkerHealth(
        live=not fatal,
        ready=not fatal and not passing,
        problems=(*fatal, *passing),
        worker_id=vitals.worker_id,
        stopping=vitals.stopping,
        ended=vitals.ended,
        listening=vitals.listens and vitals.hears,
        answered=vitals.answered,
    )

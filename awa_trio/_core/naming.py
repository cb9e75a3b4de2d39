"""How messages name what they are about: by what may be known of it, never by what is in it."""

from __future__ import annotations

from typing import Any, Protocol


class Named(Protocol):
    """What a name is made of; ``queue`` too, where it was read."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...


def name_of_function(function: object) -> str:
    """Return how messages name a function, or whatever was given instead of one.

    A partial, or an object with ``__call__``, has no name of its own, and its repr shows
    what is in it.
    """
    if not callable(function):
        return repr(function)
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    return name


def queue_of(job: Named) -> str | None:
    """Return its queue; None where only the mark of an attempt was read."""
    return getattr(job, "queue", None)


def describe(job: Named, worker_id: int | None = None) -> str:
    """Return how messages name a job and its attempt."""
    queue = queue_of(job)
    where = "" if queue is None else f", queue {queue}"
    by = "" if worker_id is None else f", worker {worker_id}"
    return f"job {job.id} ({job.kind}, attempt {job.attempt} of {job.max_attempts}{where}{by})"


def about(job: Named, worker_id: int | None = None) -> dict[str, Any]:
    """Return what a log record has beside its message: the same attributes everywhere."""
    return {
        "job_id": job.id,
        "kind": job.kind,
        "queue": queue_of(job),
        "attempt": job.attempt,
        "worker_id": worker_id,
    }

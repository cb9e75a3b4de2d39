"""What is answered to a request: decided from the request and the worker's health."""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs

from .. import WorkerHealth

#: What each path asks of a worker.
PROBES: dict[str, Callable[[WorkerHealth], bool]] = {
    "/healthz": lambda health: health.live,
    "/readyz": lambda health: health.ready,
}


@attrs.frozen
class Answer:
    """A response."""

    status: int
    body: bytes
    allow: str | None = None
    """The methods that would have been taken."""


def answer(method: str, target: str, health: WorkerHealth) -> Answer:
    """Answer a request.

    Args:
      method: of the request; HEAD is answered as GET, and whoever sends it leaves out the body.
      target: of the request; a query is ignored.
      health: of the worker, at this moment.
    """
    asked = PROBES.get(target.partition("?")[0])
    if asked is None:
        return _said(404, error=f"ask for one of {', '.join(PROBES)}")
    if method not in ("GET", "HEAD"):
        return attrs.evolve(_said(405, error="ask with GET or HEAD"), allow="GET, HEAD")
    well = asked(health)
    return _said(
        200 if well else 503,
        ok=well,
        live=health.live,
        ready=health.ready,
        problems=health.problems,
        worker=health.worker_id,
        stopping=health.stopping,
        listening=health.listening,
        database_answered_seconds_ago=round(health.answered, 3),
    )


def refused(status: int) -> Answer:
    """Answer what was no request."""
    return _said(status, error="this is no HTTP request that a probe would send")


def _said(status: int, **body: object) -> Answer:
    return Answer(status, json.dumps(body).encode() + b"\n")

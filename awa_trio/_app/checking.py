"""Whether an application would work, and with a database: asked before it is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._core.arguments import check_type
from .._core.checking import Finding, check_registry, strangers
from .app import App, registry_of, worker_queues
from .calls import public_errors
from .client import Client
from .workers import MOST_WORKERS


async def check(
    app: App, client: Client | None = None, /, *, resources: Mapping[Any, object] | None = None
) -> list[Finding]:
    """Say what is wrong with an application; nothing is opened, run or changed.

    That its resources fit together, that what is registered can fire; and, given a client,
    whether jobs wait in its queues that neither it nor a live worker would run. That the
    database can be reached and has the right schema is what `connect` has made sure of.

    Args:
      app: the application.
      client: of the database that it is to work with.
      resources: instances that stand in for its resources, as for `run_worker`.

    Returns:
      What was found; none if all is well.

    Raises:
      TypeError: a value is of another type.
      DatabaseUnavailable: PostgreSQL could not be reached.
    """
    check_type("app", app, App, "an")
    found = check_registry(registry_of(app), resources)
    if client is None:
        return found
    check_type("client", client, Client)
    queues = list(worker_queues(app, None))
    store = client._backend.store
    with public_errors("looking at what waits"):
        waiting = await store.waiting_kinds(queues)
        workers = await store.workers(MOST_WORKERS)
    known = {queue: set(app.kinds) for queue in queues}
    for worker in workers:
        if worker.alive:
            for queue in known.keys() & (worker.queues or ()):
                known[queue].update(worker.kinds or ())
    by_queue: dict[str, set[str]] = {}
    for queue, kind in waiting:
        by_queue.setdefault(queue, set()).add(kind)
    return found + strangers(by_queue, known)

"""Start a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import trio

from .._core.arguments import check_seconds, check_string, check_type, check_whole
from .._core.errors import ConfigurationError, DatabaseUnavailable
from .._core.observer import Observer
from .._core.settings import MAX_WAITING, QueueSettings, Retention, Timings
from .._runtime.observing import observers_or_none
from .._runtime.worker import Worker
from .._seam.errors import StoreError
from .app import App, declared_queues, registry_of, worker_queues
from .client import Client
from .connections import require_trio

#: Characters of a worker's name: the same as of any other.
MAX_WORKER_NAME = 200

#: Attempts one worker may run at once, in all.
MAX_WORKERS = 1_000_000


async def run_worker(
    app: App,
    client: Client,
    *,
    queues: Mapping[str, QueueSettings | int | None] | Iterable[str] | None = None,
    grace: float = 25.0,
    timings: Timings | None = None,
    retention: Retention | None = None,
    name: str | None = None,
    listen: bool = True,
    max_waiting: int = MAX_WAITING,
    max_workers: int | None = None,
    observers: Iterable[Observer] = (),
    random: Random | None = None,
    resources: Mapping[Any, object] | None = None,
    task_status: trio.TaskStatus[Worker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run jobs until stopped; made for ``worker = await nursery.start(run_worker, app, client)``.

    It has started once the worker is registered, hears of new jobs, and is about to claim.
    ``worker.stop()`` ends it in peace: no new claims, ``grace`` seconds for the running
    attempts, then these are cut and handed back. Cancelling it does the same without the
    grace. Either way it returns only when every coroutine has ended: one that shields
    itself is settled without being waited for, but a nursery cannot leave it behind. The
    thread of an ordinary function, which nothing can interrupt, is left behind.

    Args:
      app: the tasks to run.
      client: the database; the worker opens connections of its own.
      queues: the queues to serve, as names, or as a mapping to settings, to the attempts
          to run at once, or to None for what the app says. Default: ``default``, and every
          queue the app knows.
      grace: seconds the running attempts may take after `Worker.stop`.
      timings: how often it does what nobody asks it to do.
      retention: how long settled jobs are kept, if this worker is the one that removes them.
      name: how people know it, 1 to 200 characters; default, host and process.
      listen: hear of new jobs by LISTEN; polling finds them too. Behind a pooler, only if
          the client was given a ``listen_dsn``.
      max_waiting: attempts that may wait for callbacks in its memory; with more it claims
          nothing new.
      max_workers: attempts of all its queues together that it runs at once. Each queue
          is kept its ``min_workers`` of these; of the rest, each slot goes to the queue that
          runs least for its ``weight``, of those that have work. An attempt that waits for a
          callback has none. Default, what its queues may run each.
      observers: told what happens, together with those of the client.
      random: for jitter.
      resources: instances to give to handlers in place of the app's resources, by the type
          they are requested as; opened, and closed, by the caller.
      task_status: given the `Worker`.

    Raises:
      ConfigurationError: the app has no tasks, a setting is out of its range, a
          handler requests what no resource provides, or the client's ``listen_dsn`` is
          another database; or its role lost its rights while it ran.
      WrongEventLoop: not called under Trio.
      DatabaseUnavailable: it could not register, or could not listen; or its database was
          dropped while it ran.
      ResourceFailed: a resource of the worker could not be opened, or failed later.
      TypeError: a value is of another type.
      SchemaMissing: the ``awa`` schema was dropped while it ran.
      WorkerCrashed: one of its services failed in a way that is a bug.
      KeyboardInterrupt: it struck in a handler, whose job is then recorded as failed.
      SystemExit: a handler raised it; likewise.
    """
    require_trio("run_worker")
    check_type("app", app, App, "an")
    check_type("client", client, Client)
    check_seconds("grace", grace, error=ConfigurationError)
    check_whole("max_waiting", max_waiting, error=ConfigurationError)
    if max_workers is not None:
        check_whole("max_workers", max_workers, most=MAX_WORKERS, error=ConfigurationError)
    for parameter, value, expected in (
        ("timings", timings, Timings),
        ("retention", retention, Retention),
        ("random", random, Random),
    ):
        if value is not None:
            check_type(parameter, value, expected)
    if name is not None:
        check_string("name", name, most=MAX_WORKER_NAME, error=ConfigurationError)
    chosen = worker_queues(app, queues)
    if max_workers is not None:
        _check_minimums(max_workers, chosen)
    async with client._backend.worker_store() as store:
        worker = Worker(
            registry_of(app),
            store,
            queues=chosen,
            grace=grace,
            timings=timings or Timings(),
            retention=retention or Retention(),
            name=name,
            listen=listen,
            random=random or Random(),
            resources=resources,
            max_waiting=max_waiting,
            cap=max_workers,
            declared=declared_queues(app, queues, chosen),
            observers=observers_or_none(client._watching, observers),
        )
        try:
            await worker.serve(lambda: task_status.started(worker))
        except (StoreError, trio.TooSlowError) as error:
            reason = str(error) or "no answer in time"
            raise DatabaseUnavailable(f"starting a worker: {reason}") from error


def _check_minimums(cap: int, queues: Mapping[str, QueueSettings]) -> None:
    """Refuse a worker that could not keep what it is to keep.

    Raises:
      ConfigurationError: its queues' minimums are more than it may run.
    """
    kept = {name: settings.min_workers for name, settings in queues.items()}
    if sum(kept.values()) > cap:
        each = ", ".join(f"{name} {count}" for name, count in kept.items() if count)
        raise ConfigurationError(
            f"max_workers={cap}: the min_workers of its queues are {sum(kept.values())} together"
            f" ({each}); lower them, or raise max_workers"
        )

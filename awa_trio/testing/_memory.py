"""A client of a store in memory, for tests in which time is virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import psycopg

from .._app.app import App
from .._app.client import Client
from .._core.errors import ConfigurationError
from .._core.observer import Observer
from .._runtime.observing import listed
from .._seam.protocol import WorkerStore
from .._store.memory.store import MemoryStore


class MemoryBackend:
    """A client's ground without a database."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    @asynccontextmanager
    async def worker_store(self) -> AsyncIterator[WorkerStore]:
        """The same store: there is nothing to use up."""
        yield self.store

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Refuse: there is no connection.

        Raises:
          ConfigurationError: always.
        """
        raise ConfigurationError(
            "a store in memory has no transactions of yours; test this against PostgreSQL,"
            " with the fixtures in awa_trio.testing.fixtures"
        )


def memory_client(app: App | None = None, *, observers: Iterable[Observer] = ()) -> Client:
    """Return a client whose jobs are in memory, in the time of the event loop that runs.

    With `trio.testing.MockClock` an hour of schedules, backoffs, deadlines and leases
    passes in milliseconds. It passes the same contract as the PostgreSQL store, and has no
    transactions. An ordinary function runs in a thread, for which such a clock does not wait:
    test it on Trio's own clock, or its deadline may strike before the thread has begun.

    Args:
      app: as for `awa_trio.connect`.
      observers: likewise.
    """
    return Client(MemoryBackend(), app, listed(observers))

"""A store whose answers get lost, or never come, when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from awa_trio._app.app import App
from awa_trio._app.client import Backend, Client
from awa_trio._core.plan import Plan
from awa_trio._seam.errors import Transient
from awa_trio._seam.values import Settled

Settle = Callable[[], Awaitable[list[Settled]]]
Fault = Callable[[Sequence[Plan], Settle], Awaitable[list[Settled]]]


async def lose_the_answer(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
    """It commits, and the connection is lost before anyone hears of it."""
    await settle()
    raise Transient("the connection was lost")


async def roll_back(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
    """A deadlock, or a connection lost before the commit."""
    raise Transient("deadlock detected")


async def never_answer(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
    """The network swallows the call."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


async def commit_and_never_answer(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
    """It commits, and the network swallows the answer."""
    await settle()
    await trio.sleep_forever()
    raise AssertionError("unreachable")


class FaultyStore:
    """A store, with faults in line for its next settlements."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.faults: deque[Fault] = deque()
        self.calls: list[list[Plan]] = []
        self.broken: dict[str, Callable[..., Awaitable[Any]]] = {}
        """Replacements for whole methods."""

    def __getattr__(self, name: str) -> Any:
        return self.broken.get(name) or getattr(self.store, name)

    async def settle(self, plans: Sequence[Plan], **options: Any) -> list[Settled]:
        self.calls.append(list(plans))

        async def settle() -> list[Settled]:
            answers: list[Settled] = await self.store.settle(plans, **options)
            return answers

        if self.faults:
            return await self.faults.popleft()(plans, settle)
        return await settle()


class FaultyBackend:
    """The ground of a client whose workers get a faulty store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.store = backend.store
        self.worker_stores: list[FaultyStore] = []
        self.faults: deque[Fault] = deque()
        self.broken: dict[str, Callable[..., Awaitable[Any]]] = {}

    @asynccontextmanager
    async def worker_store(self) -> AsyncIterator[Any]:
        async with self._backend.worker_store() as store:
            faulty = FaultyStore(store)
            faulty.faults = self.faults
            faulty.broken = self.broken
            self.worker_stores.append(faulty)
            yield faulty

    def connection(self) -> Any:
        return self._backend.connection()


def make_faulty(client: Client, app: App | None = None) -> tuple[Client, FaultyBackend]:
    """A client on the same ground whose workers meet faults."""
    backend = FaultyBackend(client._backend)
    return Client(backend, app or client._app, client._watching), backend

"""The store in memory keeps the contract."""

from __future__ import annotations

from datetime import datetime

import pytest
import trio

from awa_trio._seam.hearing import News, Reconnected
from awa_trio._store.memory.store import MemoryStore

from .contract import StoreContract, World
from .flow_contract import FlowContract


class MemoryWorld(World):
    def __init__(self) -> None:
        self.seconds = 1e7
        self.memory = MemoryStore(lambda: self.seconds)
        self.store = self.memory
        self.heard: list[News] = []

    def now(self) -> datetime:
        return self.memory._now()

    async def advance(self, seconds: float) -> None:
        self.seconds += seconds

    async def news(self) -> list[News]:
        heard = self.heard.copy()
        self.heard.clear()
        return [news for news in heard if not isinstance(news, Reconnected)]


class TestMemory(StoreContract, FlowContract):
    @pytest.fixture
    async def world(self, nursery: trio.Nursery) -> MemoryWorld:
        world = MemoryWorld()
        ready = trio.Event()
        nursery.start_soon(world.store.listen, world.heard.append, ready.set)
        await ready.wait()
        return world

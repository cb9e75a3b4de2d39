"""Registered follow-ups and dead letters on the store in memory, in virtual time."""

from __future__ import annotations

import pytest

import awa_trio as awa
from awa_trio.testing import memory_client

from .outcomes import Outcomes


@pytest.mark.virtual_time
class TestOnMemory(Outcomes):
    @pytest.fixture
    async def client(self) -> awa.Client:
        return memory_client()

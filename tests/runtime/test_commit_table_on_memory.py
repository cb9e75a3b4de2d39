"""ADR-046's table on the store in memory, in virtual time."""

from __future__ import annotations

import pytest

import awa_trio as awa
from awa_trio.testing import memory_client

from .commit_table import APP, CommitTable


@pytest.mark.virtual_time
class TestOnMemory(CommitTable):
    @pytest.fixture
    async def client(self) -> awa.Client:
        return memory_client(APP)

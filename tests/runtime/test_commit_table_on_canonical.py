"""ADR-046's table on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import awa_trio as awa

from .commit_table import APP, CommitTable


class TestOnCanonical(CommitTable):
    @pytest.fixture
    async def client(self, canonical: str) -> AsyncIterator[awa.Client]:
        async with awa.connect(canonical, app=APP) as client:
            yield client

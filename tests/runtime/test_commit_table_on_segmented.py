"""ADR-046's table on the segmented engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import awa_trio as awa

from .commit_table import APP, CommitTable


class TestOnSegmented(CommitTable):
    @pytest.fixture
    async def client(self, segmented: str) -> AsyncIterator[awa.Client]:
        async with awa.connect(segmented, app=APP) as client:
            yield client

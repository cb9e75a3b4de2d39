"""Registered follow-ups and dead letters on the segmented engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import awa_trio as awa

from .outcomes import Outcomes


class TestOnSegmented(Outcomes):
    @pytest.fixture
    async def client(self, segmented: str) -> AsyncIterator[awa.Client]:
        async with awa.connect(segmented) as client:
            yield client

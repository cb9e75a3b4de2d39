"""Registered follow-ups and dead letters on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import awa_trio as awa

from .outcomes import Outcomes


class TestOnCanonical(Outcomes):
    @pytest.fixture
    async def client(self, canonical: str) -> AsyncIterator[awa.Client]:
        async with awa.connect(canonical) as client:
            yield client

"""Putting jobs in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._core.job import PreparedInsert
from ..._seam.values import Enqueued
from ..inserts import columns, values
from .calls import Calls, call

ENQUEUE = call("enqueue", 14)
ENQUEUE_MANY = call("enqueue_many", 14)


class SqlProducing(Calls):
    """See `_seam.protocol.Producing`."""

    async def enqueue(
        self, jobs: Sequence[PreparedInsert], *, notify: bool = True
    ) -> list[Enqueued]:
        """See `_seam.protocol.Producing`."""
        if not jobs:
            return []
        return enqueued(await self._rows(*insertion(jobs, notify)))


def insertion(jobs: Sequence[PreparedInsert], notify: bool) -> tuple[bytes, tuple[Any, ...]]:
    """Return the statement that inserts jobs, and its parameters."""
    if len(jobs) == 1:
        return ENQUEUE, (*values(jobs[0]), notify)
    return ENQUEUE_MANY, (*columns(jobs), notify)


def enqueued(rows: Sequence[Any]) -> list[Enqueued]:
    """Return what the statement answered as values."""
    return [Enqueued(*row) for row in rows]

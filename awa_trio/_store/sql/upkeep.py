"""What one worker does for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from psycopg.types.numeric import Int4, Int8

from ..._core.job import JobState
from ..._core.outcome import Lost
from ..._core.settings import Retention
from ..._pg import arrays
from ..._seam.values import Claimed, LostJob
from .calls import Calls, call

LEAD = call("lead", 3)
RESCUE = call("rescue", 4)
PRUNE = call("prune", 4)


class SqlUpkeep(Calls):
    """See `_seam.protocol.Upkeep`."""

    async def lead(self, duty: str, worker: int, seconds: float) -> bool:
        """See `_seam.protocol.Upkeep`."""
        return cast("bool", await self._value(LEAD, (duty, Int8(worker), float(seconds))))

    async def rescue(
        self, most: int, *, deadline_slack: float, kinds: Sequence[str], strangers_after: float
    ) -> list[LostJob]:
        """See `_seam.protocol.Upkeep`."""
        parameters = (
            Int4(most),
            float(deadline_slack),
            arrays.texts(kinds),
            float(strangers_after),
        )
        rows = await self._rows(RESCUE, parameters)
        return [_lost(row) for row in rows]

    async def prune(self, retention: Retention, most: int) -> int:
        """See `_seam.protocol.Upkeep`."""
        parameters = (
            float(retention.completed),
            float(retention.failed),
            float(retention.dead_letters),
            Int4(most),
        )
        return cast("int", await self._value(PRUNE, parameters))


def _lost(row: Sequence[Any]) -> LostJob:
    *facts, reason, token = row
    job = Claimed(*facts)
    if token is not None:
        job.state = JobState.WAITING_EXTERNAL
    return LostJob(job, Lost[reason], token)

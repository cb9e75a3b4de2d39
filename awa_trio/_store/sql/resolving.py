"""Answering callbacks."""

from __future__ import annotations

from typing import cast

from psycopg.types.numeric import Int8

from ..._core.job import JobDetails
from .calls import Calls, call
from .rows import details

FIND_CALLBACK = call("find_callback", 1)
ANSWER_CALLBACK = call("answer_callback", 4)
EXTEND_CALLBACK = call("extend_callback", 2)


class SqlResolving(Calls):
    """See `_seam.protocol.Resolving`."""

    async def find_callback(self, token: str) -> JobDetails | None:
        """See `_seam.protocol.Resolving`."""
        rows = await self._rows(FIND_CALLBACK, (token,))
        return details(rows[0]) if rows else None

    async def answer_callback(
        self, job_id: int, run_lease: int, token: str, answer: bytes
    ) -> bool:
        """See `_seam.protocol.Resolving`."""
        parameters = (Int8(job_id), Int8(run_lease), token, answer.decode())
        return cast("bool", await self._value(ANSWER_CALLBACK, parameters))

    async def extend_callback(self, token: str, timeout: float) -> bool:
        """See `_seam.protocol.Resolving`."""
        return cast("bool", await self._value(EXTEND_CALLBACK, (token, float(timeout))))

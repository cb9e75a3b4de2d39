"""Answering callbacks in memory."""

from __future__ import annotations

import copy
from datetime import timedelta

import anyio

from ..._core.job import HELD, JobDetails
from ..._seam.hearing import Answered
from .rows import MemoryRows


class MemoryResolving(MemoryRows):
    """See `_seam.protocol.Resolving`."""

    def _expecting(self, token: str) -> JobDetails | None:
        found = (row for row in self._jobs.values() if row.callback_token == token)
        return next(found, None)

    async def find_callback(self, token: str) -> JobDetails | None:
        """See `_seam.protocol.Resolving`."""
        await anyio.lowlevel.checkpoint()
        return copy.copy(self._expecting(token))

    async def answer_callback(
        self, job_id: int, run_lease: int, token: str, answer: bytes
    ) -> bool:
        """See `_seam.protocol.Resolving`."""
        await anyio.lowlevel.checkpoint()
        row = self._expecting(token)
        if (
            row is None
            or (row.id, row.run_lease) != (job_id, run_lease)
            or row.callback_until is None
            or row.worker_id is None
            or row.state not in HELD
        ):
            return False
        row.raw_callback_answer = answer
        row.callback_until = None
        self._tell(Answered(job_id, run_lease))
        return True

    async def extend_callback(self, token: str, timeout: float) -> bool:
        """See `_seam.protocol.Resolving`."""
        await anyio.lowlevel.checkpoint()
        row = self._expecting(token)
        if (
            row is None
            or row.callback_until is None
            or row.callback_until <= self._now()
            or row.state not in HELD
        ):
            return False
        row.callback_until = self._now() + timedelta(seconds=timeout)
        return True

"""What is said about queues, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from ..._core.job import JobDetails
from ..._core.queues import QueueStatus
from ..._seam.hearing import GotWork, Overridden
from .inspecting import MemoryInspecting


class MemoryFlow(MemoryInspecting):
    """See `_seam.protocol.Flow`."""

    async def list_queues(
        self, queues: Sequence[str] | None, most: int
    ) -> Sequence[QueueStatus]:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        live: dict[str, list[JobDetails]] = {}
        for row in self._jobs.values():
            if not row.state.terminal:
                live.setdefault(row.queue, []).append(row)
        every = {*self._book.names, *live, *self._served()}
        names = every if queues is None else set(queues)
        return [
            self._book.status(name, live.get(name, ()), most, self._now())
            for name in sorted(names)
        ]

    async def set_queue(
        self, queue: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        changed = self._book.set(queue, paused=paused, draining=draining, now=now)
        if paused is False:
            self._tell(GotWork(queue))
        return changed

    async def override_queue(
        self, queue: str, changes: Mapping[str, object], forgotten: Sequence[str]
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        changed = self._book.override(queue, changes, forgotten)
        if changed:
            self._tell(Overridden(queue))
            self._tell(GotWork(queue))
        return changed

    async def declare_queues(self, queues: Mapping[str, Mapping[str, object]]) -> None:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        for queue, settings in queues.items():
            self._book.declare(queue, settings)

    async def overrides(self, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        found = {queue: self._book.overrides(queue) for queue in queues}
        return {queue: overrides for queue, overrides in found.items() if overrides}

    async def depth(self, queue: str, max_depth: int) -> tuple[int, int | None]:
        """See `_seam.protocol.Flow`."""
        limit = self._book.max_depth(queue, max_depth)
        [backlog] = await self.backlogs([queue], limit or 0)
        return backlog.due, limit

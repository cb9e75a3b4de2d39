"""A store in memory, for tests in which time is virtual.

Trio's `MockClock` cannot meet a socket: it would let an hour pass while a query is
under way. This store has no sockets, takes its time from a function, and passes the
same contract as the SQL engines. It keeps no guarantee across processes, having none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NoReturn

import anyio

from ..._seam.hearing import Hear, Reconnected
from .dead_letters import MemoryDeadLetters
from .flow import MemoryFlow
from .resolving import MemoryResolving
from .scheduling import MemoryScheduling
from .upkeep import MemoryUpkeep
from .working import MemoryWorking


class MemoryStore(
    MemoryWorking,
    MemoryUpkeep,
    MemoryResolving,
    MemoryFlow,
    MemoryDeadLetters,
    MemoryScheduling,
):
    """Jobs in memory; see `_seam.protocol.WorkerStore`.

    Args:
      clock: returns the time in seconds; default, that of the event loop that runs, which
          on Trio obeys `MockClock`.
    """

    #: It lives in one event loop, so its heartbeat cannot have another.
    threaded_pulse = False

    def now(self) -> datetime:
        """See `_seam.protocol.WorkerStore`."""
        return self._now()

    async def listen(self, hear: Hear, ready: Callable[[], None]) -> NoReturn:
        """See `_seam.protocol.WorkerStore`."""
        self._hearers.append(hear)
        try:
            ready()
            hear(Reconnected())
            await anyio.sleep_forever()
        finally:
            self._hearers.remove(hear)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def pulse(self) -> AsyncIterator[MemoryStore]:
        """See `_seam.protocol.WorkerStore`."""
        yield self

    def fence_all(self) -> int:
        """Shut out every worker that there is, as if it had missed its lease; return how many."""
        living = [found for found in self._workers.values() if found.fenced_at is None]
        for found in living:
            found.fenced_at = self._clock()
        return len(living)

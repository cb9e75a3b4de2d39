"""Back-pressure for producers: how much room a queue has, asked for now and then.

To count for each job would cost more than the job. So whoever has counted may enqueue half of the
room it found, or for a second, before it counts again: what several producers put in too much
is bounded by what each of them may, and by what they do in a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

import anyio

from .._core.depth import Allowance
from .._core.errors import QueueFull
from .._core.job import PreparedInsert
from .._seam.protocol import Store
from .app import App, registry_of
from .calls import public_errors

WhenFull: TypeAlias = Literal["raise", "wait"]

#: Seconds between looks at a queue that somebody waits for: the first, and the longest.
LOOKS = (0.05, 1.0)


class Depths:
    """What one client knows of the room in queues.

    Args:
      store: where to count.
      app: knows the limits; None for none.
    """

    def __init__(self, store: Store, app: App | None) -> None:
        self._store = store
        self._app = app
        self._known: dict[str, Allowance] = {}

    async def admit(
        self, jobs: Sequence[PreparedInsert], when_full: WhenFull = "raise"
    ) -> None:
        """Return when jobs may be enqueued.

        Raises:
          QueueFull: they may not; not if ``when_full`` is ``"wait"``.
          ValueError: ``when_full`` is another word.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        if when_full not in ("raise", "wait"):
            raise ValueError(f"when_full={when_full!r}: give 'raise' or 'wait'")
        for queue, count in sorted(Counter(job.queue for job in jobs).items()):
            if self._max_depth(queue) is None:
                continue
            if when_full == "wait":
                await self.wait(queue, count, taking=True)
            else:
                limit = await self._look(queue, count, taking=True)
                if limit is not None:
                    raise QueueFull(queue, limit)

    def _max_depth(self, queue: str) -> int | None:
        return (
            None
            if self._app is None
            else registry_of(self._app).queue_settings(queue).max_depth
        )

    async def wait(self, queue: str, count: int, *, taking: bool = False) -> None:
        """Return when so many jobs may be enqueued, or with ``taking`` will be."""
        pause, longest = LOOKS
        while await self._look(queue, count, taking=taking) is not None:
            await anyio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _look(self, queue: str, count: int, *, taking: bool) -> int | None:
        """Find room for jobs, or take it; return None, or the limit that leaves none."""
        given = self._max_depth(queue)
        if given is None:
            await anyio.lowlevel.checkpoint()
            return None
        now = anyio.current_time()
        known = self._known.get(queue)
        if known is not None and (left := known.take(count, now)) is not None:
            if taking:
                self._known[queue] = left
            await anyio.lowlevel.checkpoint()
            return None
        with public_errors("counting the jobs of a queue"):
            depth, limit = await self._store.depth(queue, given)
        if limit is None:
            return None
        found = Allowance.counted(depth, limit, anyio.current_time())
        if not found.fits(count):
            self._known.pop(queue, None)
            return limit
        self._known[queue] = found.taken(count) if taking else found
        return None

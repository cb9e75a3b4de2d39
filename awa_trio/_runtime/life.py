"""A worker's identity: registered, kept alive by beats, and lost for good when fenced.

The database decides who is dead, by its own clock. The worker does not wait for the
verdict: when the time since it sent its last answered beat nears the lease, it takes
itself for dead and cancels its attempts, because by then another may be running them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import trio

from .._core.settings import Timings
from .._seam.protocol import WorkerStore
from .heartbeat import Heartbeat

logger = logging.getLogger("awa_trio.worker")

#: The part of its lease after which a worker without an answered beat fences itself. What
#: is left is for its handlers to notice and stop.
SELF_FENCE = 0.8


class Life:
    """The life of a worker, and the next one when it is lost.

    Args:
      store: where it registers.
      name: how people know the worker.
      timings: its lease.
      lost: called with the ID that was lost: whatever it held is someone else's.
      queues: what it serves, which it says of itself.
      kinds: what it runs, likewise.
    """

    def __init__(
        self,
        store: WorkerStore,
        name: str,
        timings: Timings,
        lost: Callable[[int], None],
        *,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._timings = timings
        self._lost = lost
        self._queues = queues
        self._kinds = kinds
        self._id: int | None = None
        self._alive = trio.Event()
        self._over = trio.Event()
        self._begun = -math.inf
        self.heartbeat = Heartbeat(store, timings, self.fenced)
        self.lives = 0
        """How often it has registered."""

    @property
    def id(self) -> int | None:
        """The present ID; None between one life and the next."""
        return self._id

    async def present_id(self) -> int:
        """The present ID, waiting for the next life if need be."""
        while self._id is None:
            await self._alive.wait()
        return self._id

    async def begin(self) -> None:
        """Register.

        Raises:
          StoreError: it did not work.
          trio.TooSlowError: nor did it fail, in time.
        """
        sent = self.heartbeat.clock()
        with trio.fail_after(self._timings.call_timeout):
            worker_id = await self._store.register(
                self._name, self._timings.lease, self._queues, self._kinds
            )
        self._begun = sent
        self._over = trio.Event()
        self._id = worker_id
        self.heartbeat.heart.worker_id = worker_id
        self.lives += 1
        self._alive.set()

    async def end(self) -> None:
        """Unregister, if it is registered.

        Raises:
          StoreError: it did not work; the worker will be presumed dead in time.
          trio.TooSlowError: nor did it fail, in time.
        """
        worker_id, self._id = self._id, None
        if worker_id is not None:
            self.heartbeat.heart.worker_id = None
            with trio.fail_after(self._timings.call_timeout):
                await self._store.unregister(worker_id)

    def fenced(self, worker_id: int) -> None:
        """The database refused the worker: this life is over."""
        if worker_id == self._id:
            logger.error(
                "worker %d (%s) was fenced: its jobs are someone else's, its attempts are cut",
                worker_id,
                self._name,
                extra={"worker_id": worker_id},
            )
            self._die()

    def _answered(self) -> float:
        """When it sent what last began or renewed its lease, by the heartbeat's clock."""
        beat = self.heartbeat.heart.answered
        return self._begun if beat is None or beat.worker_id != self._id else beat.sent

    def silence(self) -> tuple[float, float]:
        """Seconds since the heartbeat came round, and since it sent what was last answered."""
        now = self.heartbeat.clock()
        came_round = max(self.heartbeat.heart.came_round, self._begun)
        return now - came_round, now - self._answered()

    def _die(self) -> None:
        worker_id, self._id = self._id, None
        assert worker_id is not None
        self.heartbeat.heart.worker_id = None
        self._alive = trio.Event()
        self._over.set()
        self._lost(worker_id)

    async def run(self) -> None:
        """Fence itself in time, and begin a new life when one is over; until cancelled."""
        while True:
            if self._id is None:
                await self.begin()
                logger.warning(
                    "worker %d (%s) begins again",
                    self._id,
                    self._name,
                    extra={"worker_id": self._id},
                )
            answered = self._answered()
            rest = answered + SELF_FENCE * self._timings.lease - self.heartbeat.clock()
            if rest <= 0:
                logger.error(
                    "worker %d (%s) has had no answered beat for %.1f s of its lease of %g s:"
                    " it takes itself for dead, its attempts are cut",
                    self._id,
                    self._name,
                    self.heartbeat.clock() - answered,
                    self._timings.lease,
                    extra={"worker_id": self._id},
                )
                self._die()
            else:
                with trio.move_on_after(rest):
                    await self._over.wait()

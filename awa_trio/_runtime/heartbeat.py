"""Beats of a worker, from a thread of their own.

A handler that blocks the event loop must not cost its neighbours their leases, so beats
come from a thread with its own event loop and connection. It also watches the
worker's loop: it names what blocks it, and stops beating for a loop that has been
blocked for so long that the worker cannot be said to do its work.

A store in memory lives in one event loop, with virtual time: there the same function
beats from a task, and there is nothing to watch.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from .._core.report import hidden
from .._core.settings import Timings
from .._seam.errors import StoreError
from .._seam.protocol import Pulse, WorkerStore
from .observing import said

logger = logging.getLogger("awa_trio.worker")


@attrs.frozen
class Beat:
    """One beat that renewed the lease."""

    worker_id: int
    sent: float
    """When it was sent, by the heartbeat's clock."""


@attrs.define(eq=False)
class Heart:
    """What the worker and its heartbeat tell each other, across threads: whole values only."""

    worker_id: int | None = None
    """Who to beat for; None for nobody, between one life and the next."""
    turned: float = 0.0
    """When the worker's event loop last came round."""
    came_round: float = 0.0
    """When the heartbeat itself last came round, whether or not it was answered."""
    answered: Beat | None = None
    """The last beat that renewed the lease. Told here and not by a callback: a loop that has
    been blocked may look at its lease before it runs the callbacks that waited for it."""


class Heartbeat:
    """Beats for a worker until cancelled.

    Args:
      store: opens the pulse.
      timings: how often, and what counts as blocked.
      fenced: called in the worker's event loop with the ID of a worker that was refused.
    """

    def __init__(
        self, store: WorkerStore, timings: Timings, fenced: Callable[[int], None]
    ) -> None:
        self._store = store
        self._timings = timings
        self._fenced = fenced
        self.heart = Heart()
        self.clock: Callable[[], float] = (
            time.monotonic if store.threaded_pulse else trio.current_time
        )
        """What `Beat.sent` is measured by."""

    async def run(self) -> None:
        """Beat until cancelled."""
        self.heart.turned = self.heart.came_round = self.clock()
        if not self._store.threaded_pulse:
            await self._beat(self._fenced, watch=False)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turn, name="awa:heartbeat:turn")
            await self._run_thread()
            nursery.cancel_scope.cancel()

    async def _turn(self) -> None:
        """Show that the event loop comes round."""
        while True:
            self.heart.turned = self.clock()
            await trio.sleep(self._timings.blocked_after / 4)

    async def _run_thread(self) -> None:
        token = trio.lowlevel.current_trio_token()
        loop_thread = threading.get_ident()
        stop = _Stop()

        def fenced(worker_id: int) -> None:
            try:
                token.run_sync_soon(self._fenced, worker_id)
            except trio.RunFinishedError:
                pass

        def run() -> None:
            trio.run(partial(self._thread_main, fenced, stop, loop_thread))

        try:
            await trio.to_thread.run_sync(
                run,
                thread_name="awa:heartbeat",
                abandon_on_cancel=True,
                limiter=trio.CapacityLimiter(1),
            )
        finally:
            stop.set()

    async def _thread_main(
        self, fenced: Callable[[int], None], stop: _Stop, loop_thread: int
    ) -> None:
        async with trio.open_nursery() as nursery:
            stop.arm(nursery.cancel_scope)
            nursery.start_soon(partial(self._beat, fenced, watch=True))
            nursery.start_soon(self._watch, loop_thread)

    async def _beat(self, fenced: Callable[[int], None], *, watch: bool) -> None:
        self.heart.came_round = self.clock()
        async with self._store.pulse() as pulse:
            while True:
                await self._beat_once(pulse, fenced, watch=watch)
                await trio.sleep(self._timings.heartbeat)

    async def _beat_once(
        self, pulse: Pulse, fenced: Callable[[int], None], *, watch: bool
    ) -> None:
        self.heart.came_round = self.clock()
        worker_id = self.heart.worker_id
        if worker_id is None:
            return
        if watch and self.clock() - self.heart.turned > self._timings.give_up_blocked_after:
            return
        sent = self.clock()
        try:
            with trio.fail_after(max(self._timings.heartbeat, 1.0)):
                alive = await pulse.beat(worker_id)
        except (StoreError, trio.TooSlowError) as error:
            logger.warning(
                "a beat of worker %d was not answered: %s",
                worker_id,
                said(error),
                extra={"worker_id": worker_id},
            )
        else:
            if alive:
                self.heart.answered = Beat(worker_id, sent)
            else:
                fenced(worker_id)

    async def _watch(self, loop_thread: int) -> None:
        """Name what blocks the worker's event loop, once each time."""
        mentioned = 0.0
        while True:
            await trio.sleep(self._timings.blocked_after / 2)
            turned = self.heart.turned
            blocked = self.clock() - turned
            if blocked > self._timings.blocked_after and turned != mentioned:
                mentioned = turned
                logger.warning(
                    "the event loop has been blocked for %.1f s by %s; no other job of this"
                    " worker goes on meanwhile: await something, or use trio.to_thread.run_sync",
                    blocked,
                    culprit(loop_thread),
                )


class _Stop:
    """Ends the thread's event loop from the worker's, whichever comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._cancel: Callable[[], None] | None = None

    def arm(self, scope: trio.CancelScope) -> None:
        """Let `set` cancel ``scope``; called in the thread's event loop."""
        token = trio.lowlevel.current_trio_token()

        def cancel() -> None:
            try:
                token.run_sync_soon(scope.cancel)
            except trio.RunFinishedError:
                pass

        with self._lock:
            self._cancel = cancel
            if self._stopped:
                cancel()

    def set(self) -> None:
        """End it."""
        with self._lock:
            self._stopped = True
            if self._cancel is not None:
                self._cancel()


def culprit(thread: int) -> str:
    """Say what a thread is doing at this moment: its task, and the user's frame."""
    frame: Any = sys._current_frames().get(thread)
    if frame is None:
        return "nobody knows what"
    frames = traceback.extract_stack(frame)
    name = None
    while frame is not None and name is None:
        # Trio's scheduler steps a task from a frame that calls it `task`.
        name = getattr(frame.f_locals.get("task"), "name", None)
        frame = frame.f_back
    shown = [f for f in frames if not hidden(f.filename)] or frames
    where = f"{Path(shown[-1].filename).name}:{shown[-1].lineno} in {shown[-1].name}"
    return f"{name} at {where}" if name else where

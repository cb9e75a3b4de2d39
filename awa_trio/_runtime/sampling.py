"""What a worker looks like, every so often, for those who draw gauges.

Gauges are read by exporters in threads of their own, where neither the worker's state nor
the database can be asked. So a task asks, and they are told.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from .._core.events import QueueSample, Sampled
from .._core.settings import Timings
from .._counts import MOST_COUNTED
from .._seam.protocol import Inspecting
from .dispatch import Dispatcher
from .finalize import Finalizer
from .ledger import Ledger
from .life import Life
from .observing import Observers


class Sampler:
    """Samples one worker.

    Args:
      store: asked what waits.
      dispatcher: knows the slots.
      ledger: knows the attempts.
      finalizer: knows the settlements under way.
      life: knows the worker's ID.
      timings: how often.
      listening: whether it hears of new jobs at this moment.
      observers: who is told.
    """

    def __init__(
        self,
        store: Inspecting,
        dispatcher: Dispatcher,
        ledger: Ledger,
        finalizer: Finalizer,
        life: Life,
        timings: Timings,
        listening: Callable[[], bool],
        observers: Observers,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._finalizer = finalizer
        self._life = life
        self._timings = timings
        self._listening = listening
        self._observers = observers

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            worker_id = await self._life.present_id()
            self._observers.tell(await self._sample(worker_id))
            await trio.sleep(self._timings.sample_interval)

    async def _sample(self, worker_id: int) -> Sampled:
        slots = self._dispatcher.slots()
        with trio.fail_after(self._timings.call_timeout):
            backlogs = await self._store.backlogs([one.queue for one in slots], MOST_COUNTED)
        return Sampled(
            worker_id,
            tuple(
                QueueSample(
                    one.queue,
                    one.settings.max_workers,
                    one.settings.max_workers - one.free,
                    backlog.due,
                    backlog.oldest,
                )
                for one, backlog in zip(slots, backlogs, strict=True)
            ),
            running=len(self._ledger.running()),
            overdue=self._ledger.overdue(),
            waiting=self._dispatcher.waiting,
            finalizing=self._finalizer.backlog,
            listening=self._listening(),
        )

"""What is said of a worker's queues while it runs: their overrides, from the database.

Pauses, and limits of all workers together, are not its business: each claim obeys them by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio

from .._core.queues import SHARED, overridden, read_settings, settings_to_json
from .._core.settings import QueueSettings, Timings
from .._seam.protocol import Flow
from .dispatch import Dispatcher

logger = logging.getLogger("awa_trio.worker")

#: How much rarer it looks while notifications are heard. One that is lost is lost with its
#: connection, and whoever connects again looks at once.
HEARD = 120.0


class Steering:
    """Keeps the settings of a worker's queues as they are overridden.

    Args:
      store: where that is said.
      dispatcher: who has the settings.
      queues: those of the worker itself.
      declared: the queues whose settings the worker's app, or who started it, has set.
      timings: how often to look.
      changed: told after settings have changed.
    """

    def __init__(
        self,
        store: Flow,
        dispatcher: Dispatcher,
        queues: Mapping[str, QueueSettings],
        declared: Mapping[str, QueueSettings],
        timings: Timings,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._queues = queues
        self._declared = declared
        self._timings = timings
        self._changed = changed
        self._news = trio.Event()

    def heard(self) -> None:
        """Something was said; look again."""
        self._news.set()

    async def begin(self) -> None:
        """Say what the app says, and learn what is said, before anything is claimed.

        Raises:
          StoreError: it did not work.
          trio.TooSlowError: nor did it fail, in time.
        """
        with trio.fail_after(self._timings.call_timeout):
            if self._declared:
                before = await self._store.list_queues(list(self._declared), 1)
                settings = {name: settings_to_json(s) for name, s in self._declared.items()}
                await self._store.declare_queues(settings)
                for queue in before:
                    if queue.settings is not None:
                        self._say_replaced(queue.name, queue.settings)
        await self._look()

    def _say_replaced(self, queue: str, before: QueueSettings) -> None:
        """Say which limits of all workers are others now: two apps may undo each other's."""
        now = self._declared[queue]
        changes = [
            f"{name} was {was} and is {getattr(now, name)}"
            for name in SHARED
            if (was := getattr(before, name)) != getattr(now, name)
        ]
        if changes:
            logger.warning(
                "queue %s: %s, on all workers, as this worker's app declares it; an older release,"
                " or another app on this database, declared the other",
                queue,
                ", ".join(changes),
            )

    async def run(self) -> None:
        """Look at what is said, when told and every so often; until cancelled."""
        while True:
            rarer = HEARD if self._dispatcher.hears else 1.0
            with trio.move_on_after(self._timings.poll_interval * rarer):
                await self._news.wait()
            self._news = trio.Event()
            await self._look()

    async def _look(self) -> None:
        with trio.fail_after(self._timings.call_timeout):
            said = await self._store.overrides(list(self._queues))
        changed = False
        for queue, own in self._queues.items():
            settings = overridden(own, read_settings(said.get(queue, {})))
            changed = self._dispatcher.set(queue, settings) or changed
        if changed:
            self._changed()

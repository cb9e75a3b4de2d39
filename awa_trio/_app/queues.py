"""Look at queues and steer them, while workers run: ``client.queues``."""

from __future__ import annotations

from typing import Unpack, final

import anyio
import attrs

from .._core.arguments import check_whole
from .._core.queues import (
    OVERRIDABLE,
    QueueOverrides,
    QueueStatus,
    check_overridable,
    check_overrides,
    read_settings,
)
from .._core.request import check_queue
from .._counts import MOST_COUNTED
from .._seam.protocol import Store
from .calls import public_errors
from .depth import LOOKS, Depths


@final
class Queues:
    """Pause, drain and resume queues; override their settings; see how they are.

    All of it is kept in the database, holds for every worker, and survives them. It needs no
    worker to be running, and the queue need not have had a job yet.
    """

    def __init__(self, store: Store, depths: Depths) -> None:
        self._store = store
        self._depths = depths

    async def list(self) -> list[QueueStatus]:
        """Read all queues that have jobs, that workers serve, or that something was said about, by name.

        What it costs is bounded: jobs are counted up to 10,000 in each state.

        Raises:
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        with public_errors("listing queues"):
            return [*await self._store.list_queues(None, MOST_COUNTED)]

    async def get(self, queue: str) -> QueueStatus:
        """Read one queue; one that nobody has heard of is empty.

        Raises:
          InvalidRequest: no queue can have this name.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_queue(queue)
        with public_errors("reading a queue"):
            return (await self._store.list_queues([queue], MOST_COUNTED))[0]

    async def pause(self, queue: str) -> bool:
        """Let nothing of a queue be claimed until `resume`; return whether that is new.

        When it returns, no claim that comes after, on any worker, gets a job of the queue; claims under
        way have ended. Attempts that run go on to their end, and may stage jobs; enqueueing
        goes on.

        Raises:
          InvalidRequest: no queue can have this name.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        return await self._set(queue, "pausing a queue", paused=True)

    async def drain(self, queue: str) -> bool:
        """Let nothing be enqueued in a queue until `resume`; return whether that is new.

        Workers go on until it is empty, for which `Queues.wait_until_empty` waits. Enqueueing raises
        `QueueDraining`, also from SQL. What jobs leave behind is not refused: follow-ups,
        staged or registered, come with the attempt that completes, and must not keep it from
        completing. Nor is a job that runs again: a retry, a dead letter that is retried.

        Raises:
          InvalidRequest: no queue can have this name.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        return await self._set(queue, "draining a queue", draining=True)

    async def resume(self, queue: str) -> bool:
        """End `pause` and `drain`; return whether it was paused or drained.

        Workers that listen claim at once, others at their next look.

        Raises:
          InvalidRequest: no queue can have this name.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        return await self._set(queue, "resuming a queue", paused=False, draining=False)

    async def _set(
        self,
        queue: str,
        doing: str,
        *,
        paused: bool | None = None,
        draining: bool | None = None,
    ) -> bool:
        check_queue(queue)
        with public_errors(doing):
            return await self._store.set_queue(queue, paused=paused, draining=draining)

    async def override(self, queue: str, **overrides: Unpack[QueueOverrides]) -> QueueStatus:
        """Change settings of a queue on every worker, in place of what their apps say, until `reset`.

        Limits of all workers together (``rate``, ``max_per_key``, ``rate_per_key``) hold from the
        next claim on; what each worker does by itself, within a second or so. Running
        attempts go on. Overrides that are not named stay as they are.

        Args:
          queue: the queue; workers need not know it yet.
          **overrides: see `QueueOverrides`; None for no limit.

        Returns:
          The queue with all its overrides.

        Raises:
          InvalidRequest: no queue can have this name.
          ConfigurationError: there is no such setting, or a value is out of its range.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_queue(queue)
        changes = check_overrides(overrides)
        # Looked at before, so that the call that writes is the last: what was cancelled while it
        # looked has changed nothing.
        status = await self.get(queue)
        with public_errors("overriding settings of a queue"):
            await self._store.override_queue(queue, changes, [])
        return attrs.evolve(status, overrides={**status.overrides, **read_settings(changes)})

    async def reset(self, queue: str, *names: str) -> bool:
        """Forget overrides of a queue; return whether there were any.

        Args:
          queue: the queue.
          *names: which settings; default, all.

        Raises:
          InvalidRequest: no queue can have this name.
          ConfigurationError: there is no such setting.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_queue(queue)
        check_overridable(names)
        with public_errors("resetting a queue"):
            return await self._store.override_queue(queue, {}, list(names or OVERRIDABLE))

    async def wait_for_room(self, queue: str, jobs: int = 1) -> None:
        """Wait until a queue has room for more jobs, as its ``max_depth`` says.

        Returns at once if there is no such limit. A cancel scope bounds it.

        Args:
          queue: the queue.
          jobs: for how many. More than ``max_depth`` never fit: then it waits until the
              queue has none that is due.

        Raises:
          InvalidRequest: no queue can have this name.
          ValueError: ``jobs`` is no positive number.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_queue(queue)
        check_whole("jobs", jobs)
        await self._depths.wait(queue, jobs)

    async def wait_until_empty(self, queue: str) -> None:
        """Wait until a queue has no job that waits for anything, or runs. A cancel scope bounds it.

        Jobs of the future count. Other than after `drain`, more may come at any moment.

        Raises:
          InvalidRequest: no queue can have this name.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_queue(queue)
        pause, longest = LOOKS
        while True:
            with public_errors("reading a queue"):
                [status] = await self._store.list_queues([queue], 1)
            if not any(status.counts.values()):
                return
            await anyio.sleep(pause)
            pause = min(2 * pause, longest)

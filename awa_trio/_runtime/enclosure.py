"""What handlers run in: a cancel scope and, inside it, a nursery.

Opening both and leaving them, with the nursery's checkpoint, costs a third of what a handler
that does nothing costs in all. A handler that never asked for ``job.nursery``, raised
nothing and was not cut leaves a nursery without tasks that nobody can refer to: the next
attempt of the same slot may run in it, and nobody can tell.

Source: ADR 0026.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import trio

from .job import Job, lend_nursery, take_nursery_back

DID_NOT_RETURN = object()
"""What a handler returned whose cancellation its nursery absorbed: whatever it had still to
do was not done."""

#: Seconds for which a scope and a nursery are used again. Leaving a nursery is a checkpoint:
#: handlers that have none must not keep the loop from other tasks for longer. It is also
#: how much earlier than its deadline an attempt may be cut.
TURN = 0.001


class Enclosure:
    """The scope and the nursery in which a task runs attempts, one after another.

    Whoever holds it awaits nothing outside `run` before `close`: it would be inside them.
    """

    __slots__ = ("_manager", "_nursery", "_scope", "_status", "_until")

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None
        self._manager: Any = None
        self._nursery: trio.Nursery | None = None
        self._status: object = None
        self._until = -math.inf

    async def __aenter__(self) -> Enclosure:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def open(self, now: float, deadline: float) -> trio.CancelScope:
        """Be inside a scope that nothing has cancelled, with this deadline, by Trio's clock."""
        scope = self._scope
        if scope is None:
            self._scope = scope = trio.CancelScope(deadline=deadline)
            scope.__enter__()
            self._until = now + TURN
        elif not 0 <= deadline - scope.deadline <= TURN:
            scope.deadline = deadline
        return scope

    async def run(
        self, handler: Callable[[Job[Any]], Awaitable[object]], job: Job[Any], *, keep: bool
    ) -> object:
        """Run a handler in the nursery, and leave that unless it may be used again.

        Args:
          handler: what to run.
          job: its job, which is lent the nursery.
          keep: whether the nursery may be used again.

        Returns:
          What the handler returned, or `DID_NOT_RETURN`.

        Raises:
          BaseException: what the handler raised, if the nursery made a group of nothing but
              that: callers can catch it by its class, and a `WaitForCallback` says whose it
              is. Else what the nursery raised.
        """
        nursery = self._nursery
        if nursery is None:
            self._manager = trio.open_nursery()
            self._nursery = nursery = await self._manager.__aenter__()
            self._status = _status()
        lend_nursery(job, nursery)
        result: object = DID_NOT_RETURN
        own: BaseException | None = None
        try:
            result = await handler(job)
        except BaseException as raised:
            own = raised
        else:
            if keep and _status() is self._status is not None and take_nursery_back(job):
                return result
        await self._leave_nursery(own)
        return result

    @property
    def in_use(self) -> bool:
        """Whether the task is inside it."""
        return self._scope is not None

    @property
    def kept(self) -> bool:
        """Whether the handler that ran last left nothing behind."""
        return self._nursery is not None

    @property
    def turn_is_over(self) -> bool:
        """Whether others should have the loop before another attempt begins."""
        return self._scope is not None and trio.current_time() >= self._until

    async def close(self) -> None:
        """Leave the nursery, in which nothing runs, and the scope: a checkpoint if there was one.

        It cannot be cancelled.
        """
        if self._nursery is not None:
            await self._leave_nursery(None)
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.__exit__(None, None, None)

    async def _leave_nursery(self, own: BaseException | None) -> None:
        """Leave it as the end of an ``async with`` does whose block raised ``own``."""
        manager, self._manager, self._nursery, self._status = self._manager, None, None, None
        try:
            if own is None:
                await manager.__aexit__(None, None, None)
                return
            if await manager.__aexit__(type(own), own, own.__traceback__):
                return
        except BaseExceptionGroup as group:
            if own is None or len(group.exceptions) != 1 or group.exceptions[0] is not own:
                raise
        raise own


def _status() -> object:
    """What the present task is inside of; None if that cannot be known.

    A handler that abandons an asynchronous generator leaves it inside that one's scopes. Trio
    has no public way to ask; without this one nothing is used again.
    """
    return getattr(trio.lowlevel.current_task(), "_cancel_status", None)

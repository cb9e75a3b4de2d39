"""Whose turn it is on a connection: one task's, and the second one is told.

psycopg's own lock makes the second task wait. For queries that would only be slow; for
blocks it is wrong, because a statement of the one task then runs inside the transaction
of the other, and for a task that meets its own lock (a query inside the loop over
`notifies()`) it is for ever. So a turn is refused instead, with a sentence, before
anything of the operation has begun: the task that was there first notices nothing.

Two kinds of caller wait nevertheless. The end of a block, which cannot be refused
without leaving the block open; and whoever comes after an async generator that was left
before its end, which Trio closes a moment later, in a task of its own.

Elsewhere: what an operation does in its turn is `connection.TrioConnection.wait`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import psycopg
import trio
from trio.lowlevel import cancel_shielded_checkpoint, current_task, enable_ki_protection

from awa_trio._core.errors import WrongEventLoop
from awa_trio._pg.connection_drive import hang_up

if TYPE_CHECKING:
    from types import CodeType, TracebackType

    from awa_trio._pg.connection import TrioConnection

logger = logging.getLogger("awa_trio.pg")

_ACTIVE = psycopg.pq.TransactionStatus.ACTIVE

#: Rounds of the scheduler that an abandoned generator may take to be closed. It takes two:
#: one until Trio has started the task that closes it, one for that task.
_ROUNDS = 5

#: Those that end a block which another call has opened.
_BLOCK_ENDS = frozenset(
    end.__code__
    for end in (
        psycopg.AsyncTransaction.__aexit__,
        psycopg.AsyncPipeline.__aexit__,
        psycopg.AsyncServerCursor.close,
    )
)


class Turns:
    """What psycopg takes for the connection's lock.

    Taking a turn that is free neither yields nor checks for cancellation, because psycopg
    also takes one on its way out of cancelled blocks. (`trio.Lock` does both, and costs a
    trip through the scheduler for every query: 17 % of a round trip on one machine.)

    Leaving a turn by an exception closes a connection that is still busy: here, at the
    one point which every operation passes, "afterwards idle or closed" is enforced.
    """

    __slots__ = (
        *("_closing", "_connection", "_holder", "_parked", "_pgconn"),
        *("drain_deadline", "waiting"),
    )

    def __init__(self, connection: TrioConnection[Any]) -> None:
        # Weakly, so that a connection that nobody has any more goes at once, with
        # psycopg's warning, and not whenever the collector runs.
        self._connection = ref(connection)
        self._pgconn = connection.pgconn
        self._holder: trio.lowlevel.Task | None = None
        self._closing = False
        self._parked: trio.lowlevel.ParkingLot | None = None
        self.waiting = False
        """Whether an operation waits for the server at this moment."""
        self.drain_deadline: float | None = None
        """Set while this turn drains what it has asked the server to cancel."""

    def locked(self) -> bool:
        """Whether the turn is taken."""
        return self._holder is not None

    def pass_to_closer(self) -> None:
        """Note that an async generator is being closed, maybe by another task than began it."""
        if self._holder is not None and self._holder is not current_task():
            self._holder = current_task()
            self._closing = True

    def refuse(self) -> NoReturn:
        """Tell a second task that the connection is in use.

        Raises:
          trio.BusyResourceError: always.
        """
        if self._holder is current_task() and not self.waiting:
            raise trio.BusyResourceError(
                "this task has not yet left a copy(), stream() or notifies() of this connection;"
                " leave that first, or use a second connection inside it"
            )
        name = "" if self._holder in (None, current_task()) else f" ({self._holder.name})"
        raise trio.BusyResourceError(
            f"another task{name} is using this connection; give each task a connection"
            " of its own, from a pool"
        )

    @enable_ki_protection
    async def __aenter__(self) -> None:
        try:
            task = current_task()
        except RuntimeError:
            task = None
        if task is None or asyncio._get_running_loop() is not None:
            require_trio()
        if self._holder is not None:
            await self._wait_or_refuse(sys._getframe(1).f_code)
        self._holder = task

    @enable_ki_protection
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            pgconn = self._pgconn
            if pgconn.transaction_status == _ACTIVE and not pgconn.pipeline_status:
                logger.info("closing a connection left in the middle of an operation")
                hang_up(pgconn)
        self._holder = None
        self._closing = False
        self.drain_deadline = None
        if self._parked is not None:
            # Woken, not handed the turn: psycopg leaves a pipeline in two turns, between
            # which nobody else may come.
            self._parked.unpark_all()
            self._parked = None

    async def _wait_or_refuse(self, caller: CodeType) -> None:
        ends_block = caller in _BLOCK_ENDS
        if not ends_block or self._holder is current_task():
            for _ in range(_ROUNDS):
                if self.waiting or self._holder is None:
                    break
                await cancel_shielded_checkpoint()
            if self._holder is not None and not self._closing:
                if ends_block:
                    hang_up(self._pgconn)
                self.refuse()
        connection = self._connection()
        assert connection is not None
        grace = connection.cancel_grace
        with trio.CancelScope(shield=True, deadline=trio.current_time() + grace):
            while self._holder is not None:
                self._parked = self._parked or trio.lowlevel.ParkingLot()
                await self._parked.park()
            return
        hang_up(self._pgconn)
        raise psycopg.OperationalError(
            f"another task kept this connection busy for {grace:g} s, so it was closed;"
            " give each task a connection of its own, from a pool"
        )


def require_trio(
    what: str = "a TrioConnection", instead: str = "use psycopg.AsyncConnection"
) -> None:
    """Raise one clear sentence where a Trio connection, or what stands on Trio, cannot work.

    Under trio-asyncio, asyncio's flavour of code runs inside a Trio task, so being in one
    is not enough: a wait from there would leave Trio waiting for a task that does not.

    Args:
      what: how the sentence calls what was asked for.
      instead: what to do where asyncio runs.

    Raises:
      WrongEventLoop: this is not Trio's flavour of code.
    """
    asyncio_runs = asyncio._get_running_loop() is not None
    if not trio.lowlevel.in_trio_task():
        here = "no Trio task is running here; call it from inside trio.run()"
        if asyncio_runs:
            here = f"asyncio is running here; {instead}"
    elif asyncio_runs and asyncio.current_task() is not None:
        # A loop alone proves nothing: it is there for Trio's flavour too, and in guest mode.
        here = "this is asyncio code under trio-asyncio; call it through trio_asyncio.trio_as_aio()"
    else:
        return
    raise WrongEventLoop(f"{what} works in a Trio task, but {here}")

"""How psycopg's generators wait: on Trio, where they would block.

psycopg keeps its protocol in generators that do no I/O. They yield what they wait for
(the socket readable, writable, either) and are sent what it has become. This file sends
it, and knows nothing of what a generator does.

Elsewhere: what happens when a wait is interrupted is `connection_endings`.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
import trio
from psycopg.waiting import Ready, Wait
from trio.lowlevel import (
    cancel_shielded_checkpoint,
    checkpoint,
    checkpoint_if_cancelled,
    wait_readable,
    wait_writable,
)

from awa_trio._pg.connection_seam import ready_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import RV, PQGen, PQGenConn
    from psycopg.pq.abc import PGconn

#: Seconds that operations which need not wait may keep the loop to themselves. A pipeline
#: or a COPY sends thousands of commands that never block; a trip through the scheduler
#: for each would cost more than the command. psycopg's own figure (waiting.MAX_BUSY_TIME).
MAX_BUSY = 0.005

# As plain integers: they are compared for every packet.
_WAIT_R, _WAIT_RW = int(Wait.R), int(Wait.RW)
_READY_R, _READY_W = Ready.R, Ready.W


class Driver:
    """Runs the generators of one connection to their end."""

    __slots__ = ("_pgconn", "_yielded_at")

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        # By the machine's clock, not Trio's: every run of Trio begins its own at random,
        # and a mock clock stands still.
        self._yielded_at = 0.0

    async def run(self, gen: PQGen[RV], fd: int, s: Wait) -> RV:
        """Run ``gen``, which waits for ``s`` on ``fd``, to its end.

        Raises:
          psycopg.OperationalError: the socket was closed under it. The generator is told
              first, so that it can leave its own state in order.
        """
        try:
            while True:
                if s == _WAIT_R:
                    try:
                        await wait_readable(fd)
                    except (OSError, trio.ClosedResourceError) as error:
                        self._lost(gen, error)
                    self._yielded_at = monotonic()
                    s = gen.send(_READY_R)
                else:
                    # Nearly always writable, and asking is much cheaper than waiting.
                    if monotonic() - self._yielded_at >= MAX_BUSY:
                        await checkpoint()
                        self._yielded_at = monotonic()
                    ready = ready_now(fd, s)
                    if not ready:
                        try:
                            ready = await (
                                _wait_either(fd) if s == _WAIT_RW else _wait_writable(fd)
                            )
                        except (OSError, trio.ClosedResourceError) as error:
                            self._lost(gen, error)
                        self._yielded_at = monotonic()
                    s = gen.send(ready)
        except StopIteration as end:
            value: RV = end.value
            return value

    async def resume(self, gen: PQGen[RV], fd: int) -> RV:
        """Run ``gen`` to its end from the wait at which it was interrupted."""
        try:
            # Not next(): psycopg's C code takes no None while it waits to write.
            s = gen.send(Ready.NONE)
        except StopIteration as end:
            value: RV = end.value
            return value
        return await self.run(gen, fd, s)

    def has_run_long(self) -> bool:
        """Whether this connection's operations have kept the loop to themselves for too long."""
        return monotonic() - self._yielded_at >= MAX_BUSY

    async def breathe(self) -> None:
        """Let other tasks run, after an operation that had nothing to wait for.

        Not a place to be cancelled: the operation has happened.
        """
        await cancel_shielded_checkpoint()
        self._yielded_at = monotonic()

    def _lost(self, gen: PQGen[Any], error: Exception) -> NoReturn:
        # Finished first, so that whatever the generator tries in its own clean-up fails.
        hang_up(self._pgconn)
        if isinstance(error, trio.ClosedResourceError):
            text = "the connection was closed while this operation was running"
        else:
            text = f"the connection's socket is unusable ({error})"
        end(gen, psycopg.OperationalError(text))


def end(gen: PQGen[Any], failure: psycopg.OperationalError) -> NoReturn:
    """End an operation whose connection is gone, as its generator wants it to end.

    A generator may turn the failure into a result: the end of a transaction block keeps
    the exception that ended the block. That arrives as `StopIteration`.
    """
    gen.throw(failure)
    gen.close()
    raise failure


async def run_connecting(gen: PQGenConn[RV]) -> RV:
    """Run a generator that opens a connection, or that asks a server to cancel, to its end.

    However it ends, nothing that it opened stays open but what it returned.
    """
    try:
        fd, s = next(gen)
        while True:
            if s == _WAIT_R:
                await wait_readable(fd)
                ready = _READY_R
            else:
                await wait_writable(fd)
                ready = _READY_W
            fd, s = gen.send(ready)
    except StopIteration as end:
        value: RV = end.value
        return value
    except OSError as error:
        raise psycopg.OperationalError(
            f"the connection's socket is unusable ({error})"
        ) from error
    finally:
        # The socket of an attempt that was cut lives in the generator; a traceback
        # would keep it for as long as the exception is looked at.
        gen.close()


def hang_up(pgconn: PGconn) -> None:
    """Close a connection at once: whoever waits on its socket is told, then it is gone.

    Never blocks. Does nothing to one that is closed.
    """
    # No socket: libpq has closed it already. No Trio: then nobody waits on it.
    with suppress(psycopg.Error, RuntimeError):
        trio.lowlevel.notify_closing(pgconn.socket)
    pgconn.finish()


async def _wait_writable(fd: int) -> Ready | int:
    await wait_writable(fd)
    return _READY_W


async def _wait_either(fd: int) -> Ready | int:
    """Wait until the socket is readable or writable.

    Needed only when the send buffer is full; Trio waits for one thing at a time, so
    here, and only here, it takes a nursery.
    """
    ready = 0
    lost: Exception | None = None

    async def wait(wait_for: Callable[[int], Any], flag: int) -> None:
        nonlocal ready, lost
        try:
            await wait_for(fd)
            ready |= flag
        except (OSError, trio.ClosedResourceError) as error:
            lost = error
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, wait_readable, _READY_R)
            nursery.start_soon(wait, wait_writable, _READY_W)
    except BaseExceptionGroup as group:
        await _raise_plainly(group)
    if lost is not None:
        raise lost
    return ready


async def _raise_plainly(group: BaseExceptionGroup) -> NoReturn:
    # The nursery is nobody's business: what interrupted it is raised as itself.
    if group.subgroup(KeyboardInterrupt):
        raise KeyboardInterrupt from group
    await checkpoint_if_cancelled()
    raise group

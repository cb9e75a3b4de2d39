"""Lend connections, and take back only those that are fit to lend again.

Written once on anyio, so the same pool serves a Trio worker and an asyncio
application. There is no background task: connections are opened by those who
wait for them, and checked, replaced and closed where they change hands.

The invariant: every permit to hold a connection (there are `size`) is in exactly
one place at any time: with an idle connection, with a borrower, with someone who
is connecting, or on its way to a waiter that will notice it even if it is cancelled
at that moment. psycopg's own pool has lost some there (psycopg #509, #1208, #1345).
"""

from __future__ import annotations

import logging
import math
import select
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import attrs
import psycopg
from psycopg import pq

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger("awa_trio.pg")

Connection: TypeAlias = "psycopg.AsyncConnection[Any]"
Connect: TypeAlias = Callable[[], Awaitable[Connection]]

#: Seconds that a returned connection may take to roll back, or a probe to answer,
#: before it is closed instead. Longer than a healthy server ever takes, short enough
#: to be waited for in a shield.
CLEANUP = 2.0


class PoolTimeout(psycopg.OperationalError):
    """No connection became free in time; the message shows who has them."""


class PoolClosed(psycopg.OperationalError):
    """The pool has been closed."""


@attrs.frozen
class PoolStatistics:
    """Where a pool's connections are."""

    size: int
    """The most there may be."""
    idle: int
    borrowed: int
    connecting: int
    """Being opened at this moment."""
    waiting: int
    """Tasks that wait for one."""
    opened: int
    """Opened in the pool's life."""
    discarded: int
    """Closed because they were broken, left in a transaction they could not leave, or idle too long."""


@attrs.define(eq=False)
class _Waiter:
    answered: anyio.Event
    connection: Connection | None = None
    """What it was granted: a connection, ..."""
    permit: bool = False
    """... or the permit to open one, already counted as connecting. Neither: the pool was closed."""


class Pool:
    """At most ``size`` connections, lent to one task at a time.

    Use it as an async context manager: leaving it closes the idle connections, and the
    borrowed ones as they come back.

    Args:
      connect: opens one connection in the running event loop.
      size: the most connections at once.
      timeout: seconds to wait for a free one.
      check_after: seconds of idleness after which a connection proves that it lives
          before it is lent. One that rested when another was found broken does so too.
      max_idle: seconds of idleness after which a connection is closed.
      name: how messages call the pool.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        size: int = 10,
        timeout: float = 30.0,
        check_after: float = 30.0,
        max_idle: float = 600.0,
        name: str = "pool",
    ) -> None:
        if size < 1:
            raise ValueError(f"a pool of {size} connections lends nothing; give at least 1")
        self._connect = connect
        self._size = size
        self._timeout = timeout
        self._check_after = check_after
        self._max_idle = max_idle
        self._name = name
        self._idle: deque[tuple[Connection, float]] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._borrowed = 0
        self._connecting = 0
        self._opened = 0
        self._discarded = 0
        self._closed = False
        self._doubted_at = -math.inf
        """When a connection was last found broken: those that rested then may be, too. A
        server that has been restarted must not cost as many errors as there are."""

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    def statistics(self) -> PoolStatistics:
        """Count where the connections are at this moment."""
        return PoolStatistics(
            size=self._size,
            idle=len(self._idle),
            borrowed=self._borrowed,
            connecting=self._connecting,
            waiting=len(self._waiters),
            opened=self._opened,
            discarded=self._discarded,
        )

    async def aclose(self) -> None:
        """Close the idle connections now, and each borrowed one when it is returned.

        Tasks that wait for a connection get `PoolClosed`.
        """
        self._closed = True
        while self._waiters:
            self._waiters.popleft().answered.set()
        while self._idle:
            await self._close(self._idle.popleft()[0])
        await anyio.lowlevel.checkpoint()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Borrow a connection for a block, and return it however the block ends.

        A connection that comes back inside a transaction is rolled back; one that is
        broken, or cannot be brought to rest in 2 seconds, is closed and replaced.

        Raises:
          PoolTimeout: none was free within the pool's ``timeout``.
          PoolClosed: the pool is closed.
          psycopg.OperationalError: one had to be opened, and that failed.
        """
        connection = await self.acquire()
        try:
            yield connection
        finally:
            await self.release(connection)

    async def acquire(self) -> Connection:
        """Borrow a connection; whoever gets it must `release` it.

        Raises:
          PoolTimeout: none was free within the pool's ``timeout``.
          PoolClosed: the pool is closed.
          psycopg.OperationalError: one had to be opened, and that failed.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._closed:
                raise PoolClosed(f"{self._name} is closed")
            if self._idle:
                connection, since = self._idle.pop()
                # Borrowed from here on, so that a probe's permit is counted.
                self._borrowed += 1
                idle_for = anyio.current_time() - since
                if connection.closed or idle_for > self._max_idle:
                    await self._discard(connection)
                elif (
                    idle_for <= self._check_after and since > self._doubted_at
                ) or await self._proves_alive(connection):
                    return connection
                continue
            if self._borrowed + self._connecting < self._size:
                self._connecting += 1
                return await self._open()
            waiter = await self._wait()
            if waiter.connection is not None:
                return waiter.connection
            if waiter.permit:
                return await self._open()

    async def _wait(self) -> _Waiter:
        """Wait in line for a connection, for a permit to open one, or for the pool's end."""
        waiter = _Waiter(anyio.Event())
        self._waiters.append(waiter)
        try:
            with anyio.move_on_after(self._timeout):
                await waiter.answered.wait()
        except BaseException:
            # Cancelled in the moment in which it was granted something: pass that on.
            if waiter.connection is not None:
                await self.release(waiter.connection)
            elif waiter.permit:
                self._connecting -= 1
                self._grant_permit()
            raise
        finally:
            if not waiter.answered.is_set():
                self._waiters.remove(waiter)
        if not waiter.answered.is_set():
            s = self.statistics()
            raise PoolTimeout(
                f"{self._name}: no connection was free within {self._timeout:g} s:"
                f" {s.borrowed} of {s.size} are borrowed, {s.connecting} connecting,"
                f" {s.waiting} other tasks wait; make the pool larger, or hold"
                " connections for a shorter time"
            )
        return waiter

    def _grant_permit(self) -> None:
        if self._waiters and not self._closed:
            self._connecting += 1
            waiter = self._waiters.popleft()
            waiter.permit = True
            waiter.answered.set()

    async def _open(self) -> Connection:
        try:
            connection = await self._connect()
        except BaseException:
            self._connecting -= 1
            self._grant_permit()
            raise
        self._connecting -= 1
        self._borrowed += 1
        self._opened += 1
        return connection

    async def release(self, connection: Connection) -> None:
        """Return a borrowed connection.

        At rest it is lent on at once, without a checkpoint. Otherwise it is brought to
        rest or closed, in a shield of at most 2 seconds.
        """
        if not connection.closed and _transaction(connection) != pq.TransactionStatus.IDLE:
            await self._bring_to_rest(connection)
        if connection.closed:
            self._doubted_at = anyio.current_time()
        if (
            self._closed
            or connection.closed
            or _transaction(connection) != pq.TransactionStatus.IDLE
        ):
            await self._discard(connection)
        elif self._waiters:
            waiter = self._waiters.popleft()
            waiter.connection = connection
            waiter.answered.set()
        else:
            self._borrowed -= 1
            self._idle.append((connection, anyio.current_time()))

    async def _bring_to_rest(self, connection: Connection) -> None:
        if _transaction(connection) in (
            pq.TransactionStatus.INTRANS,
            pq.TransactionStatus.INERROR,
        ):
            logger.warning(
                "%s: a connection came back inside a transaction: rolled back", self._name
            )
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP):
                try:
                    await connection.rollback()
                except psycopg.Error:
                    pass

    async def _discard(self, connection: Connection) -> None:
        try:
            await self._close(connection)
        finally:
            self._borrowed -= 1
            self._discarded += 1
            self._grant_permit()

    async def _close(self, connection: Connection) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP):
            await connection.close()

    async def _proves_alive(self, connection: Connection) -> bool:
        """Whether a connection that has rested for long still has a server behind it."""
        alive = False
        try:
            # A server that went away leaves the socket readable: no round trip needed.
            # Not select(), which refuses descriptors from 1,024 on.
            probe = select.poll()
            probe.register(connection.fileno(), select.POLLIN)
            if not probe.poll(0):
                with anyio.move_on_after(CLEANUP):
                    await connection.execute("SELECT 1")
                    if not connection.autocommit:
                        await connection.rollback()
                    alive = True
        except (psycopg.Error, OSError, ValueError):
            pass
        finally:
            if not alive:
                await self._discard(connection)
        return alive


def _transaction(connection: Connection) -> pq.TransactionStatus:
    return connection.info.transaction_status

"""psycopg's asynchronous connection, on Trio.

`TrioConnection` is `psycopg.AsyncConnection` with everything that touched asyncio
replaced: connecting, waiting, cancelling, closing, the lock. Cursors, transactions,
COPY, pipelines, server-side cursors and notifications are psycopg's own, unchanged.

The invariant, under any cancellation: **`trio.Cancelled` from an autocommit statement
means that it did not happen.** If it had in fact completed, its result is returned and
the cancellation strikes at the next checkpoint. Afterwards the connection is idle, or
it is closed, and nothing else.

Elsewhere: waiting is `connection_drive`, the end of what was interrupted
`connection_endings`, two tasks on one connection `connection_turns`, host names `resolve`.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import psycopg
import trio
from psycopg import pq
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import make_conninfo
from psycopg.rows import Row, tuple_row
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection

from awa_trio._pg.connection_drive import Driver, hang_up, run_connecting
from awa_trio._pg.connection_endings import (
    BLOCK_END,
    DRAIN,
    MANNERS,
    PIPELINE_END,
    STATEMENT,
    STEP,
    bring_to_end,
)
from awa_trio._pg.connection_seam import (
    WaitTimeout,
    ready_now,
    timeout_from_conninfo,
)
from awa_trio._pg.connection_turns import Turns, require_trio
from awa_trio._pg.resolve import Failure, describe, find_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Self

    from psycopg.abc import RV, AdaptContext, ConnDict, ConnParam, PQGen
    from psycopg.pq.abc import PGconn
    from psycopg.rows import AsyncRowFactory
    from psycopg.waiting import Wait

    from awa_trio._pg.connection_endings import Manner

logger = logging.getLogger("awa_trio.pg")

_TUPLE_ROW: AsyncRowFactory[Any] = tuple_row
_IDLE, _ACTIVE = pq.TransactionStatus.IDLE, pq.TransactionStatus.ACTIVE


class TrioConnection(psycopg.AsyncConnection[Row]):
    """A connection to PostgreSQL for one Trio task at a time.

    Made by `connect`, and used as `psycopg.AsyncConnection` is::

        async with await TrioConnection.connect("dbname=app", autocommit=True) as connection:
            with trio.move_on_after(5):
                cursor = await connection.execute("SELECT count(*) FROM big_table")

    **Cancellation.** `trio.Cancelled` from an autocommit statement means that it did not
    happen: it was not sent, or the server has confirmed that it was cancelled. If it had
    completed before the request reached the server, its result is returned, and the
    cancellation strikes at the next checkpoint. A transaction block whose body completed
    commits, even if its scope was cancelled meanwhile; any other is rolled back. Leaving
    blocks is shielded, and bounded by `cancel_grace`. Outside a block and without
    autocommit a cancelled statement leaves the transaction failed, as any error does,
    until `rollback`.

    If the server does not answer in that time, the connection is closed (`closed` and
    `broken` are true), and a note on the exception says what cannot be known: whether
    the operation took effect. Ctrl-C is treated alike, and always raised.

    **One task at a time.** A second one gets `trio.BusyResourceError` at once, and the
    first one notices nothing. A connection that is `idle` may be handed to another task.

    **Checkpoints.** Connecting, closing, every statement and every block of a
    transaction are checkpoints. Steps that need not wait (in a COPY, in a pipeline, rows
    that have arrived already) check for cancellation, and yield every 5 ms.

    Not supported: psycopg's ``AsyncQueuedLibpqWriter``, which starts asyncio tasks. Leave
    `stream()` and `notifies()` loops early inside `contextlib.aclosing`, as with any
    asynchronous generator on Trio.

    Raises:
      WrongEventLoop: constructed or used outside Trio.
    """

    cancel_grace: float = 3.0
    """Seconds that the server may take to end what was cancelled before the connection is closed.

    A class attribute, which a subclass or an instance may change. The request to cancel
    needs a second connection, and a lost packet of its handshake is sent again after 1 s,
    then after 2 s more (RFC 6298): 3 s forgives one loss on each side, and is still short
    enough to be waited for by a program that shuts down.
    """

    def __init__(
        self,
        pgconn: PGconn,
        row_factory: AsyncRowFactory[Row] = _TUPLE_ROW,
    ) -> None:
        require_trio()
        super().__init__(pgconn, row_factory)
        self._driver = Driver(pgconn)
        self._turns = Turns(self)
        # psycopg asks nothing of it but "async with", and locked() in tests.
        self.lock = self._turns  # type: ignore[assignment]
        # Whether the end of a transaction block waits in a pipeline to be sent.
        self._block_end_queued = False
        # Whether an interrupted statement of a pipeline was cancelled without hearing so.
        self._cancel_unheard = False

    @classmethod
    async def connect(
        cls,
        conninfo: str = "",
        *,
        autocommit: bool = False,
        prepare_threshold: int | None = 5,
        context: AdaptContext | None = None,
        row_factory: AsyncRowFactory[Row] | None = None,
        cursor_factory: type[psycopg.AsyncCursor[Row]] | None = None,
        **kwargs: ConnParam,
    ) -> Self:
        """Connect to a server; if cancelled, or if it fails, nothing stays open.

        Several hosts are tried in turn, and so is every address of each. Host names are
        resolved by Trio, without blocking the loop.

        Args:
          conninfo: a connection string or URL; with ``kwargs`` it takes all parameters of
              libpq. ``connect_timeout`` is in whole seconds, at least 2, for each address
              and for each name to resolve; by default 130.
          autocommit: if false, the first statement begins a transaction.
          prepare_threshold: executions of a query before it is prepared; None for never.
          context: whose adapters to copy. By default psycopg's global ones.
          row_factory: makes the rows; their type is the connection's.
          cursor_factory: makes the cursors.

        Raises:
          psycopg.OperationalError: no server could be reached. If several were tried, the
              message lists all failures; the type is that of the last.
          psycopg.ProgrammingError: the connection string makes no sense.
          WrongEventLoop: called outside Trio.
        """
        require_trio()
        await checkpoint()
        params = await cls._get_connection_params(conninfo, **kwargs)
        timeout = timeout_from_conninfo(params)
        attempts, failures = await find_servers(params, timeout)
        for attempt in attempts:
            description = describe(attempt)
            logger.debug("connection attempt: %s", description)
            try:
                connection = await cls._attempt(attempt, timeout)
            except psycopg.Error as error:
                logger.debug("connection failed: %s: %s", description, error)
                failures.append(Failure(description, error))
            else:
                break
        else:
            raise _all_failed(failures)
        connection._autocommit = bool(autocommit)
        connection.prepare_threshold = prepare_threshold
        if row_factory:
            connection.row_factory = row_factory
        if cursor_factory:
            connection.cursor_factory = cursor_factory
        if context:
            connection._adapters = AdaptersMap(context.adapters)
        return connection

    @classmethod
    async def _attempt(cls, params: ConnDict, timeout: float) -> Self:
        with trio.move_on_after(timeout):
            return await run_connecting(cls._connect_gen(make_conninfo("", **params)))
        raise psycopg.errors.ConnectionTimeout("connection timeout expired")

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Commit, or roll back if the block raised; then close the connection, whatever happened.

        Raises:
          psycopg.Error: the commit failed.
        """
        if self.closed:
            return
        try:
            if exc_val is None:
                await self.commit()
            else:
                await self._roll_back_quietly()
        finally:
            if not getattr(self, "_pool", None):
                self.close_nowait()

    async def _roll_back_quietly(self) -> None:
        try:
            await self.rollback()
        except Exception as error:
            logger.warning("error ignored in rollback on %s: %s", self, error)

    async def close(self) -> None:
        """Close the connection, also in a cancelled scope.

        A task that waits on it gets `psycopg.OperationalError`. Closing twice is allowed.
        """
        self.close_nowait()
        if trio.lowlevel.in_trio_task():
            await checkpoint()

    def close_nowait(self) -> None:
        """Close the connection at once; never blocks.

        A task that waits on it gets `psycopg.OperationalError`. What it was doing goes on
        in the server until the server notices, so cancel it first if that matters.
        """
        if not self.closed:
            self._closed = True
            hang_up(self.pgconn)

    @property
    def idle(self) -> bool:
        """Whether it is open and nothing is under way: no operation, transaction or pipeline.

        Then, and only then, it may be handed to another task. A server that has gone
        away meanwhile is noticed by the next operation, not here.
        """
        return (
            self.pgconn.transaction_status == _IDLE
            and not self.pgconn.pipeline_status
            and not self._turns.locked()
        )

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """Open a transaction, or a savepoint in one, for a block.

        A body that completes is committed, even if its scope is cancelled meanwhile; one
        that raises is rolled back, even in a cancelled scope. Neither takes longer than
        `cancel_grace` once cancelled: then the connection is closed.

        Args:
          savepoint_name: by default one is chosen for nested blocks.
          force_rollback: roll back in any case.

        Raises:
          psycopg.OperationalError: the connection was lost inside the block: nothing was
              committed; or while it was committing: the message says so, and whether it
              took effect is not known.
        """
        require_trio()
        # Here, because a block that psycopg has begun to enter must be undone.
        await checkpoint_if_cancelled()
        transaction = psycopg.AsyncTransaction(self, savepoint_name, force_rollback)
        if self._pipeline is not None:
            # What it sends is answered inside it, so that errors are raised where they belong.
            async with self.pipeline(), transaction, self.pipeline():
                yield transaction
        else:
            async with transaction:
                yield transaction
        if transaction.status is transaction.Status.FAILED and self.broken:
            # psycopg is silent, also where the body has swallowed the error.
            raise psycopg.OperationalError(
                "the connection was lost inside the transaction block: nothing was committed"
            )

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        """Send statements without waiting for their answers, for a block.

        It is not a transaction: if its body is cut in autocommit mode, what was sent before
        is committed. Leaving it awaits the answers; in a cancelled scope they are given a
        moment, and then cancelled.
        """
        require_trio()
        await checkpoint_if_cancelled()
        async with super().pipeline() as pipeline:
            yield pipeline

    @enable_ki_protection
    async def wait(
        self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None
    ) -> RV:
        """Run one of psycopg's generators to its end; every operation passes here.

        Args:
          gen: does not change the connection's socket.
          interval: not used: Trio needs no waking up to notice an interruption.
          timeout: seconds. None for no limit.

        Raises:
          trio.BusyResourceError: another operation is waiting.
          psycopg.OperationalError: the connection is closed, or was while it waited; or,
              as a private subclass, the timeout has passed.
        """
        turns = self._turns
        manner = MANNERS.get(id(getattr(gen, "gi_code", None)), STATEMENT)
        if manner is STEP:
            if turns.drain_deadline is not None:
                manner = DRAIN
        elif manner is not STATEMENT:
            manner = self._in_pipeline(manner)
        if not manner.starts_anyway:
            await checkpoint_if_cancelled()
        if turns.waiting:
            turns.refuse()
        # Raises if it is closed.
        fd = self.pgconn.socket
        turns.waiting = True
        try:
            try:
                s = next(gen)
            except StopIteration as end:
                if manner is not STEP or self._driver.has_run_long():
                    await self._driver.breathe()
                value: RV = end.value
                return value
            try:
                if timeout is None:
                    return await self._driver.run(gen, fd, s)
                return await self._run_for(timeout, gen, fd, s)
            except (trio.Cancelled, KeyboardInterrupt) as interruption:
                in_flight = self.pgconn.transaction_status == _ACTIVE
                if manner.left_at_once or not (in_flight or manner.starts_anyway):
                    raise
                return await bring_to_end(self, gen, fd, manner, interruption)
        except psycopg.errors.QueryCanceled:
            if self._cancel_unheard and self._pipeline is not None:
                # Asked for by an earlier statement of this pipeline, which was interrupted.
                self._cancel_unheard = False
                await checkpoint_if_cancelled()
            raise
        finally:
            turns.waiting = False

    def _in_pipeline(self, manner: Manner) -> Manner:
        # There a COMMIT is only queued, and sent by the end of the pipeline: which then is
        # the end of the block.
        if manner is BLOCK_END:
            self._block_end_queued = self._pipeline is not None
        elif manner is PIPELINE_END and self._block_end_queued:
            self._block_end_queued = False
            return BLOCK_END
        return manner

    async def _run_for(self, timeout: float, gen: PQGen[RV], fd: int, s: Wait) -> RV:
        with trio.move_on_after(timeout):
            return await self._driver.run(gen, fd, s)
        # What has arrived by now counts, so that a timeout of 0 looks once.
        try:
            gen.send(ready_now(fd, s))
        except StopIteration as end:
            value: RV = end.value
            return value
        raise WaitTimeout("wait timeout expired")

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Ask the server to cancel whatever this connection is doing; any task may call it.

        The task that does it gets `psycopg.errors.QueryCanceled`, unless it had completed.
        There is rarely a reason to call this: cancel that task's scope instead.

        Args:
          timeout: seconds that the request may take; 0 for no limit. The argument is
              psycopg's; a scope around the call does the same.

        Raises:
          psycopg.errors.CancellationTimeout: it took longer.
          psycopg.OperationalError: the request failed.
          psycopg.NotSupportedError: libpq is older than 17, and psycopg's C code could
              only ask in a way that stops the whole process.
        """
        require_trio()
        await checkpoint()
        with trio.move_on_after(timeout or inf):
            await self._request_cancel()
            return
        raise psycopg.errors.CancellationTimeout("cancellation timeout expired")

    async def _request_cancel(self) -> None:
        if not self._should_cancel():
            return
        if psycopg.capabilities.has_cancel_safe():
            await run_connecting(self._cancel_gen())
        elif pq.__impl__ == "python":
            # ctypes lets go of the GIL, so a thread may block.
            handle = self.pgconn.get_cancel()
            await trio.to_thread.run_sync(handle.cancel, abandon_on_cancel=True)
        else:
            # PQcancel would hold the GIL until the network answers, in any thread.
            raise psycopg.NotSupportedError(
                "cancelling a query without blocking takes libpq 17 or later;"
                " install one with: pip install 'psycopg[binary]'"
            )

    async def _ask_to_cancel(self) -> bool:
        """Ask the server to cancel; return whether it can be asked at all.

        A request that fails is only logged: the operation may end by itself, and it will
        be asked again.
        """
        try:
            await self._request_cancel()
        except psycopg.NotSupportedError as error:
            logger.warning("%s", error)
            return False
        except psycopg.Error as error:
            logger.warning("a request to cancel failed: %s", error)
        return True

    @enable_ki_protection
    async def _try_cancel(self, *, timeout: float = 5.0) -> None:
        # psycopg calls this when a COPY or a stream() is left early, and then drains the
        # connection; maybe in the task that closes an abandoned generator.
        turns = self._turns
        turns.pass_to_closer()
        turns.drain_deadline = trio.current_time() + self.cancel_grace
        with trio.CancelScope(shield=True, deadline=turns.drain_deadline):
            if not await self._ask_to_cancel():
                hang_up(self.pgconn)


def _all_failed(failures: list[Failure]) -> psycopg.Error:
    """The error to raise when no server could be reached, in psycopg's words."""
    last = failures[-1].error.with_traceback(None)
    if len(failures) == 1:
        return last
    lines = [str(last), "Multiple connection attempts failed. All failures were:"]
    lines += [f"- {failure.host}: {failure.error}" for failure in failures]
    return type(last)("\n".join(lines), pgconn=last.pgconn)

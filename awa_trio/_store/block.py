"""A transaction on a connection that is the caller's, from its BEGIN to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn

import psycopg
from psycopg import pq

from .._core.errors import ConfigurationError
from .._seam.errors import Rejected, Transient
from .failures import store_error


class TransactionBlock:
    """One transaction, opened and ended here; what happens in it is the caller's.

    Also lends the connection, as a pool would, to a store that works in the transaction.

    Args:
      connection: an idle `psycopg.AsyncConnection`.

    Raises:
      ConfigurationError: it is something else, or not idle. A savepoint in a transaction
          that is open already would not do: what was completed in it could still be undone.
    """

    def __init__(self, connection: object) -> None:
        if not isinstance(connection, psycopg.AsyncConnection):
            raise ConfigurationError(
                f"complete_in takes an asynchronous psycopg connection, not"
                f" {type(connection).__name__}; open one with awa_trio.pg.TrioConnection.connect"
            )
        status = connection.pgconn.transaction_status
        if status == pq.TransactionStatus.UNKNOWN:
            raise ConfigurationError("this connection is closed; open another for complete_in")
        if status != pq.TransactionStatus.IDLE:
            raise ConfigurationError(
                "this connection is in a transaction already, or busy; complete_in opens and"
                " commits one of its own: commit first, or connect with autocommit=True"
            )
        if connection.pgconn.pipeline_status:
            raise ConfigurationError(
                "this connection is in a pipeline, which would commit only at its end; leave"
                " the pipeline before complete_in"
            )
        self._connection: psycopg.AsyncConnection[Any] = connection
        self._block: AbstractAsyncContextManager[psycopg.AsyncTransaction]

    @property
    def lost(self) -> bool:
        """Whether the connection is."""
        return self._connection.closed

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend the connection for a block."""
        yield self._connection

    def require_open(self) -> None:
        """Refuse if the transaction has been ended by hand, or waits in a pipeline.

        Raises:
          Rejected: chained from the error to show.
        """
        problem = None
        status = self._connection.pgconn.transaction_status
        if status == pq.TransactionStatus.IDLE:
            problem = "the transaction was ended inside complete_in, which commits it itself"
        elif self._connection.pgconn.pipeline_status:
            problem = "a pipeline is open; leave it before complete_in ends"
        if problem is not None:
            raise Rejected(problem) from ConfigurationError(problem)

    def refuse_another(self) -> NoReturn:
        """Refuse because a transaction is open which is not the one that was begun here.

        Raises:
          Rejected: chained from the error to show.
        """
        problem = (
            "the transaction was ended inside complete_in, and another begun; complete_in commits"
            " it itself, and what was written before is no part of the completion"
        )
        raise Rejected(problem) from ConfigurationError(problem)

    async def begin(self) -> None:
        """Open the transaction.

        Raises:
          StoreError: it did not work.
        """
        try:
            self._block = self._connection.transaction()
            self._status = await self._block.__aenter__()
        except psycopg.Error as error:
            raise store_error(error) from error

    async def commit(self) -> None:
        """Commit.

        Raises:
          Transient: the connection is lost, and whether it committed is not known.
          StoreError: the database refused, and rolled back.
        """
        try:
            await self._block.__aexit__(None, None, None)
        except psycopg.Error as error:
            raise store_error(error) from error
        if self._status.status is self._status.Status.FAILED:
            raise Transient("the connection was lost before the COMMIT was sent")

    async def roll_back(self, error: BaseException) -> bool:
        """Roll back because of an error; return whether that was all it was for."""
        return bool(await self._block.__aexit__(type(error), error, error.__traceback__))

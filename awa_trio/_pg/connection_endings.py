"""How an operation ends that was interrupted: by a cancelled scope, or by Ctrl-C.

psycopg was written for a loop whose cancellations strike once: its blocks await again
on their way out. Trio's strike every time. So it is decided here, for each of psycopg's
generators, whether it starts in a cancelled scope at all, and what becomes of it if it
is interrupted while the server works on it.

The invariant: an operation that was interrupted has ended, one way or the other, and its
connection is at rest; or the connection is closed.

Elsewhere: what a generator waits for is `connection_drive`; who calls this is
`connection.TrioConnection.wait`.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

import attrs
import psycopg
import trio

from awa_trio._pg.connection_drive import end, hang_up
from awa_trio._pg.connection_seam import (
    BaseConnection,
    BaseCopy,
    BaseCursor,
    BasePipeline,
    BaseTransaction,
    ServerCursorMixin,
    copy_end,
    copy_to,
    notifies,
)

if TYPE_CHECKING:
    from typing import Any

    from psycopg.abc import RV, PQGen

    from awa_trio._pg.connection import TrioConnection

logger = logging.getLogger("awa_trio.pg")

#: Seconds from one cancel request to the next. One may come too early, between two
#: commands of the same operation (the implicit BEGIN and the query), when the server has
#: nothing to cancel and forgets it; then the next one strikes.
ASK_AGAIN = 0.25


_NOBODY_KNOWS = (
    "the connection was closed before the server had confirmed that the operation had ended;"
    " whether it took effect is not known"
)


@attrs.frozen(eq=False)
class Manner:
    """How one kind of operation meets a cancelled scope."""

    starts_anyway: bool = False
    """Whether it starts in a scope that is cancelled already."""
    left_at_once: bool = False
    """Whether it is simply left, because the block around it cleans up."""
    cancel_after: float = 0.0
    """Seconds after which the server is asked to cancel it."""


#: Cancelled on the server, or finished if it was too late for that.
STATEMENT = Manner()
#: Not sent any more in a cancelled scope, but once sent it is waited for. Cancelling it
#: could only make it uncertain, and where replication is synchronous a cancelled COMMIT
#: reports success before the standby has it.
COMMIT = Manner(cancel_after=inf)
#: The end of a block that commits, or rolls back what was not to happen.
BLOCK_END = Manner(starts_anyway=True, cancel_after=inf)
#: What must be done to leave, or undo, a block. Rarely long, so it is given a moment;
#: a pipeline, though, may still have anything in it.
CLEANUP = Manner(starts_anyway=True, cancel_after=ASK_AGAIN)
#: The end of a pipeline, apart from others because a COMMIT may be in it.
PIPELINE_END = Manner(starts_anyway=True, cancel_after=ASK_AGAIN)
#: What follows a cancel request of psycopg's own, when a COPY or a stream() is left early.
#: psycopg expects the server's answer to that, and looks no further once it has seen it.
DRAIN = Manner(starts_anyway=True, cancel_after=ASK_AGAIN)
#: One step of a COPY or a stream(), whose block cancels and drains when it is left; or
#: a wait for notifications, which asks nothing of the server.
STEP = Manner(left_at_once=True)

#: Any other generator is a statement.
_GENERATORS = {
    COMMIT: (
        BaseConnection._commit_gen,
        BaseConnection._tpc_prepare_gen,
        BaseConnection._tpc_finish_gen,
    ),
    BLOCK_END: (BaseTransaction._exit_gen, BaseConnection._rollback_gen),
    CLEANUP: (
        # Started in any case: psycopg answers an exception from here by undoing the block,
        # and would undo one that it never entered.
        BaseTransaction._enter_gen,
        BasePipeline._enter_gen,
        ServerCursorMixin._close_gen,
        copy_end,
    ),
    DRAIN: (BaseCopy._end_copy_out_gen,),
    PIPELINE_END: (BasePipeline._exit_gen,),
    STEP: (
        BaseCopy._read_gen,
        BaseCopy._read_row_gen,
        BaseCursor._stream_fetchone_gen,
        copy_to,
        notifies,
    ),
}

#: By the identity of their code: code objects are slow to hash, more so in newer Pythons.
MANNERS = {
    id(generator.__code__): manner
    for manner, generators in _GENERATORS.items()
    for generator in generators
}


async def bring_to_end(
    connection: TrioConnection[Any],
    gen: PQGen[RV],
    fd: int,
    manner: Manner,
    interruption: trio.Cancelled | KeyboardInterrupt,
) -> RV:
    """End an operation that was interrupted in flight; return its result if it happened.

    Returns in the cancelled scope, so the cancellation strikes at the next checkpoint.

    Raises:
      trio.Cancelled, KeyboardInterrupt: the interruption. It did not happen; or, if the
          connection is closed now, nobody knows, and a note on the exception says so.
      psycopg.Error: it failed by itself.
    """
    must_raise = isinstance(interruption, KeyboardInterrupt)
    began = trio.current_time()
    deadline = began + connection.cancel_grace
    if manner is DRAIN and connection._turns.drain_deadline is not None:
        deadline = connection._turns.drain_deadline
    asked = False
    result: tuple[RV] | None = None
    try:
        while result is None and (now := trio.current_time()) < deadline:
            with trio.CancelScope(shield=True, deadline=deadline):
                if now - began >= manner.cancel_after:
                    asked = True
                    if not await connection._ask_to_cancel():
                        break
                with trio.move_on_after(ASK_AGAIN):
                    result = (await connection._driver.resume(gen, fd),)
    except psycopg.errors.QueryCanceled:
        if must_raise or (asked and manner is not DRAIN):
            raise interruption from None
        raise
    except Exception:
        if connection._closed:
            # By another task, while the server was to confirm.
            interruption.add_note(_NOBODY_KNOWS)
        elif not must_raise:
            raise
        raise interruption from None
    except BaseException:
        # Interrupted again, by Ctrl-C or a signal's handler: the state is unknown.
        hang_up(connection.pgconn)
        raise
    else:
        if result is None:
            result = _give_up(connection, gen, manner)
            if result is None:
                interruption.add_note(_NOBODY_KNOWS)
                raise interruption
        if must_raise:
            raise interruption
        if asked and connection.pgconn.pipeline_status:
            connection._cancel_unheard = True
        return result[0]
    finally:
        # Its traceback will hold this frame.
        del interruption


def _give_up(
    connection: TrioConnection[Any], gen: PQGen[RV], manner: Manner
) -> tuple[RV] | None:
    """Close a connection whose server did not answer in time.

    Returns:
      None, if the interruption is all there is to say. Else what the end of a block makes
      of it: it may have an error of its own to raise, which must not be lost.
    """
    logger.warning("no answer within %g s: closing %s", connection.cancel_grace, connection)
    hang_up(connection.pgconn)
    try:
        end(gen, psycopg.OperationalError(_NOBODY_KNOWS))
    except StopIteration as stop:
        return (stop.value,) if manner.starts_anyway else None
    except psycopg.Error:
        if manner.starts_anyway:
            raise
        return None

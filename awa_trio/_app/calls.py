"""Calls of a client's store: bounded in time, with errors that users know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from .._core.errors import DatabaseUnavailable, QueueDraining
from .._seam.errors import Draining, LockTimeout, Rejected, Transient
from .._store.failures import OF_THE_CONNECTION

#: Seconds any one call may take, so that a server that went silent is noticed.
CALL_TIMEOUT = 60.0


@contextmanager
def in_time(doing: str) -> Iterator[None]:
    """Bound what the server is asked; out of time is an error that users know."""
    try:
        with anyio.fail_after(CALL_TIMEOUT):
            yield
    except TimeoutError as error:
        raise DatabaseUnavailable(
            f"{doing}: PostgreSQL did not answer within {CALL_TIMEOUT:g} s"
        ) from error


@contextmanager
def public_errors(doing: str) -> Iterator[None]:
    """Bound a call of a store, and turn its errors into those that users know."""
    try:
        with in_time(doing):
            yield
    except (Transient, LockTimeout) as error:
        raise DatabaseUnavailable(f"{doing}: {error}") from (error.__cause__ or error)
    except Draining as error:
        raise QueueDraining(error.queue) from (error.__cause__ or error)
    except Rejected as error:
        # A trigger or a right of the user's own: the driver's error says which.
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


@contextmanager
def transaction_errors(doing: str) -> Iterator[None]:
    """Turn the driver's errors, in statements that are not the user's, into those that users know."""
    try:
        with in_time(doing):
            yield
    except OF_THE_CONNECTION as error:
        if error.sqlstate is not None and error.sqlstate[:2] not in ("08", "57"):
            raise
        reason = " ".join(str(error).split())
        raise DatabaseUnavailable(f"{doing}: {reason}") from error

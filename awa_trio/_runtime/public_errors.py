"""What a handler is told where a call of the store fails."""

from __future__ import annotations

import trio

from .._core.errors import DatabaseUnavailable, LeaseLost, QueueDraining
from .._seam.errors import Draining, Fenced, LockTimeout, StoreError, Transient


def public_error(doing: str, error: StoreError | trio.TooSlowError) -> BaseException:
    """Return what to raise from a store's error.

    Args:
      doing: what was being done, as the beginning of a sentence.
      error: what the store raised, or the time it took.
    """
    if isinstance(error, Fenced):
        return LeaseLost(f"{doing}: the worker was presumed dead, and its jobs are others'")
    if isinstance(error, (Transient, LockTimeout, trio.TooSlowError)):
        return DatabaseUnavailable(f"{doing}: {str(error) or 'PostgreSQL did not answer'}")
    if isinstance(error, Draining):
        return QueueDraining(error.queue)
    # A trigger, or a right that is missing: the driver's error says which.
    return error.__cause__ or error

"""The interface of whoever watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from .events import Event, Insert, Started


class Observer:
    """Told what happens to jobs: subclass it, and give it to `connect` or `run_worker`.

    Everything here does nothing until it is overridden, and what is not overridden costs
    nothing. Called from the event loop of the worker or client, and must not block. An
    observer that raises is logged and dropped: it can hurt neither worker nor job.
    """

    def observe(self, event: Event) -> None:
        """Learn a fact, after the transaction that made it one.

        Args:
          event: one of the classes in `awa_trio.events`; match on it.
        """

    def attempt(self, started: Started) -> AbstractContextManager[object] | None:
        """Return a block for an attempt to run in, in its own task; None for none.

        Context variables set when it is entered are seen by the handler, its child tasks and
        its thread. They must be reset when it is left. No exception of the handler's comes
        through it: `events.Ended` has that.

        Args:
          started: the attempt that begins.
        """
        return None

    def enqueue(self, jobs: Sequence[Insert]) -> AbstractContextManager[object] | None:
        """Return a block for a client's insert to run in; None for none.

        Args:
          jobs: what is inserted, without IDs as yet.
        """
        return None

    def trace(self) -> Mapping[str, str] | None:
        """Return the W3C trace context of this moment, ``traceparent`` and ``tracestate``.

        It is kept with the job that is being enqueued or staged.
        """
        return None

"""The observer that traces and measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import final

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from .. import Observer, events
from ._metrics import Metrics
from ._spans import Spans


@final
class Telemetry(Observer):
    """Spans and metrics of clients and workers. Make one, and give it to `awa_trio.connect`.

    An insert is a span in the trace of its caller. The first attempt of its job is a child
    of that; later ones have a trace of their own, linked to it. The handler runs inside its
    span, and follow-ups join the trace of the moment they are staged.

    Args:
      tracer_provider: default, the global one.
      meter_provider: likewise.
      record_messages: put the messages and tracebacks of exceptions onto spans. They may
          quote a job's arguments; default, only the exception's type.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        record_messages: bool = False,
    ) -> None:
        self._spans = Spans(tracer_provider, record_messages)
        self._metrics = Metrics(meter_provider)

    def observe(self, event: events.Event) -> None:
        """Measure an event, and end the spans that it is the end of."""
        self._metrics.observe(event)
        self._spans.observe(event)

    def attempt(self, started: events.Started) -> AbstractContextManager[None]:
        """Begin the span of an attempt."""
        return self._spans.attempt(started)

    def enqueue(self, jobs: Sequence[events.Insert]) -> AbstractContextManager[None]:
        """Begin the span of an insert."""
        return self._spans.enqueue(jobs)

    def trace(self) -> Mapping[str, str]:
        """Return the context of the current span; empty if there is none."""
        return self._spans.trace()

"""From attempts and inserts to spans."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__, events
from . import _names as names

#: What is kept with a job is W3C's, whatever the application propagates elsewhere.
_W3C = TraceContextTextMapPropagator()

_NOTHING = contexts.Context()

_Key: TypeAlias = tuple[int, int, int]


@attrs.define
class _Open:
    """The span of an attempt whose fate is not known yet."""

    span: Span
    ended: int | None = None
    """Nanoseconds of the wall clock."""
    settled: bool = False
    """Whether the fate is known and the attempt goes on: it completed its job itself."""


class Spans:
    """Traces what it is told.

    Args:
      provider: makes the tracer; None for the global one.
      record_messages: whether exceptions' messages and tracebacks go onto spans.
    """

    def __init__(self, provider: trace.TracerProvider | None, record_messages: bool) -> None:
        self._tracer = trace.get_tracer("awa_trio", __version__, provider)
        self._record_messages = record_messages
        self._open: dict[_Key, _Open] = {}
        self._producing: set[Span] = set()

    # ---- producing

    def trace(self) -> Mapping[str, str]:
        """The context of the current span; empty if there is none."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier

    def enqueue(self, jobs: Sequence[events.Insert]) -> Producing:
        """The span of an insert."""
        attributes: dict[str, str | int] = {**_SENDING}
        queues = {job.queue for job in jobs}
        kinds = {job.kind for job in jobs}
        name = "send"
        if len(queues) == 1:
            name, attributes[names.QUEUE] = f"send {jobs[0].queue}", jobs[0].queue
        if len(kinds) == 1:
            attributes[names.KIND] = jobs[0].kind
        if len(jobs) > 1:
            attributes[names.BATCH] = len(jobs)
        span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        return Producing(self, span)

    def produces(self, span: Span, yes: bool) -> None:
        """Remember which spans are those of inserts under way."""
        (self._producing.add if yes else self._producing.discard)(span)

    def failed(self, span: Span, error: BaseException) -> None:
        """Say that something failed, and no more of it than was agreed."""
        kind = _type_of(error)
        span.set_attribute(names.ERROR_TYPE, kind)
        if self._record_messages:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{kind}: {error}"))
        else:
            span.set_status(Status(StatusCode.ERROR, kind))

    # ---- consuming

    def attempt(self, started: events.Started) -> Current:
        """The span of an attempt: in the enqueuer's trace at first, in one of its own later."""
        job = started.job
        attributes: dict[str, str | int] = {
            **_PROCESSING,
            names.MESSAGE_ID: str(job.id),
            names.KIND: job.kind,
            names.ATTEMPT: job.attempt,
            names.MAX_ATTEMPTS: job.max_attempts,
            names.WORKER: started.worker_id,
        }
        if job.queue is not None:
            attributes[names.QUEUE] = job.queue
        origin = _W3C.extract(dict(job.trace), _NOTHING)
        links: tuple[Link, ...] = ()
        if job.attempt > 1:
            link = trace.get_current_span(origin).get_span_context()
            links, origin = (Link(link),) if link.is_valid else (), _NOTHING
        span = self._tracer.start_span(
            f"process {job.queue}", origin, SpanKind.CONSUMER, attributes, links
        )
        self._open[started.worker_id, job.id, job.attempt] = _Open(span)
        return Current(span)

    def observe(self, event: events.Event) -> None:
        """End the spans that an event is the end of."""
        match event:
            case events.Enqueued(jobs=(events.Insert() as made,)):
                span = trace.get_current_span()
                if span in self._producing and made.id is not None:
                    span.set_attribute(names.MESSAGE_ID, str(made.id))
            case events.Ended():
                self._ended(event)
            case events.Settled(job, worker_id, to_state=state):
                span_of_attempt = self._close(job, worker_id, str(state))
                parent = (
                    _W3C.extract(dict(job.trace), _NOTHING)
                    if span_of_attempt is None
                    else trace.set_span_in_context(span_of_attempt, _NOTHING)
                )
                for made in (*event.registered, *event.staged):
                    if made.id is not None:
                        self._sent(made, parent)
            case events.Stale(job, worker_id):
                self._close(job, worker_id, "stale")
            case events.GivenUp(job, worker_id):
                self._close(job, worker_id, "given_up")
            case _:
                pass

    def _ended(self, event: events.Ended) -> None:
        key = (event.worker_id, event.job.id, event.job.attempt)
        found = self._open.get(key)
        if found is None:
            return
        found.ended = time.time_ns()
        found.span.set_attribute(names.ENDING, str(event.ending))
        if event.error is not None:
            self.failed(found.span, event.error)
        elif event.ending is events.Ending.LEASE_LOST:
            found.span.set_attribute(names.ERROR_TYPE, str(event.ending))
            found.span.set_status(Status(StatusCode.ERROR, str(event.ending)))
        if found.settled:
            del self._open[key]
            found.span.end()

    def _close(self, job: events.JobRef, worker_id: int | None, state: str) -> Span | None:
        if worker_id is None:
            return None
        key = (worker_id, job.id, job.attempt)
        found = self._open.get(key)
        if found is None:
            return None
        found.span.set_attribute(names.STATE, state)
        if found.ended is None:
            found.settled = True
        else:
            del self._open[key]
            found.span.end(found.ended)
        return found.span

    def _sent(self, made: events.Insert, parent: contexts.Context) -> None:
        """The span of a follow-up's insert, which happened inside a commit."""
        self._tracer.start_span(
            f"send {made.queue}",
            parent,
            SpanKind.PRODUCER,
            {
                **_SENDING,
                names.QUEUE: made.queue,
                names.KIND: made.kind,
                names.MESSAGE_ID: str(made.id),
            },
        ).end()


_SENDING = {
    names.SYSTEM: "awa_trio",
    names.OPERATION_NAME: "send",
    names.OPERATION_TYPE: "send",
}
_PROCESSING = {
    names.SYSTEM: "awa_trio",
    names.OPERATION_NAME: "process",
    names.OPERATION_TYPE: "process",
}


class Current:
    """Makes a span the current one. Who began it ends it: an attempt's, when its fate is known."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = contexts.attach(trace.set_span_in_context(self._span))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        contexts.detach(self._token)


class Producing(Current):
    """Makes an insert's span the current one, and ends it."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Spans, span: Span) -> None:
        super().__init__(span)
        self._spans = spans

    def __enter__(self) -> None:
        self._spans.produces(self._span, True)
        super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._spans.produces(self._span, False)
        if error is not None:
            self._spans.failed(self._span, error)
        self._span.end()


def _type_of(error: BaseException) -> str:
    """The name of an exception's class; of the only one in a group, that one's."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"

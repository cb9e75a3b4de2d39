"""From events to measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from .. import __version__, events
from . import _names as names

#: Seconds; from a claim on a fast disk to a report that takes the night.
BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 1800.0, 7200.0, 43200.0,
)  # fmt: skip

Readings: TypeAlias = Iterable[tuple[float, Mapping[str, str]]]


class Metrics:
    """Measures what it is told.

    Args:
      provider: makes the instruments; None for the global one.
    """

    def __init__(self, provider: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter("awa_trio", __version__, provider)
        self._counters: dict[str, metrics.Counter] = {}
        self._histograms: dict[str, metrics.Histogram] = {}
        self._samples: dict[int, events.Sampled] = {}
        """The latest of each worker. Replaced, never changed: exporters read it in threads."""
        for one in names.INSTRUMENTS:
            if one.kind == "counter":
                made = meter.create_counter(one.name, one.unit, one.description)
                self._counters[one.name] = made
            elif one.kind == "histogram":
                self._histograms[one.name] = meter.create_histogram(
                    one.name,
                    one.unit,
                    one.description,
                    explicit_bucket_boundaries_advisory=BUCKETS,
                )
            else:
                read = self._reader(_READERS[one.name])
                meter.create_observable_gauge(one.name, [read], one.unit, one.description)

    def _reader(
        self, read: Callable[[Iterable[events.Sampled]], Readings]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observations(_: CallbackOptions) -> Iterable[Observation]:
            for value, attributes in read(self._samples.values()):
                yield Observation(value, attributes)

        return observations

    def _count(self, instrument: names.Instrument, attributes: Mapping[str, str]) -> None:
        self._counters[instrument.name].add(1, attributes)

    def _record(
        self,
        instrument: names.Instrument,
        seconds: float,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._histograms[instrument.name].record(seconds, attributes)

    def observe(self, event: events.Event) -> None:
        """Measure one event."""
        match event:
            case events.Enqueued(jobs):
                for made in jobs:
                    counted = names.DEDUPLICATED if made.id is None else names.ENQUEUED
                    self._count(counted, {names.KIND: made.kind, names.QUEUE: made.queue})
            case events.Claimed(jobs=claimed, seconds=seconds):
                self._record(names.CLAIM_DURATION, seconds)
                for job in claimed:
                    self._count(names.CLAIMED, _of(job))
            case events.Started(job, _, delay):
                self._record(names.PICKUP_DELAY, delay, _of(job))
            case events.Ended(job, _, ending, seconds, staged):
                attributes = {names.ENDING: str(ending), **_of(job)}
                self._record(names.ATTEMPT_DURATION, seconds, attributes)
                for kind in staged:
                    self._count(names.STAGED, {names.KIND: kind})
            case events.Settled():
                self._settled(event)
            case events.Discarded(kinds=kinds, why=why):
                for kind in kinds:
                    self._count(names.DISCARDED, {names.REASON: why, names.KIND: kind})
            case events.Stale(job):
                self._count(names.STALE, _of(job))
            case events.GivenUp(job):
                self._count(names.GIVEN_UP, _of(job))
            case events.Finalized(seconds=seconds):
                self._record(names.FINALIZE_DURATION, seconds)
            case events.Sampled(worker_id):
                self._samples = {**self._samples, worker_id: event}
            case events.Fenced(worker_id):
                self._count(names.FENCED, {})
                self._forget(worker_id)
            case events.Stopped(worker_id):
                self._forget(worker_id)
            case events.Listening():
                pass

    def _settled(self, event: events.Settled) -> None:
        of_job = _of(event.job)
        self._count(names.SETTLED, {names.STATE: str(event.to_state), **of_job})
        if event.rescued is not None:
            self._count(names.RESCUED, {names.REASON: event.rescued.name.lower(), **of_job})
        for made in (*event.registered, *event.staged):
            left_out = made.id is None
            counted = names.FOLLOW_UP_DEDUPLICATED if left_out else names.INSERTED
            self._count(counted, {names.KIND: made.kind})

    def _forget(self, worker_id: int) -> None:
        self._samples = {i: one for i, one in self._samples.items() if i != worker_id}


def _of(job: events.JobRef) -> dict[str, str]:
    if job.queue is None:
        return {names.KIND: job.kind}
    return {names.KIND: job.kind, names.QUEUE: job.queue}


# ---- Gauges: of all workers of the process together ------------------------------


def _per_queue(
    value: Callable[[events.QueueSample], float | None], *, together: bool
) -> Callable[[Iterable[events.Sampled]], Readings]:
    """Read a value of each queue: summed over workers, or the largest, if all see the same."""

    def read(samples: Iterable[events.Sampled]) -> Readings:
        sums: Counter[str] = Counter()
        most: dict[str, float] = {}
        for sample in samples:
            for queue in sample.queues:
                found = value(queue) or 0
                sums[queue.queue] += found  # type: ignore[assignment]
                most[queue.queue] = max(most.get(queue.queue, 0), found)
        read = sums if together else most
        return [(number, {names.QUEUE: name}) for name, number in read.items()]

    return read


def _per_process(
    value: Callable[[events.Sampled], int],
) -> Callable[[Iterable[events.Sampled]], Readings]:
    def read(samples: Iterable[events.Sampled]) -> Readings:
        values = [value(sample) for sample in samples]
        return [(sum(values), {})] if values else []

    return read


_READERS: dict[str, Callable[[Iterable[events.Sampled]], Readings]] = {
    names.QUEUE_DEPTH.name: _per_queue(lambda queue: queue.due, together=False),
    names.QUEUE_AGE.name: _per_queue(lambda queue: queue.oldest, together=False),
    names.SLOTS.name: _per_queue(lambda queue: queue.slots, together=True),
    names.SLOTS_IN_USE.name: _per_queue(lambda queue: queue.slots_in_use, together=True),
    names.RUNNING.name: _per_process(lambda sample: sample.running),
    names.OVERDUE.name: _per_process(lambda sample: sample.overdue),
    names.WAITING.name: _per_process(lambda sample: sample.waiting),
    names.FINALIZING.name: _per_process(lambda sample: sample.finalizing),
    names.LISTENING.name: _per_process(lambda sample: sample.listening),
}

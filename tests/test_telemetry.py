"""Spans and metrics, as the SDK's exporters in memory receive them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
from attrs import frozen
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import awa_trio as awa
from awa_trio import events
from awa_trio._pg.connection import TrioConnection
from awa_trio._seam.values import Want
from awa_trio.telemetry import Telemetry, _metrics, _names
from awa_trio.testing import Worked, memory_client, work_one

virtual = pytest.mark.virtual_time

SECRET = "canary-77"


@frozen
class A:
    n: int = 0
    secret: str = SECRET


@frozen
class B:
    n: int = 0
    secret: str = SECRET


class Lab:
    """A telemetry of its own, an app and a client that use it."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(
            tracer_provider=self.tracers, meter_provider=self.meters, **options
        )
        self.tracer = self.tracers.get_tracer("the user's")
        self.app = awa.App()
        self.app.task(args=A, queue="as")(self.handler)
        self.app.task(args=B, queue="bs")(self.follow_up)
        self.client = memory_client(self.app, observers=[self.telemetry])
        self.current: list[trace.Span] = []
        self.tasks: list[trio.lowlevel.Task] = []

    async def handler(self, job: awa.Job[A]) -> object:
        self.current.append(trace.get_current_span())
        self.tasks.append(trio.lowlevel.current_task())
        match job.args.n:
            case 1:
                with self.tracer.start_as_current_span("mine"):
                    job.enqueue_on_completion(B(), unique_opts={})
                    job.enqueue_on_completion(B(), unique_opts={})
            case 2 if job.attempt == 1:
                raise ValueError(job.args.secret)
            case 3:
                raise ExceptionGroup("one", [awa.TerminalError(job.args.secret)])
            case 4:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.child)
                    job.nursery.start_soon(self.child)
            case 5:
                await trio.sleep_forever()
            case 6:
                job.enqueue_on_completion(B())
                return awa.Snooze(5)
            case _:
                pass
        return None

    async def child(self) -> None:
        await trio.lowlevel.checkpoint()
        self.current.append(trace.get_current_span())

    async def follow_up(self, job: awa.Job[B]) -> None:
        self.current.append(trace.get_current_span())

    async def work(self) -> Worked:
        worked = await work_one(self.app, self.client)
        assert worked is not None
        return worked

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Each instrument's points: attributes, and value or (count, sum)."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "awa_trio"
                for metric in scope.metrics:
                    found[metric.name] = [
                        (
                            dict(point.attributes or {}),
                            getattr(point, "value", None)
                            if hasattr(point, "value")
                            else (point.count, point.sum),
                        )
                        for point in metric.data.data_points
                    ]
        return found

    def value(self, instrument: _names.Instrument, **attributes: Any) -> Any:
        wanted = {getattr(_names, name): value for name, value in attributes.items()}
        points = self.metrics().get(instrument.name, [])
        return next((value for have, value in points if have == wanted), None)


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.meters.shutdown()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> trace.SpanContext:
    found: trace.SpanContext | None = span.context
    assert found is not None
    return found


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


# ---- spans


@virtual
async def test_a_job_is_one_trace_from_its_enqueue_to_its_follow_ups(lab: Lab) -> None:
    with lab.tracer.start_as_current_span("request"):
        job = await lab.client.enqueue(A(1))
    await lab.work()
    await lab.work()
    [request] = lab.named("request")
    [send_a] = lab.named("send as")
    [process_a] = lab.named("process as")
    [mine] = lab.named("mine")
    [send_b] = lab.named("send bs")
    [process_b] = lab.named("process bs")
    assert len({context(span).trace_id for span in lab.spans}) == 1
    assert parent(send_a) == context(request).span_id
    assert parent(process_a) == context(send_a).span_id
    assert parent(mine) == context(process_a).span_id
    assert parent(process_b) == context(mine).span_id, "captured when it was staged"
    assert parent(send_b) == context(process_a).span_id
    assert (send_a.kind, process_a.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send_b.kind is SpanKind.PRODUCER
    assert facts(send_a) == {
        "messaging.system": "awa_trio",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "as",
        "messaging.message.id": str(job.id),
        "awa_trio.job.kind": "a",
    }
    assert facts(process_a) == {
        "messaging.system": "awa_trio",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "as",
        "messaging.message.id": str(job.id),
        "awa_trio.job.kind": "a",
        "awa_trio.job.attempt": 1,
        "awa_trio.job.max_attempts": 25,
        "awa_trio.worker.id": 1,
        "awa_trio.attempt.ending": "completed",
        "awa_trio.job.state": "completed",
    }
    assert facts(send_b)["messaging.message.id"] == "2"
    assert (await lab.client.jobs.get(2)).metadata == {}


@virtual
async def test_later_attempts_have_traces_of_their_own_linked_to_the_enqueuers(
    lab: Lab,
) -> None:
    await lab.client.enqueue(A(2))
    await lab.work()
    await trio.sleep(100)
    await lab.work()
    [send] = lab.named("send as")
    first, second = lab.named("process as")
    assert context(first).trace_id == context(send).trace_id
    assert context(second).trace_id != context(send).trace_id
    assert second.parent is None
    assert [link.context.span_id for link in second.links] == [context(send).span_id]
    assert not first.links
    assert facts(second)["awa_trio.job.attempt"] == 2


@virtual
async def test_an_error_is_named_and_its_message_kept_out() -> None:
    for n, kind, state in (
        (2, "ValueError", "retryable"),
        (3, "awa_trio.TerminalError", "failed"),
    ):
        lab = Lab()
        await lab.client.enqueue(A(n))
        await lab.work()
        [span] = lab.named("process as")
        assert facts(span)["error.type"] == kind
        assert facts(span)["awa_trio.job.state"] == state
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, kind)
        assert span.events == ()
        assert SECRET not in span.to_json()


@virtual
async def test_a_message_is_recorded_for_those_who_ask() -> None:
    lab = Lab(record_messages=True)
    await lab.client.enqueue(A(2))
    await lab.work()
    [span] = lab.named("process as")
    assert span.status.description == f"ValueError: {SECRET}"
    [event] = span.events
    assert (event.attributes or {})["exception.message"] == SECRET


@virtual
@pytest.mark.parametrize(
    ("n", "ending", "state"), [(6, "snooze", "scheduled"), (5, "deadline", "retryable")]
)
async def test_other_endings(lab: Lab, n: int, ending: str, state: str) -> None:
    await lab.client.enqueue(A(n), deadline=10)
    await lab.work()
    [span] = lab.named("process as")
    assert facts(span)["awa_trio.attempt.ending"] == ending
    assert facts(span)["awa_trio.job.state"] == state
    assert (span.status.status_code is StatusCode.ERROR) == (ending == "deadline")


@virtual
async def test_the_span_is_current_in_the_handler_and_its_tasks(lab: Lab) -> None:
    await lab.client.enqueue(A(4))
    await lab.work()
    [span] = lab.named("process as")
    assert [one.get_span_context() for one in lab.current] == [context(span)] * 3
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_the_span_is_current_in_the_thread_of_an_ordinary_function(lab: Lab) -> None:
    seen = []

    def handler(job: awa.Job[A]) -> None:
        seen.append((threading.current_thread(), trace.get_current_span()))
        job.enqueue_on_completion(B())

    app = awa.App()
    app.task(args=A, queue="as")(handler)
    app.declare(B, queue="bs")
    await lab.client.enqueue(A())
    await work_one(app, lab.client)
    [span] = lab.named("process as")
    [(thread, current)] = seen
    assert thread is not threading.main_thread()
    assert current.get_span_context() == context(span)
    [follow_up] = await lab.client.jobs.list(kind="b")
    assert follow_up.traceparent is not None
    ids = f"00-{context(span).trace_id:032x}-{context(span).span_id:016x}-"
    assert follow_up.traceparent.startswith(ids)


@virtual
async def test_a_slot_leaves_no_span_behind(lab: Lab) -> None:
    async with trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(lab.app, lab.client, queues={"as": 1}, task_status=task_status)

        worker = await nursery.start(run)
        for _ in range(3):
            await lab.client.enqueue(A())
        await trio.sleep(5)
        worker.stop()
    assert len(set(lab.tasks)) == 1, "the same task goes on, in a clean context"
    assert len({span.get_span_context().span_id for span in lab.current}) == 3
    assert len({context(span).trace_id for span in lab.named("process as")}) == 3


@virtual
async def test_registered_follow_ups_join_the_trace_of_the_settling_attempt(lab: Lab) -> None:
    lab.app.on_exhausted(A)(lambda args, job, error: B())
    await lab.client.enqueue(A(3))
    await lab.work()
    await lab.work()
    [process_a] = lab.named("process as")
    [process_b] = lab.named("process bs")
    assert parent(process_b) == context(process_a).span_id


@virtual
async def test_so_do_those_of_an_attempt_that_is_not_waited_for(lab: Lab) -> None:
    async def stubborn(job: awa.Job[A]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    app = awa.App()
    app.task(args=A, queue="as", deadline=10)(stubborn)
    app.declare(B, queue="bs")
    app.on_exhausted(A)(lambda args, job, error: B())
    await lab.client.enqueue(A(), max_attempts=1)
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, lab.client)
        await trio.sleep(30)
        [span] = lab.named("process as")
        [follow_up] = await lab.client.jobs.list(kind="b")
        worker.stop()
    assert follow_up.traceparent is not None
    assert f"{context(span).span_id:016x}" in follow_up.traceparent


@virtual
async def test_rescued_jobs_pass_on_the_trace_they_were_enqueued_in(lab: Lab) -> None:
    lab.app.on_exhausted(A)(lambda args, job, error: B())
    await lab.client.enqueue(A(), max_attempts=1)
    store = lab.client._backend.store
    dead = await store.register("dead", 30)
    await store.claim(dead, [Want("as", 1, 0)], {"a": None})
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, lab.app, lab.client)
        await trio.sleep(60)
        worker.stop()
    [send_a] = lab.named("send as")
    [send_b] = lab.named("send bs")
    [process_b] = lab.named("process bs")
    assert parent(send_b) == parent(process_b) == context(send_a).span_id
    assert lab.value(_names.RESCUED, REASON="stale_worker", KIND="a", QUEUE="as") == 1


@virtual
async def test_a_batch_is_one_span(lab: Lab) -> None:
    await lab.client.enqueue_many([A(), A()])
    await lab.client.enqueue_many([A(), B()])
    [two] = lab.named("send as")
    [mixed] = lab.named("send")
    assert facts(two)["messaging.batch.message_count"] == 2
    assert facts(mixed).keys().isdisjoint({"messaging.destination.name", "awa_trio.job.kind"})
    jobs = await lab.client.jobs.list()
    assert len({job.traceparent for job in jobs}) == 2


async def test_an_insert_that_fails_is_an_error(lab: Lab, migrated: str) -> None:
    async with awa.connect(migrated, observers=[lab.telemetry]) as client:
        with psycopg.connect(migrated, autocommit=True) as connection:
            connection.execute("ALTER SEQUENCE awa.job_ids RENAME TO gone")
        with pytest.raises(psycopg.Error):
            await client.enqueue(A(), queue="as")
    [span] = lab.named("send as")
    assert (facts(span)["error.type"], span.status.status_code) == (
        "psycopg.errors.UndefinedTable",
        StatusCode.ERROR,
    )


async def test_a_transaction_is_traced_and_counted_when_it_commits(
    lab: Lab, migrated: str
) -> None:
    async with awa.connect(migrated, observers=[lab.telemetry]) as client:
        with lab.tracer.start_as_current_span("request") as request:
            async with client.transaction() as transaction:
                job = await transaction.enqueue(A(), queue="as")
                assert lab.value(_names.ENQUEUED, KIND="a", QUEUE="as") is None
        found = await client.jobs.get(job.id)
    [span] = lab.named("send as")
    assert parent(span) == request.get_span_context().span_id
    assert found.traceparent is not None
    assert f"{context(span).span_id:016x}" in found.traceparent
    assert lab.value(_names.ENQUEUED, KIND="a", QUEUE="as") == 1


def test_an_asyncio_client_is_traced_too(lab: Lab, migrated: str) -> None:
    async def main() -> str | None:
        async with awa.connect(migrated, observers=[lab.telemetry]) as client:
            job = await client.enqueue(A(), queue="as")
            return (await client.jobs.get(job.id)).traceparent

    traceparent = asyncio.run(main())
    [span] = lab.named("send as")
    assert traceparent is not None
    assert f"{context(span).span_id:016x}" in traceparent


async def test_the_span_of_an_attempt_that_completes_itself_ends_with_it(
    lab: Lab, migrated: str
) -> None:
    app = awa.App()

    async def handler(job: awa.Job[A]) -> None:
        async with await TrioConnection.connect(migrated, autocommit=True) as connection:
            async with job.complete_in(connection) as transaction:
                await transaction.enqueue(B())
        assert lab.named("process as") == []
        await trio.sleep(0.1)

    app.task(args=A, queue="as")(handler)
    app.declare(B, queue="bs")
    async with awa.connect(migrated, app=app, observers=[lab.telemetry]) as client:
        await client.enqueue(A())
        await work_one(app, client)
        [follow_up] = await client.jobs.list(kind="b")
    [span] = lab.named("process as")
    [sent] = lab.named("send bs")
    assert facts(span)["awa_trio.job.state"] == "completed"
    assert facts(span)["awa_trio.attempt.ending"] == "completed"
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time > 100_000_000
    assert parent(sent) == context(span).span_id
    assert follow_up.traceparent is not None
    assert f"{context(span).span_id:016x}" in follow_up.traceparent
    assert lab.telemetry._spans._open == {}


# ---- metrics


@virtual
async def test_what_happens_is_counted(lab: Lab) -> None:
    await lab.client.enqueue(A(1), unique_opts={})
    await lab.client.enqueue(A(1), unique_opts={})
    await lab.client.enqueue(A(2))
    await lab.client.enqueue(A(6))
    for _ in range(4):
        await lab.work()
    of_a: dict[str, Any] = {"KIND": "a", "QUEUE": "as"}
    assert lab.value(_names.ENQUEUED, **of_a) == 3
    assert lab.value(_names.DEDUPLICATED, **of_a) == 1
    for state, wanted in (("completed", 1), ("retryable", 1), ("scheduled", 1)):
        assert lab.value(_names.SETTLED, STATE=state, **of_a) == wanted
    assert lab.value(_names.SETTLED, STATE="completed", KIND="b", QUEUE="bs") == 1
    assert lab.value(_names.STAGED, KIND="b") == 3
    assert lab.value(_names.INSERTED, KIND="b") == 1
    assert lab.value(_names.FOLLOW_UP_DEDUPLICATED, KIND="b") == 1
    assert lab.value(_names.DISCARDED, REASON="scheduled", KIND="b") == 1
    assert lab.value(_names.ATTEMPT_DURATION, ENDING="raised", **of_a)[0] == 1
    assert lab.value(_names.PICKUP_DELAY, **of_a)[0] == 3
    assert lab.value(_names.FINALIZE_DURATION)[0] == 4


@virtual
async def test_gauges_show_the_workers_of_the_process_and_forget_those_that_ended(
    lab: Lab,
) -> None:
    timings = awa.Timings(sample_interval=1)
    for _ in range(5):
        await lab.client.enqueue(A(5), deadline=0)

    async def run(task_status: Any) -> None:
        await awa.run_worker(
            lab.app, lab.client, queues={"as": 2}, timings=timings, grace=0,
            task_status=task_status,
        )  # fmt: skip

    async with trio.open_nursery() as nursery:
        first = await nursery.start(run)
        second = await nursery.start(run)
        await trio.sleep(9.5)
        assert lab.value(_names.QUEUE_DEPTH, QUEUE="as") == 1
        assert lab.value(_names.QUEUE_AGE, QUEUE="as") == pytest.approx(9, abs=1.1)
        assert lab.value(_names.SLOTS, QUEUE="as") == 4
        assert lab.value(_names.SLOTS_IN_USE, QUEUE="as") == 4
        assert lab.value(_names.RUNNING) == 4
        assert lab.value(_names.LISTENING) == 2
        assert lab.value(_names.OVERDUE) == lab.value(_names.WAITING) == 0
        assert lab.value(_names.CLAIMED, KIND="a", QUEUE="as") == 4
        assert lab.value(_names.CLAIM_DURATION)[0] >= 2
        first.stop()
        await trio.sleep(5)
        assert lab.value(_names.SLOTS, QUEUE="as") == 2
        second.stop()
    assert lab.value(_names.RUNNING) is None


@virtual
async def test_the_rest_is_counted_too(lab: Lab) -> None:
    job = events.JobRef(1, "a", None, 1, 25)
    for event in (
        events.Stale(job, 1),
        events.GivenUp(job, 1),
        events.Fenced(1),
        events.Listening(False),
        events.Ended(job, 1, events.Ending.COMPLETED, 0.1, ()),
    ):
        lab.telemetry.observe(event)
    assert lab.value(_names.STALE, KIND="a") == lab.value(_names.GIVEN_UP, KIND="a") == 1
    assert lab.value(_names.FENCED) == 1


@virtual
async def test_no_span_and_no_measurement_holds_what_is_in_a_job(lab: Lab) -> None:
    for n in range(7):
        about: dict[str, Any] = {"metadata": {SECRET: SECRET}, "tags": [SECRET]}
        await lab.client.enqueue(A(n), deadline=5, **about)
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, lab.app, lab.client)
        await trio.sleep(60)
        worker.stop()
    assert len(lab.named("process as")) >= 7
    for span in lab.spans:
        assert SECRET not in span.to_json()
    assert SECRET not in repr(lab.metrics())
    assert lab.telemetry._spans._open == {}, "every span has ended"


async def test_a_handler_span_is_kept_open_by_nothing(lab: Lab) -> None:
    """Each ends with the attempt, though its fate is known later."""
    await lab.client.enqueue(A(4))
    before = trio.current_time()
    await lab.work()
    [span] = lab.named("process as")
    assert span.end_time is not None
    assert span.start_time is not None
    assert 0 <= (span.end_time - span.start_time) / 1e9 <= trio.current_time() - before + 0.1


# ---- names


def test_the_reference_lists_each_metric() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "telemetry.md").read_text()
    rows = re.findall(
        r"^\| `(awa_trio\.[\w.]+)` \| (\w+), ([^|]+) \| ([^|]*) \| ([^|]+) \|$",
        page,
        re.MULTILINE,
    )
    written = [
        (name, kind, unit.strip(), tuple(re.findall(r"`([^`]+)`", attributes)), text.strip())
        for name, kind, unit, text, attributes in rows
    ]
    assert written == [
        (one.name, one.kind, one.unit, one.attributes, one.description)
        for one in _names.INSTRUMENTS
    ]


def test_the_reference_lists_each_attribute() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "telemetry.md").read_text()
    names = {
        value
        for name, value in vars(_names).items()
        if name.isupper() and isinstance(value, str)
    }
    assert names
    for name in names:
        assert f"`{name}`" in page


def test_the_reference_lists_each_event() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "telemetry.md").read_text()
    for event in events.Event.__args__:
        assert f"`{event.__name__}`" in page


def test_every_gauge_has_a_reader() -> None:
    gauges = {one.name for one in _names.INSTRUMENTS if one.kind == "gauge"}
    assert gauges == set(_metrics._READERS)


# ---- without it


def test_everything_else_works_without_opentelemetry() -> None:
    program = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())

import trio
import awa_trio as awa
import awa_trio.cli, awa_trio.events, awa_trio.pg, awa_trio.testing
from awa_trio.testing import Worked, memory_client, work_one

app = awa.App()

class Watching(awa.Observer):
    def observe(self, event):
        print(type(event).__name__)

@app.task(kind="job")
async def handler(job: awa.Job[dict]) -> None: ...

async def main():
    client = memory_client(app, observers=[Watching()])
    await client.enqueue({}, kind="job")
    await work_one(app, client)

trio.run(main)
assert not any(name.startswith("opentelemetry") for name in sys.modules)
try:
    import awa_trio.telemetry
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Enqueued", "Started", "Ended", "Finalized", "Settled",
        "awa_trio.telemetry needs OpenTelemetry; install it with: pip install 'awa-trio[otel]'",
    ]  # fmt: skip


PROGRAM = """
import sys
from attrs import frozen
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
import awa_trio as awa

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
app = awa.App()

@frozen
class Traced:
    n: int = 0

@app.task()
async def traced(job: awa.Job[Traced]) -> None: ...
"""


async def test_the_command_line_uses_the_global_providers(
    migrated: str, tmp_path: Path
) -> None:
    program, log = tmp_path / "traced.py", tmp_path / "log"
    program.write_text(PROGRAM)
    async with awa.connect(migrated) as client:
        job = await client.enqueue({"n": 1}, kind="traced")
        with log.open("w") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "awa_trio", "worker", str(program), "--telemetry"],
                env={**os.environ, "AWA_DSN": migrated},
                stdout=output,
                stderr=output,
            )
            try:
                with trio.fail_after(30):
                    await client.jobs.wait(job.id)
            finally:
                worker.send_signal(signal.SIGINT)
                await trio.to_thread.run_sync(worker.wait, 30)
    assert '"name": "process default"' in log.read_text()


def test_nothing_imports_it_unasked() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import awa_trio, awa_trio.cli, awa_trio.testing, sys; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "opentelemetry" not in done.stdout

"""Nothing a user puts into a job is logged, on any path, at any level.

Arguments, metadata, tags, exceptions' messages and what triggers say all hold one string,
and no record of any `awa_trio` logger may: not in its message, its arguments, its extra
attributes or its traceback.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
from attrs import field, frozen

import awa_trio as awa
from awa_trio import events
from awa_trio._core.plan import Plan, Transition
from awa_trio._runtime import attempt, dispatch
from awa_trio._seam.values import Want
from awa_trio.testing import memory_client

CANARY = "canary-5c1e"

S = awa.JobState

numbers = itertools.count()

#: Short, so that the test is; a worker whose beats are late begins again and goes on.
TIMINGS = awa.Timings(
    poll_interval=0.05,
    heartbeat=0.1,
    lease=5,
    abandon_after=0.1,
    rescue_interval=0.1,
    reconcile_interval=0.2,
    prune_interval=0.1,
    finalize_deadline=2,
    sample_interval=0.1,
)


@frozen
class Sing:
    mode: str
    secret: str = CANARY


@frozen
class Echo:
    mode: str = "complete"
    secret: str = CANARY


@frozen
class Number:
    n: int = field()


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError(CANARY)


def make_app() -> awa.App:
    app = awa.App()
    app.task(queue="default", deadline=20, backoff=lambda attempt: 3600.0)(sing)
    app.task(args=Number)(number)
    app.task()(echo)
    app.on_completed(Sing)(follow)
    app.on_exhausted(Sing)(follow_failure)
    return app


async def number(job: awa.Job[Number]) -> None:
    raise AssertionError(job.args)


async def echo(job: awa.Job[Echo]) -> None:
    pass


def follow(args: Sing, job: awa.JobRow) -> object:
    if args.mode == "spec raises":
        raise LookupError(args.secret)
    return None


def follow_failure(args: Sing, job: awa.JobRow, error: str) -> object:
    if args.mode == "exhausted spec raises":
        raise LookupError(args.secret)
    return None


async def sing(job: awa.Job[Sing]) -> object:
    about: dict[str, Any] = {"metadata": {"secret": CANARY}, "tags": [CANARY]}
    job.enqueue_on_completion(Echo(), unique_opts={}, **about)
    job.enqueue_on_completion(Echo(), unique_opts={}, **about)
    job.progress.set(percent=50, message=job.args.secret, metadata={CANARY: job.args.secret})
    if job.args.mode not in CUT:
        await job.flush_progress()
    job.set_output({"secret": job.args.secret})
    match job.args.mode:
        case "raise":
            raise ValueError(job.args.secret) from LookupError(job.args.secret)
        case "raise a note":
            error = ValueError(job.args.secret)
            error.add_note(job.args.secret)
            raise error
        case "raise in a nursery":
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(raising)
        case "raise what cannot be printed":
            raise Rude
        case "exhausted spec raises" | "terminal":
            raise awa.TerminalError(job.args.secret)
        case "retry":
            return awa.RetryAfter(3600)
        case "snooze":
            raise awa.Snooze(3600)
        case "cancel":
            return awa.Cancel(job.args.secret)
        case "return":
            return job.args.secret
        case "bad progress":
            job.progress.set(percent=job.args.secret, message="\0" + CANARY)  # type: ignore[arg-type]
        case "bad output":
            job.set_output({CANARY: object()})
        case "poison":
            job.enqueue_on_completion(Echo(), priority=job.args.secret)  # type: ignore[arg-type]
        case "poison, swallowed":
            try:
                job.enqueue_on_completion(object(), kind=job.args.secret)
            except awa.StagingError:
                pass
        case "sleep":
            await trio.sleep_forever()
        case "clean up badly":
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError(job.args.secret)
        case "too late":
            await thief[0](job.id)
        case "wait":
            token = await job.register_callback(60)
            tokens.append(token)
            raise ValueError(await job.wait_for_callback(token))
        case "park":
            token = await job.register_callback(60)
            parked.append(token)
            return awa.WaitForCallback(token)
        case "will not end":
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
        case _:
            pass
    return None


tokens: list[str] = []
parked: list[str] = []
"""Callbacks that handlers wait for, in memory and not."""

thief: list[Callable[[int], Awaitable[None]]] = []
"""Settles a running job behind its worker's back."""


async def raising() -> None:
    raise ValueError(CANARY)


MODES = [
    "complete", "spec raises", "bad progress", "bad output", "raise", "raise a note", "raise in a nursery",
    "raise what cannot be printed", "exhausted spec raises", "terminal", "retry", "snooze",
    "cancel", "return", "poison", "poison, swallowed", "too late",
]  # fmt: skip
CUT = ["sleep", "clean up badly", "will not end"]


class Complaining(awa.Observer):
    def observe(self, event: events.Event) -> None:
        raise ValueError(CANARY)


class Keeping(awa.Observer):
    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def observe(self, event: events.Event) -> None:
        self.events.append(event)


class Ear(logging.Handler):
    """Hears everything that any logger of ours says."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.said.append(logging.Formatter("%(message)s").format(record))

    def everything(self) -> Iterator[str]:
        """Message, traceback, and each attribute of each record."""
        for record, said in zip(self.records, self.said, strict=True):
            yield said
            for value in vars(record).values():
                yield repr(value)


@pytest.fixture
def ear() -> Iterator[Ear]:
    ours = logging.getLogger("awa_trio")
    ear, level = Ear(), ours.level
    ours.setLevel(logging.DEBUG)
    ours.addHandler(ear)
    yield ear
    ours.removeHandler(ear)
    ours.setLevel(level)


async def until(done: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not done():
            await trio.sleep(0.02)


class Canary:
    """The paths, on whichever store."""

    async def enqueue(self, client: awa.Client, args: object, **options: Any) -> int:
        # A key of its own, or they would run one after another.
        key = f"{CANARY} {next(numbers)}"
        job = await client.enqueue(
            args, metadata={"secret": CANARY}, tags=[CANARY], ordering_key=key, **options
        )
        return job.id

    async def lose_one(self, client: awa.Client, mode: str) -> None:
        """A job whose worker is gone, to be rescued."""
        store = client._backend.store
        dead = await store.register("dead", 0.05)
        await self.enqueue(client, Sing(mode), queue="lost")
        assert await store.claim(dead, [Want("lost", 1, 0)], {"sing": None})
        await store.unregister(dead)

    async def test_no_path_logs_what_a_job_holds(
        self, client: awa.Client, ear: Ear, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keeping = Keeping()
        monkeypatch.setattr(attempt, "_warned", set())
        store = client._backend.store

        async def steal(job_id: int) -> None:
            [job] = await store.get([job_id])
            move = Transition(job.id, job.run_lease, job.state, S.CANCELLED, job.attempt)
            await store.settle([Plan(move)], worker=job.worker_id)

        monkeypatch.setattr(sys.modules[__name__], "thief", [steal])
        client._watching = (Complaining(), keeping)
        app = client._app
        assert app is not None
        stranger = awa.Client(client._backend, None)
        await stranger.enqueue({"n": CANARY}, kind="number", metadata={"secret": CANARY})
        for bad in (Sing(CANARY + "\0"), {"secret": float("nan")}, CANARY):
            with pytest.raises(awa.AwaError):
                await client.enqueue(bad, kind=CANARY, metadata={CANARY: object()})
        for mode in MODES:
            await self.enqueue(client, Sing(mode))
        for mode in CUT:
            await self.enqueue(client, Sing(mode), deadline=0.2)
        await self.lose_one(client, "complete")
        await self.lose_one(client, "exhausted spec raises")
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                await awa.run_worker(
                    app,
                    client,
                    queues=["default", "lost"],
                    timings=TIMINGS,
                    retention=awa.Retention(completed=0),
                    grace=0.1,
                    task_status=task_status,
                )

            worker = await nursery.start(run)
            await until(lambda: sum("rescuing" in said for said in ear.said) == 2)
            await until(lambda: sum("ended at last" in said for said in ear.said) == 1)
            await until(lambda: any("removed" in said for said in ear.said))
            tokens.clear()
            parked.clear()
            for mode in ("wait", "wait", "wait", "park"):
                await self.enqueue(client, Sing(mode))
            await until(lambda: worker.statistics().waiting == 3)
            await client.callbacks.resume(tokens[0], {"secret": CANARY})
            await client.callbacks.complete(tokens[1], CANARY, without_follow_ups=True)
            await client.callbacks.fail(tokens[2], CANARY, without_follow_ups=True)
            await until(lambda: worker.statistics().waiting == 0)
            await client.callbacks.complete(parked[0], [CANARY], without_follow_ups=True)
            cancelled = await self.enqueue(client, Sing("sleep"))
            await until(lambda: worker.statistics().running == 1)
            await client.jobs.cancel(cancelled, reason=CANARY)
            await until(lambda: worker.statistics().running == 0)
            await self.enqueue(client, Sing("sleep"))
            await self.enqueue(client, Sing("clean up badly"))
            await until(lambda: worker.statistics().running == 2)
            worker.stop()
        self.check(ear)
        said = "\n".join(ear.said)
        for path in (
            "raised ValueError at test_canary.py", "raised UndecodableArgs", "was cut",
            "returned a str", "was left out", "was settled without its follow-up", "rescuing",
            "too late", "discarded", "(waiting_external)", "ended at last", "Complaining raised ValueError",
        ):  # fmt: skip
            assert path in said, path
        told = {type(event).__name__ for event in keeping.events}
        assert told >= {"Claimed", "Started", "Ended", "Settled", "Discarded", "Stale"}
        for event in keeping.events:
            assert CANARY not in repr(event)

    def check(self, ear: Ear) -> None:
        """No record has the canary, and each that is about a job says which, in one way."""
        assert ear.records
        for text in ear.everything():
            assert CANARY not in text
        for record in ear.records:
            found = re.search(r"\bjob (\d+) \((\w+), attempt (\d+)", record.getMessage())
            if found:
                facts: Any = vars(record)
                about = (str(facts["job_id"]), facts["kind"], str(facts["attempt"]))
                assert about == found.groups()
                assert {"queue", "worker_id"} <= facts.keys()
            else:
                assert not re.search(r"\bjob \d", record.getMessage()), record.getMessage()


class TestOnMemory(Canary):
    @pytest.fixture
    async def client(self) -> awa.Client:
        return memory_client(make_app())


class TestOnCanonical(Canary):
    @pytest.fixture
    async def client(self, canonical: str) -> AsyncIterator[awa.Client]:
        async with awa.connect(canonical, app=make_app()) as client:
            yield client

    @pytest.mark.parametrize("code", ["P0001", "40001", "55P03", "57P03", "22023"])
    @pytest.mark.parametrize("moment", ["claim", "settle", "follow up"])
    async def test_what_a_trigger_says_is_not_logged(
        self, client: awa.Client, canonical: str, ear: Ear, moment: str, code: str
    ) -> None:
        with psycopg.connect(canonical, autocommit=True) as connection:
            [(engine,)] = connection.execute("SELECT awa.engine()").fetchall()
            when, args = {
                ("canonical", "claim"): (
                    "BEFORE UPDATE ON awa.jobs FOR EACH ROW WHEN (new.state = 'running')",
                    "new.args",
                ),
                ("canonical", "settle"): (
                    "BEFORE UPDATE ON awa.jobs FOR EACH ROW WHEN (old.state = 'running')",
                    "new.args",
                ),
                ("canonical", "follow up"): (
                    "BEFORE INSERT ON awa.jobs FOR EACH ROW WHEN (new.kind = 'echo')",
                    "new.args",
                ),
                ("segmented", "claim"): (
                    "BEFORE INSERT ON awa.lane_claims FOR EACH ROW",
                    "(SELECT args FROM awa.lane_jobs LIMIT 1)",
                ),
                ("segmented", "settle"): (
                    "BEFORE INSERT ON awa.lane_ends FOR EACH ROW",
                    "(SELECT args FROM awa.lane_jobs LIMIT 1)",
                ),
                ("segmented", "follow up"): (
                    "BEFORE INSERT ON awa.lane_jobs FOR EACH ROW WHEN (new.kind = 'echo')",
                    "new.args",
                ),
            }[engine, moment]
            connection.execute(
                f"""
                CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    RAISE EXCEPTION 'no: %', {args} USING ERRCODE = '{code}', DETAIL = {args};
                END $$;
                CREATE TRIGGER complain {when} EXECUTE FUNCTION complain();
                """.encode()
            )
        await self.enqueue(client, Sing("complete"))
        app = client._app
        assert app is not None
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                timings = awa.Timings(poll_interval=0.05, finalize_deadline=0.5)
                await awa.run_worker(
                    app, client, timings=timings, grace=0.5, task_status=task_status
                )

            worker = await nursery.start(run)
            complaints = (
                r"claiming: |settling \d+ attempts: |refuses the settlement|gave up|failed \("
            )
            await until(lambda: bool(re.search(complaints, "\n".join(ear.said))))
            worker.stop()
        self.check(ear)

    async def test_a_bug_in_a_service_is_logged_without_its_message(
        self, client: awa.Client, ear: Ear, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise KeyError(CANARY)

        monkeypatch.setattr(dispatch.Dispatcher, "_start", broken)
        await self.enqueue(client, Sing("complete"))
        assert client._app is not None
        with pytest.raises(awa.WorkerCrashed) as caught:
            await awa.run_worker(client._app, client)
        assert CANARY in str(caught.value.__cause__), "whoever started it gets the whole error"
        self.check(ear)
        assert "KeyError" in "\n".join(ear.said)

    async def test_nonsense_on_a_channel_is_not_logged(
        self, client: awa.Client, canonical: str, ear: Ear
    ) -> None:
        assert client._app is not None
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, client._app, client)
            with psycopg.connect(canonical, autocommit=True) as connection:
                connection.execute("SELECT pg_notify('awa:cut', %s)", [CANARY])
            await until(lambda: any("makes no sense" in said for said in ear.said))
            worker.stop()
        self.check(ear)

    async def test_the_command_line_logs_nothing_of_it_either(
        self, client: awa.Client, canonical: str, tmp_path: Path
    ) -> None:
        for mode in MODES[:-1]:
            await self.enqueue(client, Sing(mode))
        log = tmp_path / "log"
        with log.open("w") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "awa_trio", "worker", f"{__file__}:app", "--verbose"],
                env={**os.environ, "AWA_DSN": canonical},
                stdout=output,
                stderr=output,
            )
            try:
                with trio.fail_after(30):
                    while await client.jobs.list(state="available", kind="sing"):
                        await trio.sleep(0.1)
            finally:
                worker.send_signal(signal.SIGINT)
                await trio.to_thread.run_sync(worker.wait, 30)
        assert "raised ValueError" in log.read_text()
        assert CANARY not in log.read_text()


class TestOnSegmented(TestOnCanonical):
    @pytest.fixture
    def canonical(self, segmented: str) -> str:
        return segmented


#: For the command line.
app = make_app()

"""The jobs: what they do is in their arguments, and what they have done in a ledger."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from itertools import count
from typing import Any

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._runtime.job import row_of
from awa_trio.pg import TrioConnection

#: Short, but long enough for a busy machine: what a worker has left of its lease when it
#: takes itself for dead, a fifth, is what its handlers have to notice.
TIMINGS = awa.Timings(
    heartbeat=0.5, lease=2.5, finalize_deadline=2.0, rescue_interval=0.3, poll_interval=0.3,
    reconcile_interval=1.0, call_timeout=1.0, abandon_after=1.0,
)  # fmt: skip

#: The same part of the lease as where nobody sets either.
CANCEL_GRACE = TrioConnection.cancel_grace * TIMINGS.lease / awa.Timings().lease

#: Nothing is removed: all of it is looked at in the end.
RETENTION = awa.Retention(
    completed=float("inf"), failed=float("inf"), dead_letters=float("inf")
)

#: How many items there are to be found: so few that many jobs find the same.
ITEMS = 40

#: The states of a job that is on its way.
ON_ITS_WAY = sum(
    awa.JobState(state).bit for state in ("scheduled", "available", "running", "retryable")
)

#: Seconds until a callback times out, of those that nobody answers, and of others.
SILENT, ANSWERED = 1.5, 600.0


@frozen
class Resolve:
    """Finds items, different ones in each of its runs, and stages follow-ups for them."""

    n: int
    script: list[str]
    """What its runs do: the first the first word, and so on; later ones the last."""
    seconds: float


@frozen
class Index:
    """Once for every item, ever."""

    item: int


@frozen
class Touch:
    """One for an item at a time."""

    item: int


@frozen
class Receipt:
    """One of each run of a `Resolve` that completes."""

    n: int
    run: str
    payload: Any


@frozen
class Note:
    """Registered for each `Resolve` that completes."""

    n: int


@frozen
class Obituary:
    """Registered for each `Resolve` that fails for good."""

    n: int


@frozen
class Own:
    """For one worker alone: whether it still works."""

    slot: int


def soon(attempt: int) -> float:
    """Pauses between attempts are not what is tested."""
    return 0.1


def own_queue(slot: int) -> str:
    """The queue that only one worker serves."""
    return f"own {slot}"


Write = Callable[..., None]


def app_that_tells(write: Write) -> awa.App:
    """Return the app; what its handlers do is written down with `Ledger.write`."""
    app = awa.App()
    app.queue("default", max_workers=8)
    app.queue("items", max_workers=8)
    runs = count()

    @app.task(backoff=soon)
    async def resolve(job: awa.Job[Resolve]) -> awa.RetryAfter | awa.Snooze | Any | None:
        run = f"{os.getpid()}-{time.monotonic_ns()}-{next(runs)}"
        lease = row_of(job).run_lease
        step = job.progress.metadata.get("step", 0)
        word = job.args.script[min(step, len(job.args.script) - 1)]
        job.progress.set(metadata={"step": step + 1})
        found = zlib.crc32(run.encode())
        items = sorted({found % ITEMS, found // 7 % ITEMS, found // 49 % ITEMS})
        # Before it stages anything: whatever is found in the database is in here.
        write(
            "begin", run=run, job=job.id, attempt=job.attempt, lease=lease, items=items, n=job.args.n
        )  # fmt: skip
        how = "cut"
        try:
            answer = job.last_callback
            payload = None if answer is None else answer.payload
            for item in items:
                await trio.sleep(job.args.seconds / 4)
                metadata = {"run": run}
                job.enqueue_on_completion(Index(item), unique_opts={}, metadata=metadata)
                job.enqueue_on_completion(
                    Touch(item), unique_opts={"states": ON_ITS_WAY}, metadata=metadata
                )
            if word in ("wait", "park", "silence") and answer is None:
                silent = word == "silence"
                token = await job.register_callback(SILENT if silent else ANSWERED)
                write("expects", run=run, job=job.id, token=token, silent=silent)
                if word == "park":
                    how = "parked"
                    return awa.WaitForCallback(token)
                write("waits", run=run)
                try:
                    payload = await job.wait_for_callback(token)
                finally:
                    write("waited", run=run)
            await trio.sleep(job.args.seconds / 4)
            job.enqueue_on_completion(Receipt(job.args.n, run, payload), metadata={"run": run})
            how = word
            match word:
                case "retry":
                    return awa.RetryAfter(0.1)
                case "snooze":
                    return awa.Snooze(0.1)
                case "raise":
                    raise ZeroDivisionError("as its script says")
                case "hang":
                    how = "cut"
                    await trio.sleep_forever()
            how = "returned"
            return None
        finally:
            write("end", run=run, how=how)

    @app.task(queue="items", backoff=soon)
    async def index(job: awa.Job[Index]) -> None: ...

    @app.task(queue="items", backoff=soon)
    async def touch(job: awa.Job[Touch]) -> None:
        await trio.sleep(0.02)

    @app.task(queue="items", backoff=soon)
    async def receipt(job: awa.Job[Receipt]) -> None: ...

    @app.task(queue="items", backoff=soon)
    async def note(job: awa.Job[Note]) -> None: ...

    @app.task(queue="items", backoff=soon)
    async def obituary(job: awa.Job[Obituary]) -> None: ...

    @app.task(backoff=soon)
    async def own(job: awa.Job[Own]) -> None: ...

    @app.on_completed(Resolve)
    def completed(args: Resolve, job: awa.JobRow) -> Note:
        return Note(args.n)

    @app.on_exhausted(Resolve)
    def exhausted(args: Resolve, job: awa.JobRow, error: str) -> Obituary:
        return Obituary(args.n)

    return app

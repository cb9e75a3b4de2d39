"""What a soak enqueues, and what it does to that while it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import trio

import awa_trio as awa

from . import app as jobs

#: Of each hundred jobs, how many are of which kind; each with its options.
MIX: tuple[tuple[int, Callable[[int, Random], tuple[object, dict[str, Any]]]], ...] = (
    (20, lambda n, dice: (jobs.Plain(n), {"priority": dice.randint(1, 4)})),
    (16, lambda n, dice: (jobs.Stages([dice.randrange(500) for _ in range(3)]), {})),
    (8, lambda n, dice: (jobs.Plain(dice.randrange(200)), {"unique_opts": {}})),
    (8, lambda n, dice: (jobs.Plain(n), {"run_at": _in(dice.uniform(1, 20))})),
    (8, lambda n, dice: (jobs.Ordered(n), {"ordering_key": f"key {dice.randrange(20)}"})),
    (6, lambda n, dice: (jobs.Flaky(n), {})),
    (6, lambda n, dice: (jobs.Reports(n), {"metadata": {"n": n}, "tags": ["soak"]})),
    (5, lambda n, dice: (jobs.Waits(n), {})),
    (5, lambda n, dice: (jobs.Parks(n), {})),
    (4, lambda n, dice: (jobs.Snoozes(n), {})),
    (4, lambda n, dice: (jobs.InAThread(n), {})),
    (2, lambda n, dice: (jobs.Completes(n), {})),
    (3, lambda n, dice: (jobs.Doomed(n), {})),
    (2, lambda n, dice: (jobs.Overruns(n), {})),
    (2, lambda n, dice: (jobs.WaitsInVain(n), {})),
    (1, lambda n, dice: (jobs.IsCancelled(n), {})),
)


def _in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


class Load:
    """Enqueues jobs at a rate, and deals with them as the world outside would.

    Args:
      client: of the same app as the worker's.
      rate: jobs a second, in all; follow-ups and retries come on top.
      seed: which jobs, and what is done to them.
    """

    def __init__(self, client: awa.Client, rate: float, seed: int) -> None:
        self._client = client
        self._rate = rate
        self._dice = Random(seed)
        self._n = 0
        self.done: Counter[str] = Counter()
        """How often each thing was done."""

    async def run(self) -> None:
        """Go on until cancelled."""
        async with trio.open_nursery() as nursery:
            for every, step in (
                (0.25, self._enqueue),
                (0.1, self._probe),
                (0.5, self._answer),
                (1.0, self._cancel),
                (2.0, self._dead_letters),
            ):
                nursery.start_soon(self._repeat, every, step)

    async def _repeat(self, every: float, step: Any) -> None:
        due = trio.current_time()
        while True:
            await step(every)
            due = max(due + every, trio.current_time())
            await trio.sleep_until(due)

    async def _enqueue(self, seconds: float) -> None:
        count = max(1, round(self._rate * seconds))
        weights = [weight for weight, _ in MIX]
        for _, make in self._dice.choices(MIX, weights, k=count):
            self._n += 1
            args, options = make(self._n, self._dice)
            enqueued = await self._client.enqueue(args, **options)
            self.done["enqueued" if enqueued.inserted else "duplicates"] += 1

    async def _probe(self, _: float) -> None:
        await self._client.enqueue(jobs.Probe(time.time()))
        self.done["probes"] += 1

    async def _answer(self, _: float) -> None:
        """Resolve what waits, in one way or another."""
        callbacks = self._client.callbacks
        for kind in ("waits", "parks"):
            for job in await self._client.jobs.list(state="waiting_external", kind=kind):
                if job.callback_token is None or job.callback_until is None:
                    continue
                do = self._dice.choices(
                    (callbacks.resume, callbacks.complete, callbacks.fail, callbacks.retry,
                     callbacks.heartbeat),
                    (14, 2, 1, 1, 2),
                )[0]  # fmt: skip
                with suppress(awa.CallbackError, awa.InvalidTransition):
                    await do(job.callback_token)
                    self.done[do.__name__] += 1

    async def _cancel(self, _: float) -> None:
        """Cancel what runs for ever; and of what is to run later, now and then one."""
        found = await self._client.jobs.list(state="running", kind="is_cancelled")
        found += await self._client.jobs.list(state="scheduled", kind="plain", limit=1)
        for job in found:
            if await self._client.jobs.cancel(job.id):
                self.done["cancelled"] += 1

    async def _dead_letters(self, _: float) -> None:
        """Let some run again, and remove others."""
        letters = await self._client.dlq.list(limit=3)
        for job in letters:
            with suppress(awa.JobNotFound, awa.InvalidTransition, awa.UniqueConflict):
                if self._dice.random() < 0.5:
                    await self._client.dlq.retry(job.id)
                    self.done["retried dead letters"] += 1
                else:
                    await self._client.dlq.purge(job.id)
                    self.done["purged dead letters"] += 1

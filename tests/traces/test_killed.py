"""Worker processes are killed with -9 while they work; what they committed is what the model allows."""

from __future__ import annotations

import random
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from tests.runtime.app_for_processes import Source
from tests.runtime.test_processes import check as check_rows
from tests.runtime.test_processes import client_of, until_done, worker_process

from . import check, load, recorded, save

KILLS = 10


@pytest.mark.slow
async def test_killed_workers(recording: str, tmp_path: Path) -> None:
    chance = random.Random(46)
    async with client_of(recording) as client:
        sources = 10 * KILLS
        for n in range(sources):
            items = [chance.randrange(20) for _ in range(chance.randrange(1, 5))]
            await client.enqueue(Source(n, items, seconds=0.01), max_attempts=1000)
        with ExitStack() as survivors:
            for _ in range(KILLS):
                with worker_process(recording) as process:
                    await trio.sleep(chance.uniform(0, 0.2))
                    process.send_signal(signal.SIGKILL)
            survivors.enter_context(worker_process(recording))
            jobs = await until_done(client)
    check_rows(jobs, sources)
    # By way of a file, as those do who look at it later.
    save(recorded(recording), tmp_path / "trace")
    verdict = check(load(tmp_path / "trace"))
    assert verdict.misfit is None, str(verdict)
    assert verdict.steps > 5 * sources

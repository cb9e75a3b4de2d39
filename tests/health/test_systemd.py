"""What systemd hears of a worker, on real sockets, and of a real process."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import attrs
import psycopg
import pytest
import trio

import awa_trio as awa
from awa_trio import health
from awa_trio._core.health import WorkerHealth
from awa_trio.testing import memory_client

linux = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")

PROGRAM = """\
import trio
import awa_trio as awa
app = awa.App()

@app.task(kind="slow")
async def slow(job: awa.Job[dict]) -> None:
    await trio.sleep(job.args["seconds"])
"""


class Systemd:
    """The socket that a service is given, and what has been said on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self._socket.settimeout(30)
        self.said: list[str] = []

    def hear_until(self, line: str) -> list[str]:
        """What is said from now on, until a line begins so."""
        heard: list[str] = []
        while not any(one.startswith(line) for one in heard):
            heard += self._socket.recv(65_536).decode().splitlines()
        self.said += heard
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", pytest.param("abstract", marks=linux)])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@awa-{uuid4().hex}"
    made = Systemd(name)
    yield made
    made.close()


def asked(where: str, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(where, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("systemd", ["path"], indirect=True)
def test_a_worker_process_is_ready_watched_and_stopped_in_peace(
    systemd: Systemd, migrated: str, straight: Callable[[str], str], tmp_path: Path
) -> None:
    """As systemd runs it: READY=1 when it has started, WATCHDOG=1 in time, STOPPING=1 at
    SIGTERM; exit code 0 when the running jobs have ended."""
    (tmp_path / "service.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-m", "awa_trio", "worker", "service", "--health", "127.0.0.1:0"],
        cwd=tmp_path,
        env={
            **os.environ,
            "AWA_DSN": migrated,
            "AWA_LISTEN_DSN": straight(migrated),
            "NOTIFY_SOCKET": systemd.name,
            "WATCHDOG_USEC": "200000",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert systemd.hear_until("READY=1")[0] == "READY=1"
        for _ in range(2):
            systemd.hear_until("WATCHDOG=1")
        assert process.stderr is not None
        where = next(line for line in process.stderr if "health is at" in line)
        where = where.split("http://")[1].split("/")[0]
        assert asked(where, "/healthz")[0] == 200
        status, said = asked(where, "/readyz")
        assert (status, said["ready"], said["listening"]) == (200, True, True)
        with psycopg.connect(migrated, autocommit=True) as connection:
            connection.execute("SELECT awa.enqueue('slow', '{\"seconds\": 1}')")
        systemd.hear_until("STATUS=serves default: 1 running")
        process.send_signal(signal.SIGTERM)
        systemd.hear_until("STOPPING=1")
        status, said = asked(where, "/readyz")
        assert (status, said["problems"]) == (503, ["the worker is stopping"])
        assert asked(where, "/healthz")[0] == 200
        systemd.hear_until("WATCHDOG=1")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_an_address_that_is_taken_ends_the_command_before_it_claims_anything(
    migrated: str, tmp_path: Path
) -> None:
    (tmp_path / "service.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "awa_trio", "worker", "service", "--health", where],
            cwd=tmp_path,
            env={**os.environ, "AWA_DSN": migrated},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert "it is in use" in done.stderr


# ---- a worker as it is asked


class Asked:
    """A worker whose health a test decides."""

    queues = ("default",)

    def __init__(self) -> None:
        self.state = WorkerHealth(
            live=True,
            ready=True,
            problems=(),
            worker_id=1,
            stopping=False,
            ended=False,
            listening=True,
            answered=0.0,
        )
        self.changed = trio.Event()

    def health(self, *, answer_within: float | None = None) -> WorkerHealth:
        return self.state

    def statistics(self) -> Any:
        return SimpleNamespace(running=0, waiting=0)

    async def wait_stopping(self) -> None:
        await self.changed.wait()

    async def wait_ended(self) -> None:
        await self.changed.wait()

    def become(self, **changes: Any) -> None:
        self.state = attrs.evolve(self.state, **changes)
        self.changed.set()
        self.changed = trio.Event()


async def test_a_worker_that_is_not_live_feeds_no_watchdog(systemd: Systemd) -> None:
    worker = Asked()
    environ = {"NOTIFY_SOCKET": systemd.name, "WATCHDOG_USEC": "20000"}
    hear = trio.to_thread.run_sync

    async with trio.open_nursery() as nursery:

        async def notify() -> None:
            await health.notify(cast("awa.Worker", worker), environ=environ)

        nursery.start_soon(notify)
        await hear(systemd.hear_until, "WATCHDOG=1")
        worker.become(live=False, ready=False, problems=("the heartbeat\nis gone",))
        await hear(systemd.hear_until, "STATUS=the heartbeat is gone")
        worker.become(live=False, stopping=True)
        [first, *more] = await hear(systemd.hear_until, "STOPPING=1")
        assert (first, more) == ("STOPPING=1", [])
        worker.become(ended=True)
    assert systemd.said.count("READY=1") == 1


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "vsock:2:1234"},
    ],
)
async def test_where_nobody_asks_nothing_is_told(environ: dict[str, str]) -> None:
    with trio.fail_after(5):
        await health.notify(cast("awa.Worker", Asked()), environ=environ)


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_whose_watchdog_it_is(environ: dict[str, str], seconds: float | None) -> None:
    from awa_trio.health._systemd import _watchdog

    assert _watchdog(environ) == seconds


async def test_a_socket_that_is_gone_is_logged_once_and_the_worker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = awa.App()

    @app.task(kind="none")
    async def none(job: awa.Job[dict]) -> None: ...  # type: ignore[type-arg]

    environ = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "10000"}
    with caplog.at_level(logging.WARNING, "awa_trio.worker"):
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, app, memory_client(app))

            async def notify() -> None:
                await health.notify(worker, environ=environ)

            nursery.start_soon(notify)
            await trio.sleep(0.05)
            worker.stop()
    assert [r.message for r in caplog.records if "systemd cannot be told" in r.message] != []
    assert len([r for r in caplog.records if "systemd" in r.message]) == 1

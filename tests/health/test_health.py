"""Whether a worker is well: decided, asked of a worker, and answered over HTTP to anybody."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio

import awa_trio as awa
from awa_trio import health
from awa_trio._core.health import COMES_ROUND, Vitals, judge
from awa_trio._seam.errors import Transient
from awa_trio.health import _serving
from awa_trio.testing import memory_client

from ..runtime.rig import Rig

WELL = Vitals(
    worker_id=7,
    stopping=False,
    ended=False,
    came_round=1.0,
    answered=1.0,
    listens=True,
    hears=True,
)


@pytest.mark.parametrize(
    ("changes", "live", "ready", "problem"),
    [
        ({}, True, True, ""),
        ({"hears": False}, True, True, ""),
        ({"stopping": True}, True, False, "stopping"),
        ({"worker_id": None}, True, False, "presumed dead"),
        ({"answered": 15.0}, True, True, ""),
        ({"answered": 16.0}, True, False, "the database has not answered for 16 s"),
        ({"came_round": COMES_ROUND + 1}, False, False, "the heartbeat has not come round"),
        ({"ended": True, "worker_id": None}, False, False, "the worker has ended"),
    ],
)
def test_live_is_what_a_restart_mends_and_ready_what_it_can_do_now(
    changes: dict[str, Any], live: bool, ready: bool, problem: str
) -> None:
    found = judge(attrs.evolve(WELL, **changes), lease=30.0, heartbeat=5.0, answer_within=None)
    assert (found.live, found.ready) == (live, ready)
    assert problem in "; ".join(found.problems)
    assert len(found.problems) == bool(problem)


async def wait(job: awa.Job[Any]) -> None:
    await trio.sleep(2)


@pytest.mark.virtual_time
async def test_a_worker_whose_database_is_silent_is_live_and_not_ready() -> None:
    rig = Rig(wait)

    async def silent(worker: int) -> bool:
        raise Transient("no answer")

    async with rig.working() as worker:
        await trio.sleep(6)
        assert (worker.health().ready, worker.health().problems) == (True, ())
        store = rig.backend.store
        beat, store.beat = store.beat, silent  # type: ignore[method-assign]
        await trio.sleep(16)
        found = worker.health()
        assert (found.live, found.ready) == (True, False)
        assert "the database has not answered" in found.problems[0]
        assert worker.health(answer_within=60).ready
        store.beat = beat  # type: ignore[method-assign]
        await trio.sleep(5)
        assert worker.health().ready


@pytest.mark.virtual_time
async def test_a_worker_says_that_it_stops_and_that_it_has_ended() -> None:
    rig = Rig(wait)
    await rig.enqueue()
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(rig.run)
        await trio.sleep(1)
        worker.stop()
        await worker.wait_stopping()
        found = worker.health()
        assert (found.live, found.ready, found.stopping) == (True, False, True)
        await worker.wait_ended()
        found = worker.health()
        assert (found.live, found.ready, found.ended) == (False, False, True)
        assert found.problems == ("the worker has ended",)


@pytest.mark.virtual_time
async def test_whatever_ends_a_worker_is_told_to_those_who_wait() -> None:
    rig = Rig(wait)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(rig.run)
            scope.cancel()
    with trio.fail_after(1):
        await worker.wait_stopping()
        await worker.wait_ended()


# ---- HTTP


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[awa.Worker, int]]:
    """A worker, and the port where its health is served."""
    app = awa.App()
    app.task(kind="work")(wait_for)
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, memory_client(app))
        [where] = await nursery.start(partial(health.serve, worker, "127.0.0.1:0", **options))
        yield worker, int(where.rpartition(":")[2])
        worker.stop()


async def wait_for(job: awa.Job[dict]) -> None: ...  # type: ignore[type-arg]


async def asked(port: int, request: bytes) -> tuple[bytes, bytes]:
    """The head and the body of the answer; empty if there is none."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        answer = b"".join([part async for part in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_probes_are_answered_until_the_worker_has_ended() -> None:
    async with serving() as (worker, port):
        for path in ("/healthz", "/readyz", "/readyz?verbose=1"):
            head, body = await asked(port, get(path))
            assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
            assert b"connection: close" in head.lower()
            said = json.loads(body)
            assert (said["ok"], said["problems"], said["worker"]) == (True, [], worker.id)
        head, body = await asked(port, get("/healthz", "HEAD"))
        assert head.startswith(b"HTTP/1.1 200 ")
        assert (b"content-length: 0" in head.lower(), body) == (False, b"")
    # `serve` has returned, for the nursery that it was in has closed.
    with pytest.raises(OSError, match="connect"):
        await asked(port, get("/healthz"))


async def test_a_worker_that_is_not_ready_answers_503_with_the_reason() -> None:
    async with serving(answer_within=0.0) as (_, port):
        await trio.sleep(0.001)
        head, body = await asked(port, get("/readyz"))
        assert head.startswith(b"HTTP/1.1 503 ")
        [problem] = json.loads(body)["problems"]
        assert "the database has not answered" in problem
        head, _ = await asked(port, get("/healthz"))
        assert head.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), b"404"),
        (get("/healthz/.."), b"404"),
        (get("http://x/healthz"), b"404"),
        (get("/healthz", "POST"), b"405"),
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789", b"405"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"400"),
        (b"\x00\xff\x16\x03\x01garbage\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5_000, b"431"),
        (get("/healthz") + get("/readyz") * 100, b"200"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
    ],
)
async def test_whatever_else_comes_is_answered_too(request_: bytes, status: bytes) -> None:
    async with serving() as (_, port):
        head, body = await asked(port, request_)
        assert head.split()[1] == status
        json.loads(body)
        head, _ = await asked(port, get("/healthz"))
        assert head.startswith(b"HTTP/1.1 200 ")


async def test_who_says_nothing_or_little_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_serving, "PATIENCE", 0.3)
    async with serving() as (_, port):
        slow = await trio.open_tcp_stream("127.0.0.1", port)
        async with slow:
            await slow.send_all(b"GET /healthz HTTP/1.1\r\nX: ")
            with trio.fail_after(5):
                assert await until_closed(slow) == b""


async def test_too_many_at_once_keep_no_probe_from_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest is closed for each that comes: a probe is not there for long enough."""
    monkeypatch.setattr(_serving, "PATIENCE", 60.0)
    monkeypatch.setattr(_serving, "MOST", 8)
    async with serving() as (_, port):
        slow = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(20)]
        with trio.fail_after(10):
            for stream in slow[:12]:
                assert await until_closed(stream) == b""
            for _ in range(3):
                head, _ = await asked(port, get("/readyz"))
                assert head.startswith(b"HTTP/1.1 200 ")
        for stream in slow:
            await stream.aclose()


async def until_closed(stream: trio.SocketStream) -> bytes:
    """What comes until the other side closes, or resets."""
    try:
        return bytes(await stream.receive_some())
    except trio.BrokenResourceError:
        return b""


@pytest.mark.parametrize(
    "bind",
    ["", "host", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "::1:80", ":80", "1.2.3"],
)
async def test_what_is_no_address_is_refused(bind: str) -> None:
    with pytest.raises(awa.ConfigurationError, match=r"is no address; give HOST:PORT"):
        await health.listen(bind)


async def test_an_address_that_is_taken_is_named() -> None:
    [first] = await health.listen("0")
    host, port = first.socket.getsockname()
    assert host == "127.0.0.1"
    async with first:
        with pytest.raises(awa.ConfigurationError, match=r"it is in use\); give another"):
            await health.listen(f"127.0.0.1:{port}")


async def test_without_h11_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(awa.ConfigurationError, match=r"pip install 'awa-trio\[health\]'"):
        await health.listen("0")


def test_the_default_is_the_loopback_address() -> None:
    assert _serving.DEFAULT_BIND.startswith("127.0.0.1:")

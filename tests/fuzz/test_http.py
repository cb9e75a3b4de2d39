"""What the internet sends to a receiver of callbacks: an answer, and nothing is resolved by it."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio.callbacks import Receiver, receiver, sign
from awa_trio.callbacks._receiver import MOST_PIECES
from awa_trio.testing import memory_client
from tests.test_receiver import NOW, PROGRAM, SECRET, app, parked, post, served

from .nasty import text

S = awa.JobState
STATUSES = {400, 401, 403, 404, 405, 408, 413, 431}


def garbage(chance: Random) -> bytes:
    return chance.choice(
        [
            b"", b"{", b"null", b"[" * 100_000, b'{"error": 5}', b'{"timeout": NaN}', b"\xff\xfe",
            b'{"timeout": 1e999}', b'{"timeout": "x"}', b'{"timeout": -1}', b"1" * 5000,
            b'{"error": "\\u0000"}', b'{"error": "\\ud800"}', b'"\\ud800"', b'{"a":1,"a":2}',
            b"[1, 2", b'{"x": 1}', b"x" * 600_000, b'"' + b"y" * 70_000 + b'"', b"\x00",
            b'{"timeout": true}', b'{"error": null}', b'{"timeout": 1e-9}', b"-", b"Infinity",
            text(chance).encode(errors="surrogatepass"),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seed", "cases"),
    [(1, 400), *(pytest.param(n, 5000, marks=pytest.mark.slow) for n in range(2, 8))],
)
async def test_requests(seed: int, cases: int) -> None:
    chance = Random(seed)
    client = memory_client(app)
    api = receiver(client, secret=SECRET, clock=lambda: NOW)
    token = await parked(client)
    seen: set[int] = set()
    for case in range(cases):
        action = chance.choice(
            ["fail", "heartbeat", "retry", "resume", "complete", text(chance)]
        )
        body = garbage(chance)
        headers: dict[str, str] = {}
        changes: dict[str, Any] = {}
        known = chance.random() < 0.5
        signed = chance.random() < 0.5
        target = (
            token if known else chance.choice(["x", "a" * 200, "a" * 201, "..", text(chance)])
        )
        if known and signed:
            # Believed, so the body must be what is refused.
            action = chance.choice(["fail", "heartbeat"])
            body = chance.choice(
                [b'{"error": 5, "timeout": 5}', b"[]", b"{", b"x" * 600_000, b'{"timeout": 0}', b"7",
                 b'{"error": "\\u0000", "x": 1}', b"\xff", b'{"timeout": 1e400}', b"NaN", b"[" * 9999]
            )  # fmt: skip
            if action == "fail":
                body = body.replace(b'{"timeout"', b'{"timeouts"')
        elif not signed:
            good = sign(
                SECRET, target.encode(errors="replace").decode(), "fail", body, timestamp=NOW
            )
            headers = chance.choice(
                [
                    {},
                    {"awa-timestamp": str(NOW)},
                    {"awa-timestamp": str(NOW), "awa-signature": "v1=" + "0" * 64},
                    {"awa-timestamp": "9" * 5000, "awa-signature": good["Awa-Signature"]},
                    {"awa-timestamp": str(NOW + 301), "awa-signature": good["Awa-Signature"]},
                    {"awa-timestamp": "-1", "awa-signature": "v1=" + "é" * 64},
                    {"awa-timestamp": str(NOW), "awa-signature": "," * 10_000},
                    {"awa-timestamp": str(NOW), "awa-signature": good["Awa-Signature"][:-1]},
                    {
                        "awa-timestamp": str(NOW),
                        "awa-signature": "v2" + good["Awa-Signature"][2:],
                    },
                ]
            )
        if chance.random() < 0.1:
            changes = chance.choice(
                [
                    {"method": "GET"},
                    {"path": "/callbacks/" + text(chance)},
                    {"path": ""},
                    {"root_path": "/callbacks"},
                    {"headers": [(b"\xff", b"\xff"), (b"awa-timestamp", b"\xff" * 100)]},
                ]
            )
        if not known and signed:
            target = "nobody"
        raw = {k: v.encode("latin-1", "replace").decode("latin-1") for k, v in headers.items()}
        changes.setdefault(
            "headers",
            [(k.encode(), v.encode("latin-1", "replace")) for k, v in raw.items()]
            if not signed
            else [
                (k.lower().encode(), v.encode())
                for k, v in sign(SECRET, target, _ascii(action), body, timestamp=NOW).items()
            ],
        )
        changes.setdefault("path", f"/callbacks/{target}/{action}")
        status, answer = await ask(api, {"type": "http", "method": "POST"} | changes, body)
        seen.add(status)
        assert status in STATUSES, (case, changes, body[:100], answer)
        assert set(answer) == {"error", "message"}
        assert token not in json.dumps(answer)
        assert SECRET not in json.dumps(answer)
    assert seen >= {400, 401, 404, 405, 413}
    assert (await client.jobs.get(1)).state is S.WAITING_EXTERNAL
    # And yet it is served.
    assert (await post(api, token, "complete", b"1"))[0] == 200


async def ask(api: Receiver, scope: dict[str, Any], body: bytes) -> tuple[int, Any]:
    """Send a request as a server might that checks nothing."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await api(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def _ascii(action: str) -> str:
    return action.encode(errors="replace").decode()


async def test_a_body_in_crumbs_is_refused() -> None:
    client = memory_client(app)
    api = receiver(client, secret=SECRET, clock=lambda: NOW)
    token = await parked(client)
    received = 0
    sent: list[Any] = []

    async def receive() -> Any:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/callbacks/{token}/fail",
        "headers": [],
    }
    await api(scope, receive, send)
    assert sent[0]["status"] == 413
    assert received == MOST_PIECES + 1


async def test_a_body_that_does_not_come_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = memory_client(app)
    api = receiver(client, secret=SECRET, clock=lambda: NOW, read_within=10)
    token = await parked(client)
    sent: list[Any] = []

    async def receive() -> Any:
        await trio.sleep(0.9)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    began = trio.current_time()
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/callbacks/{token}/fail",
        "headers": [],
    }
    await api(scope, receive, send)
    assert trio.current_time() - began == pytest.approx(10)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    # What is no callback is not read at all.
    sent.clear()
    await api(scope | {"path": "/other"}, receive, send)
    assert sent[0]["status"] == 404
    assert trio.current_time() - began == pytest.approx(10)


@pytest.mark.parametrize("read_within", [0, -1, float("nan"), float("inf"), "1", True, None])
def test_a_time_to_read_that_is_none_is_refused(read_within: Any) -> None:
    with pytest.raises(awa.ConfigurationError, match="read_within"):
        receiver(memory_client(app), secret=SECRET, read_within=read_within)


# ---- a real process, and raw sockets


@contextmanager
def serving(folder: Path, dsn: str) -> Iterator[tuple[tuple[str, int], subprocess.Popen[str]]]:
    pytest.importorskip("hypercorn")
    (folder / "program.py").write_text(PROGRAM)
    with served("program:app", "--bind", "127.0.0.1:0", folder=folder, dsn=dsn) as process:
        assert process.stderr is not None
        line = ""
        while "received at" not in line:
            line = process.stderr.readline()
            assert line, "it did not start"
        host, port = line.split("http://")[1].split("/")[0].split(":")
        yield (host, int(port)), process


def request(token: str, action: str, body: bytes, *, length: bytes | None = None) -> bytes:
    head = f"POST /callbacks/{token}/{action} HTTP/1.1\r\nHost: x\r\n".encode()
    for name, value in sign(SECRET, token, action, body).items():
        head += f"{name}: {value}\r\n".encode()
    return head + b"Content-Length: %s\r\n\r\n" % (length or b"%d" % len(body)) + body


def status_of(address: tuple[str, int], raw: bytes) -> int:
    """Send something; the status of the first answer, 0 if the connection was closed without."""
    with socket.create_connection(address, timeout=60) as connection:
        answer = b""
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while b"\r\n" not in answer:
                part = connection.recv(65_536)
                if not part:
                    break
                answer += part
        except OSError:
            pass  # It was reset, in the middle of what was too much.
    return int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/") else 0


def raw_requests(token: str) -> Iterator[tuple[str, bytes]]:
    good = request(token, "heartbeat", b"")
    yield "nothing", b""
    yield "noise", bytes(range(256)) * 100
    yield "the start of a request", good[:20]
    yield "a head without an end", good[:-2]
    yield "half a body", request(token, "fail", b'{"error": "x"}', length=b"100")
    yield "a negative length", request(token, "fail", b"{}", length=b"-5")
    yield "a length that is none", request(token, "fail", b"{}", length=b"abc")
    yield "two lengths", good.replace(b"Host: x", b"Content-Length: 7\r\nHost: x")
    yield "an endless head", b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000
    yield "a long line", b"POST /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n"
    yield "a huge body", request(token, "complete", b" " * 600_000 + b"1")
    yield "smuggling", good.replace(b"Content-Length: 0", b"Content-Length: 5\r\nTransfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n"  # fmt: skip
    yield "bad chunks", good.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"zz\r\n\r\n"  # fmt: skip
    yield "endless chunks", good.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 50_000  # fmt: skip
    yield "HTTP/2 without asking", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 100
    yield "an upgrade", good.replace(b"POST", b"GET").replace(b"Host: x", b"Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")  # fmt: skip
    yield "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 300
    yield "a path with a NUL", good.replace(b"/callbacks/", b"/callbacks/\0")
    yield "two signatures", good.replace(b"Host: x", b"Awa-Timestamp: 1\r\nHost: x")


async def test_raw_sockets(migrated: str, tmp_path: Path) -> None:
    async with awa.connect(migrated, app=app) as client:
        token = await parked(client)
        with serving(tmp_path, migrated) as (address, process):
            statuses: dict[str, int] = {}

            async def ask(name: str, raw: bytes) -> None:
                statuses[name] = await trio.to_thread.run_sync(status_of, address, raw)

            one = request(token, "heartbeat", b'{"timeout": 600}')
            async with trio.open_nursery() as nursery:
                for name, raw in raw_requests(token):
                    nursery.start_soon(ask, name, raw)
                    # Nobody else is held up, and nothing is resolved.
                    nursery.start_soon(ask, f"beside {name}", one)
            for name, status in statuses.items():
                assert status in ({200} if name.startswith("beside") else STATUSES | {0}), name
            # One after the other in one connection, sent at once.
            pipelined = request(token, "heartbeat", b'{"timeout": 600}') * 200
            assert await trio.to_thread.run_sync(status_of, address, pipelined) == 200
            process.terminate()
            assert process.stderr is not None
            said = await trio.to_thread.run_sync(process.stderr.read)
            assert process.wait(30) == 0
            assert "Traceback" not in said
            assert token not in said
            assert SECRET not in said
        assert (await client.jobs.get(1)).state is S.WAITING_EXTERNAL


async def test_slow_clients_hold_up_nobody_else_and_not_the_end(
    migrated: str, tmp_path: Path
) -> None:
    async with awa.connect(migrated, app=app) as client:
        token = await parked(client)
        with serving(tmp_path, migrated) as (address, process), ExitStack() as slow:
            for n in range(120):
                connection = slow.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(address)
                whole = request(token, "fail", b"{}", length=b"100")
                if n:
                    # Heads and bodies that come no further.
                    connection.sendall(whole[: 30 if n % 3 else len(whole)])
                else:
                    # And one that asks and reads no answer.
                    connection.setblocking(False)
                    with pytest.raises(BlockingIOError):
                        for _ in range(10_000):
                            connection.send(request(token, "retry", b"[]") * 20)
            one = request(token, "heartbeat", b'{"timeout": 600}')
            for _ in range(20):
                assert await trio.to_thread.run_sync(status_of, address, one) == 200
            with trio.fail_after(60):
                while process.poll() is None:
                    process.terminate()
                    await trio.sleep(0.2)
            assert process.returncode in (0, 143)
        assert (await client.jobs.get(1)).state is S.WAITING_EXTERNAL

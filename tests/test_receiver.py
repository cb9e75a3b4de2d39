"""Callbacks over HTTP: who is believed, what is done, and what is answered."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.callbacks import Receiver, receiver, sign
from awa_trio.cli._main import run
from awa_trio.testing import memory_client, work_one

S = awa.JobState
SECRET = "a secret of sixteen or more"
NOW = 1_700_000_000
app = awa.App()


@frozen
class Park:
    pass


@app.task()
async def park(job: awa.Job[Park]) -> object:
    if job.last_callback is not None:
        return None
    return awa.WaitForCallback(await job.register_callback(timeout=60))


@pytest.fixture
async def client() -> awa.Client:
    return memory_client(app)


@pytest.fixture
def api(client: awa.Client) -> Receiver:
    return receiver(client, secret=SECRET, clock=lambda: NOW)


async def parked(client: awa.Client) -> str:
    await client.enqueue(Park())
    worked = await work_one(app, client)
    assert worked is not None
    assert worked.job.callback_token is not None
    return worked.job.callback_token


async def post(
    api: Receiver,
    token: str,
    action: str,
    body: bytes = b"",
    *,
    signed: bool = True,
    headers: dict[str, str] | None = None,
    **changes: Any,
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Send one request in two pieces; return the answer's status, body and headers."""
    given = sign(SECRET, token, action, body, timestamp=NOW) if signed else {}
    given |= headers or {}
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/callbacks/{token}/{action}",
        "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
    } | changes
    middle = len(body) // 2
    pieces = [
        {"type": "http.request", "body": body[:middle], "more_body": True},
        {"type": "http.request", "body": body[middle:]},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return pieces.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await api(scope, receive, send)
    [start, end] = sent
    answered = {k.decode(): v.decode() for k, v in start["headers"]}
    assert answered["content-length"] == str(len(end["body"]))
    return start["status"], json.loads(end["body"]), answered


# ---- what is done


async def test_a_resume_with_its_payload(client: awa.Client, api: Receiver) -> None:
    token = await parked(client)
    status, answer, _ = await post(api, token, "resume", b'{"paid": true}')
    assert (status, answer) == (200, {"job_id": 1})
    job = await client.jobs.get(1)
    assert job.state is S.AVAILABLE
    assert json.loads(job.raw_callback_answer or b"")["payload"] == {"paid": True}


@pytest.mark.parametrize(
    ("action", "body", "state"),
    [
        ("resume", b"", S.AVAILABLE),
        ("resume", b"null", S.AVAILABLE),
        ("complete", b"[1]", S.COMPLETED),
        ("fail", b"", S.FAILED),
        ("fail", b'{"error": "declined"}', S.FAILED),
        ("retry", b"", S.AVAILABLE),
        ("retry", b"{}", S.AVAILABLE),
        ("heartbeat", b"", S.WAITING_EXTERNAL),
        ("heartbeat", b'{"timeout": 5}', S.WAITING_EXTERNAL),
    ],
)
async def test_every_action(
    client: awa.Client, api: Receiver, action: str, body: bytes, state: awa.JobState
) -> None:
    token = await parked(client)
    assert (await post(api, token, action, body))[:2] == (200, {"job_id": 1})
    job = await client.jobs.get(1)
    assert job.state is state
    if b"declined" in body:
        assert job.errors[-1].error == "declined"
    if action != "heartbeat":
        status, answer, _ = await post(api, token, action, body)
        assert (status, answer["error"], answer["job_id"]) == (409, "already_resolved", 1)


async def test_a_receiver_may_be_mounted_anywhere(client: awa.Client) -> None:
    token = await parked(client)
    api = receiver(lambda: client, secret=SECRET, prefix="", clock=lambda: NOW)
    # Some frameworks leave where it is mounted on the path, and some take it off.
    for path, root in (
        (f"/hooks/{token}/heartbeat", "/hooks"),
        (f"/{token}/heartbeat", "/hooks"),
    ):
        assert (await post(api, token, "heartbeat", path=path, root_path=root))[0] == 200


# ---- who is believed


@pytest.mark.parametrize(
    "forgery",
    [
        "no signature",
        "no timestamp",
        "another secret",
        "another body",
        "another action",
        "another token",
        "another timestamp",
        "too old",
        "from the future",
        "two timestamps",
        "no number",
        "not even ASCII",
    ],
)
async def test_a_request_that_was_not_signed_by_a_sender_is_refused(
    client: awa.Client, api: Receiver, forgery: str
) -> None:
    token = await parked(client)
    body = b'{"paid": true}'
    headers = sign(SECRET, token, "resume", body, timestamp=NOW)
    sent = body
    match forgery:
        case "no signature":
            del headers["Awa-Signature"]
        case "no timestamp":
            del headers["Awa-Timestamp"]
        case "another secret":
            headers = sign(SECRET + "!", token, "resume", body, timestamp=NOW)
        case "another body":
            sent = b'{"paid": 1}'
        case "another action":
            headers = sign(SECRET, token, "complete", body, timestamp=NOW)
        case "another token":
            headers = sign(SECRET, token + "x", "resume", body, timestamp=NOW)
        case "another timestamp":
            headers["Awa-Timestamp"] = str(NOW + 1)
        case "too old":
            headers = sign(SECRET, token, "resume", body, timestamp=NOW - 301)
        case "from the future":
            headers = sign(SECRET, token, "resume", body, timestamp=NOW + 301)
        case "two timestamps":
            headers["awa-timestamp"] = str(NOW)
        case "no number":
            headers["Awa-Timestamp"] = "1_700_000_000"
        case "not even ASCII":
            headers["Awa-Signature"] = "v1=é"
    status, answer, _ = await post(api, token, "resume", sent, signed=False, headers=headers)
    assert (status, answer["error"]) == (401, "unverified")
    assert (await client.jobs.get(1)).state is S.WAITING_EXTERNAL


async def test_a_token_is_not_looked_up_for_those_who_are_not_believed(api: Receiver) -> None:
    """Or they could find out which exist."""
    assert (await post(api, "nobody", "resume", signed=False))[0] == 401
    assert (await post(api, "nobody", "resume"))[0] == 404


async def test_a_replay_within_the_window_resolves_nothing_twice(
    client: awa.Client, api: Receiver
) -> None:
    token = await parked(client)
    assert [(await post(api, token, "resume"))[0] for _ in range(3)] == [200, 409, 409]


@pytest.mark.parametrize("window", [float("nan"), float("inf"), -1, True, "300", None])
async def test_a_window_that_lets_any_timestamp_through_or_none_is_refused(
    client: awa.Client, window: Any
) -> None:
    with pytest.raises(awa.ConfigurationError, match=r"^window: give seconds"):
        receiver(client, secret=SECRET, window=window)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"most_bytes": 0}, awa.ConfigurationError, "most_bytes: give a number"),
        ({"most_bytes": float("nan")}, awa.ConfigurationError, "most_bytes: give a number"),
        ({"prefix": 5}, TypeError, "prefix: give a str, not int"),
        ({"secret": bytearray(b"sixteen and more")}, TypeError, "secret: give str or bytes"),
        ({"secret": [SECRET, 5]}, TypeError, "secret: give str or bytes"),
        ({"client": None}, TypeError, "client: give a Client"),
    ],
)
async def test_what_a_receiver_cannot_be_made_of(
    client: awa.Client, options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=f"^{problem}"):
        receiver(**{"client": client, "secret": SECRET} | options)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-300, 0, 300])
async def test_the_window_is_five_minutes_each_way(
    client: awa.Client, api: Receiver, seconds: int
) -> None:
    token = await parked(client)
    headers = sign(SECRET, token, "resume", timestamp=NOW + seconds)
    assert (await post(api, token, "resume", signed=False, headers=headers))[0] == 200


async def test_a_secret_is_replaced_without_a_gap(client: awa.Client) -> None:
    old, new = "the old secret, long enough", b"the new secret, long enough"
    api = receiver(client, secret=[new, old], clock=lambda: NOW)
    token = await parked(client)
    for secret in (old, new):
        headers = sign(secret, token, "heartbeat", timestamp=NOW)
        assert (await post(api, token, "heartbeat", signed=False, headers=headers))[0] == 200
    both = [sign(s, token, "heartbeat", timestamp=NOW)["Awa-Signature"] for s in (old, SECRET)]
    headers = {"Awa-Timestamp": str(NOW), "Awa-Signature": ", ".join(both)}
    assert (await post(api, token, "heartbeat", signed=False, headers=headers))[0] == 200


def test_the_signature_is_what_the_documentation_says() -> None:
    """So that senders in other languages can match it: openssl dgst -sha256 -hmac ..."""
    headers = sign("0123456789abcdef", "token", "resume", b'{"n":1}', timestamp=1_700_000_000)
    assert headers == {
        "Awa-Timestamp": "1700000000",
        "Awa-Signature": "v1=68f7a1cbf26cd3bbc0bd97742403dc4c7146ca71be4dc93d327008bc848459e3",
    }


async def test_unsigned_must_be_said(client: awa.Client) -> None:
    with pytest.raises(awa.ConfigurationError, match="unsigned=True"):
        receiver(client)
    with pytest.raises(TypeError, match="unsigned: give True or False, not str"):
        receiver(client, unsigned="false")  # type: ignore[arg-type]
    with pytest.raises(awa.ConfigurationError, match="contradict"):
        receiver(client, secret=SECRET, unsigned=True)
    for secret in ("short", b"short", ["", SECRET]):
        with pytest.raises(awa.ConfigurationError, match="at least 16"):
            receiver(client, secret=secret)
    for prefix in ("callbacks", "/callbacks/", "/"):
        with pytest.raises(awa.ConfigurationError, match="prefix"):
            receiver(client, secret=SECRET, prefix=prefix)
    with pytest.raises(awa.ConfigurationError, match="not text in UTF-8"):
        receiver(client, secret="\ud800" * 20)
    token = await parked(client)
    assert (await post(receiver(client, unsigned=True), token, "resume", signed=False))[
        0
    ] == 200


# ---- what is answered


@pytest.mark.parametrize(
    ("action", "body", "status", "error"),
    [
        ("resume", b"{", 400, "invalid"),
        ("resume", b"\xff", 400, "invalid"),
        ("resume", b"NaN", 400, "invalid"),
        ("resume", b"1e999", 400, "invalid"),
        ("resume", b"[" * 100_000, 400, "invalid"),
        ("resume", b"[" * 80 + b"]" * 80, 400, "invalid"),
        ("resume", b'"' + b"x" * 70_000 + b'"', 400, "invalid"),
        ("resume", b'"\\u0000"', 400, "invalid"),
        ("resume", b'"' + b"x" * 600_000 + b'"', 413, "too_large"),
        ("fail", b'"no"', 400, "invalid"),
        ("fail", b'{"error": 5}', 400, "invalid"),
        ("fail", b'{"why": "x"}', 400, "invalid"),
        ("fail", b'{"without_follow_ups": true}', 400, "invalid"),
        ("retry", b"[]", 400, "invalid"),
        ("retry", b"null", 400, "invalid"),
        ("heartbeat", b'{"timeout": 0}', 400, "invalid"),
        ("heartbeat", b'{"timeout": "60"}', 400, "invalid"),
        ("heartbeat", b'{"timeout": 1' + b"0" * 400 + b"}", 400, "invalid"),
        ("delete", b"", 404, "no_such_path"),
    ],
)
async def test_a_body_that_makes_no_sense(
    client: awa.Client, api: Receiver, action: str, body: bytes, status: int, error: str
) -> None:
    token = await parked(client)
    got, answer, headers = await post(api, token, action, body)
    assert (got, answer["error"]) == (status, error)
    assert answer["message"]
    assert headers["content-type"] == "application/json"
    assert (await client.jobs.get(1)).state is S.WAITING_EXTERNAL


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/callbacks",
        "/callbacks/",
        "/callbacks/t",
        "/callbacks/t/resume/",
        "/callbacks/t/RESUME",
        "/callbacks/t\n/resume",
        "/callbacks/../resume",
        "/callbacks/é/resume",
        f"/callbacks/{'x' * 201}/resume",
        "/callbackst/resume",
    ],
)
async def test_another_path_is_not_found(api: Receiver, path: str) -> None:
    assert (await post(api, "t", "resume", path=path))[0] == 404


async def test_another_method_is_not_allowed(api: Receiver) -> None:
    status, _, headers = await post(api, "t", "resume", method="GET")
    assert (status, headers["allow"]) == (405, "POST")


async def test_a_receiver_that_does_not_know_the_follow_ups_says_so(client: awa.Client) -> None:
    stranger = awa.Client(client._backend, None)
    token = await parked(client)
    api = receiver(stranger, secret=SECRET, clock=lambda: NOW)
    status, answer, _ = await post(api, token, "complete")
    assert (status, answer["error"]) == (500, "follow_ups_unknown")
    api = receiver(stranger, secret=SECRET, without_follow_ups=True, clock=lambda: NOW)
    assert (await post(api, token, "complete"))[0] == 200


async def test_a_job_that_does_not_wait_yet_cannot_be_retried(client: awa.Client) -> None:
    tokens = []
    running = awa.App()

    @running.task(args=Park)
    async def park(job: awa.Job[Park]) -> None:
        tokens.append(await job.register_callback())
        api = receiver(client, secret=SECRET, clock=lambda: NOW)
        status, answer, _ = await post(api, tokens[0], "retry")
        assert (status, answer["error"]) == (409, "not_waiting")

    await client.enqueue(Park())
    worked = await work_one(running, client)
    assert worked is not None
    assert worked.state is S.COMPLETED


async def test_a_database_that_is_away_is_worth_another_try(
    client: awa.Client, api: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*given: object, **more: object) -> int:
        raise awa.DatabaseUnavailable("server db.internal is down")

    monkeypatch.setattr(awa.Callbacks, "resume", away)
    status, answer, headers = await post(api, "t", "resume")
    assert (status, answer["error"], headers["retry-after"]) == (503, "unavailable", "1")
    assert "db.internal" not in answer["message"]


async def test_a_sender_that_goes_away_is_not_answered(api: Receiver) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/callbacks/t/resume", "headers": []}
    await api(scope, receive, send)
    assert sent == []


async def test_it_lives_as_servers_ask_and_speaks_no_websocket(api: Receiver) -> None:
    asked = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return asked.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await api({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    asked.append({"type": "websocket.connect"})
    await api({"type": "websocket"}, receive, send)
    assert sent[2:] == ["websocket.close"]


# ---- on asyncio, and on a real socket


def test_it_runs_on_asyncio(migrated: str) -> None:
    async def park_one() -> str:
        async with awa.connect(migrated, app=app) as client:
            return await parked(client)

    async def main(token: str) -> int:
        async with awa.connect(migrated, app=app) as client:
            api = receiver(client, secret=SECRET, clock=lambda: NOW)
            return (await post(api, token, "complete", b"1"))[0]

    token = trio.run(park_one)
    assert asyncio.run(main(token)) == 200


PROGRAM = """
from attrs import frozen
import awa_trio as awa

app = awa.App()

@frozen
class Park:
    pass

@app.task()
async def park(job: awa.Job[Park]) -> None: ...
"""


@contextmanager
def served(*arguments: str, folder: Path, dsn: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"AWA_DSN": dsn, "AWA_CALLBACK_SECRET": SECRET, "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "awa_trio", "callbacks", "serve", *arguments],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


async def test_the_command_serves_on_a_real_socket(migrated: str, tmp_path: Path) -> None:
    pytest.importorskip("hypercorn")
    (tmp_path / "program.py").write_text(PROGRAM)
    async with awa.connect(migrated, app=app) as client:
        token = await parked(client)
        with served(
            "program:app", "--bind", "127.0.0.1:0", folder=tmp_path, dsn=migrated
        ) as process:
            assert process.stderr is not None
            line = ""
            while "received at" not in line:
                line = process.stderr.readline()
                assert line, "it did not start"
            address = line.split("http://")[1].split("/")[0]

            def talk() -> list[int]:
                connection = http.client.HTTPConnection(address, timeout=30)
                statuses = []
                path = f"/callbacks/{token}/complete"
                for headers in ({}, sign(SECRET, token, "complete", b'{"a":1}')):
                    connection.request("POST", path, b'{"a":1}', headers)
                    response = connection.getresponse()
                    assert json.loads(response.read())
                    statuses.append(response.status)
                connection.close()
                return statuses

            assert await trio.to_thread.run_sync(talk) == [401, 200]
            process.terminate()
            rest = await trio.to_thread.run_sync(process.stderr.read)
            assert process.wait(30) == 0
            assert token not in rest
        assert (await client.jobs.get(1)).state is S.COMPLETED


def test_the_command_refuses_to_serve_unsigned(
    migrated: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hypercorn")
    monkeypatch.delenv("AWA_CALLBACK_SECRET", raising=False)
    serve = ["callbacks", "serve", "--dsn", migrated]
    assert run(serve) == 1
    said = capsys.readouterr().err
    assert "set AWA_CALLBACK_SECRET, or give --secret; or --unsigned" in said
    assert "=True" not in said
    assert run([*serve, "--unsigned", "--secret", SECRET]) == 1
    assert "--unsigned contradicts the secret" in capsys.readouterr().err


def test_the_command_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    monkeypatch.setitem(sys.modules, "hypercorn.trio", None)
    assert run(["callbacks", "serve", "--unsigned", "--dsn", "host=/nowhere"]) == 1
    assert "pip install 'awa-trio[web]'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "bind",
    ["", ":4000", "127.0.0.1", "localhost:http", "127.0.0.1:99999", "[::1]:", "unix:", "4000"],
)
def test_the_command_binds_to_nothing_that_was_not_said(
    bind: str, migrated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hypercorn takes an empty address for all of the machine's."""
    pytest.importorskip("hypercorn")
    serve = ["callbacks", "serve", "--secret", SECRET, "--dsn", migrated]
    assert run([*serve, "--bind", bind]) == 2
    assert "give HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("window", ["nan", "-1"])
def test_the_command_refuses_a_window_that_is_none(
    window: str, migrated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hypercorn")
    serve = ["callbacks", "serve", "--secret", SECRET, "--dsn", migrated]
    assert run([*serve, "--window", window]) == 2
    assert "give a number, 0 at least" in capsys.readouterr().err

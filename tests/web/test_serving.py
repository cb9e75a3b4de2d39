"""The page served: from the command line, in a nursery, on asyncio, and ended while somebody looks."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio.cli._main import run
from awa_trio.testing import drain, memory_client
from awa_trio.web import create_app, serve

from .rig import TOKEN, Charge, Receipt, app, form_token, stream, visiting

pytestmark = pytest.mark.real_time


@contextmanager
def command(
    *arguments: str, dsn: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command at work, and where its page is."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "awa_trio", "web", "--port", "0", *arguments],
        cwd=folder,
        env=os.environ | {"AWA_DSN": dsn, "NO_COLOR": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = ""
        while "the page is at http://" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        assert said.count("\n") == 1, said  # one place, said once
        yield process, said.split("the page is at http://")[1].split(";")[0]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextmanager
def getting(address: str, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def get(address: str, path: str, **headers: str) -> tuple[int, str | None, bytes]:
    """A page's status, where it leads, and what it says."""
    with getting(address, path, **headers) as response:
        return response.status, response.getheader("location"), response.read()


def test_the_command_serves_and_ends_in_peace_while_somebody_looks(
    migrated: str, tmp_path: Path
) -> None:
    with command(dsn=migrated, folder=tmp_path) as (process, address):
        assert address.startswith("127.0.0.1:")
        status, _, page = get(address, "/")
        assert (status, b"Overview" in page) == (200, True)
        assert get(address, "/favicon.ico")[0] == 200
        with getting(address, "/events/overview") as looking:
            while b"event: live" not in looking.readline():
                pass
            process.send_signal(signal.SIGTERM)
            # Read to its end: http.client raises if a stream is cut instead of ended.
            looking.read()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_the_command_takes_a_token_from_the_environment_and_says_it_nowhere(
    migrated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWA_WEB_TOKEN", TOKEN)
    with command(dsn=migrated, folder=tmp_path) as (process, address):
        assert get(address, "/jobs")[:2] == (303, "/login")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert TOKEN not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--token", "short"], 1, "at least 16 printable characters"),
        (["--host", ""], 1, "give a name or an address"),
        (["--host", "127.0.0.1:80 "], 1, "give a name or an address"),
        (["nowhere:app"], 1, "there is no module"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str],
    code: int,
    said: str,
    migrated: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["web", "--port", "0", *arguments, "--dsn", migrated]) == code
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_command_says_where_it_cannot_listen(migrated: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "awa_trio", "web", "--host", "192.0.2.1", "--dsn", migrated],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the page cannot listen at 192.0.2.1:4001" in done.stderr
    assert "give another --host or --port" in done.stderr


def test_the_command_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("awa_trio.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    assert run(["web", "--dsn", "host=/nowhere"]) == 1
    assert "pip install 'awa-trio[web]'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "may_change", "sees"),
    [
        ({}, True, True),
        ({"host": "0.0.0.0"}, False, True),
        ({"read_only": True}, False, True),
        ({"host": "0.0.0.0", "token": TOKEN}, True, False),
        ({"token": TOKEN}, True, False),
    ],
)
async def test_who_may_do_what_depends_on_where_it_listens(
    options: dict[str, Any], may_change: bool, sees: bool
) -> None:
    client = memory_client(app)
    await client.enqueue(Receipt(1))
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[str]) -> None:
            await serve(client, port=0, task_status=task_status, **options)

        where = await nursery.start(run)
        address = f"127.0.0.1:{where.rpartition(':')[2]}"

        def look() -> tuple[int, bytes, int]:
            status, _, page = get(address, "/queues")
            return status, page, get(address, "/queues", host="rebound.example")[0]

        status, page, elsewhere = await trio.to_thread.run_sync(look)
        assert (status == 200) == sees
        assert elsewhere == (421 if sees else 303)
        if sees:
            assert (b'aria-label="Pause queue mail"' in page) == may_change
            assert (b"read-only" in page) != may_change
        # Cut, it is gone.
        nursery.cancel_scope.cancel()


async def test_behind_a_proxy_the_page_of_this_machine_is_for_looking_only() -> None:
    web = create_app(
        memory_client(app), read_only=False, allow_hosts=["localhost"], trust_proxies=False
    )
    async with visiting(web) as visitor:
        page = await visitor.get("/jobs", headers={"x-forwarded-for": "203.0.113.9"})
        assert "read-only" in page.text
        assert "read-only" not in (await visitor.get("/jobs")).text


async def test_serving_needs_no_more_than_it_is_told() -> None:
    client = memory_client(app)
    for options, error in [
        ({"port": -1}, awa.ConfigurationError),
        ({"port": "80"}, TypeError),
        ({"host": 5}, TypeError),
        ({"token": "short"}, awa.ConfigurationError),
    ]:
        with pytest.raises(error):
            await serve(client, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["migrated", "segmented"])
def test_every_page_on_asyncio_and_both_engines(
    engine: str, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue(engine)

    async def main() -> None:
        async with awa.connect(dsn, app=app) as client:
            for n in range(60):
                await client.enqueue(Receipt(n))
            async with visiting(create_app(client, read_only=False, show_args=True)) as visitor:
                for path in ("/", "/jobs", "/jobs/1", "/dead-letters", "/queues",
                             "/queues/of?queue=mail", "/cron", "/workers", "/jobs/1/cancel"):  # fmt: skip
                    page = await visitor.get(path)
                    assert page.status_code == 200, (path, page.text)
                page = await visitor.get("/queues")
                fields = {"form_token": form_token(page), "queue": "mail"}
                assert (await visitor.post("/queues/pause", data=fields)).status_code == 303
                assert (await client.queues.get("mail")).paused

    asyncio.run(main())


async def test_a_page_says_so_where_there_is_no_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = memory_client(app)
    web = create_app(client)

    async def gone(*_: object, **__: object) -> None:
        raise awa.DatabaseUnavailable("connecting: host=db.internal password=hunter2")

    monkeypatch.setattr(client.jobs, "list", gone)
    monkeypatch.setattr(client.queues, "list", gone)
    async with visiting(web) as visitor:
        page = await visitor.get("/jobs")
        assert page.status_code == 503
        assert "The database cannot be reached." in page.text
        assert "db.internal" not in page.text
    # Who looks already is told so, and goes on looking.
    heard = await stream(web, "/events/queues", lambda said: "event: live" in said)
    assert "The database cannot be reached." in heard[-1]
    assert "db.internal" not in heard[-1]


#: For each role, whether it may look, and may act.
ROLES = {"reader": (True, False), "admin": (True, True), "producer": (False, False)}


@pytest.mark.sessions
@pytest.mark.parametrize("rights", ROLES)
async def test_a_page_does_what_its_role_may(migrated: str, rights: str) -> None:
    looks, acts = ROLES[rights]
    role = f"web_{rights}_{uuid4().hex[:8]}"
    async with awa.connect(migrated, app=app) as client:
        await client.enqueue(Charge("declined"), max_attempts=1)
        await drain(app, client)
        await client.enqueue(Receipt(1))
    with psycopg.connect(migrated, autocommit=True) as owner:
        [(engine,)] = owner.execute("SELECT awa.engine()").fetchall()
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            owner.execute(awa.grants_script(rights, role=role, engine=engine).encode())
            async with (
                awa.connect(make_conninfo(migrated, user=role), app=app) as client,
                visiting(create_app(client, read_only=False)) as visitor,
            ):
                for path in (
                    "/",
                    "/jobs",
                    "/jobs/1",
                    "/dead-letters",
                    "/queues",
                    "/cron",
                    "/workers",
                ):
                    page = await visitor.get(path)
                    assert (page.status_code == 200) == looks, (path, page.text)
                    assert looks or "has no right" in page.text, (path, page.text)
                if looks:
                    page = await visitor.get("/dead-letters")
                    fields = {"form_token": form_token(page), "queue": "mail"}
                    for path in ("/queues/pause", "/jobs/1/retry", "/jobs/2/cancel"):
                        done = await visitor.post(path, data=fields)
                        assert (done.status_code == 303) == acts, (path, done.text)
                        assert acts or "has no right" in done.text, (path, done.text)
        finally:
            owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())

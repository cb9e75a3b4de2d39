"""Passwords, secrets, tokens and arguments: in no log, message, repr or output."""

from __future__ import annotations

import logging
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
from attrs import frozen
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio._app.connections import Opener
from awa_trio._pg.pool import Pool
from awa_trio.callbacks import receiver, sign
from awa_trio.cli._main import run
from awa_trio.testing import memory_client, work_one

PASSWORD = "hunter2horse"
SECRET = "zq9 callback secret of many bytes"
VALUE = "4111-1111-1111-1111"

#: DSNs with a password that cannot be parsed, reached, or believed; some because of what is in
#: the password.
DSNS = [
    f"postgresql://user:{PASSWORD}@127.0.0.1:1/x",
    f"postgresql://user:{PASSWORD}@127.0.0.1:1/x?sslmode=nonsense",
    f"postgresql://user:{PASSWORD}@127.0.0.1:port/x",
    f"postgresql://user:{PASSWORD}@127.0.0.1:99999/x",
    f"postgresql://user:x@y:{PASSWORD}@127.0.0.1/x",
    f"postgresql://user:x@{PASSWORD}@127.0.0.1:1/x",
    f"postgresql://user:x/{PASSWORD}@127.0.0.1:1/x",
    f"postgresql://user:x?{PASSWORD}=y@127.0.0.1:1/x",
    f"postgresql://user:x?connect_timeout={PASSWORD}@127.0.0.1:1/x",
    f"postgresql://user:x%zz{PASSWORD}@127.0.0.1:1/x",
    f"postgresql://user:[{PASSWORD}@127.0.0.1:1/x",
    f"host=127.0.0.1 port=1 password={PASSWORD}",
    f"host=127.0.0.1 port=1 password=x {PASSWORD}",
    f"host=127.0.0.1 port=1 password='x {PASSWORD}",
    f"host=127.0.0.1 port=1 password=x {PASSWORD}=y",
    f"host=127.0.0.1 port={PASSWORD} password={PASSWORD}",
    f"host=127.0.0.1 port=1 connect_timeout={PASSWORD} password={PASSWORD}",
    f"host=127.0.0.1 port=1 password={PASSWORD} nonsense=x",
    f"host=/no/where password={PASSWORD}",
    f"user:{PASSWORD}@127.0.0.1:1/x",
]


def everything(caplog: pytest.LogCaptureFixture, error: BaseException | None = None) -> str:
    """All that is said of what happened."""
    said = [caplog.text, *(repr(vars(record)) for record in caplog.records)]
    if error is not None:
        said += [str(error), repr(error), *traceback.format_exception(error)]
    return "\n".join(said)


@pytest.mark.parametrize("dsn", DSNS)
async def test_the_password_of_a_dsn(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for act in (
        partial(awa.migrate, dsn),
        partial(awa.schema_status, dsn),
        partial(_connect, dsn),
    ):
        with pytest.raises((awa.DatabaseUnavailable, awa.ConfigurationError)) as caught:
            await act()
        # The source of this test is in the traceback, and the DSN is in none of its lines.
        assert PASSWORD not in everything(caplog, caught.value)


async def _connect(dsn: str) -> None:
    async with awa.connect(dsn):
        pass


@pytest.mark.parametrize("dsn", DSNS)
def test_nor_is_it_printed(
    dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["jobs", "list", "--dsn", dsn]) in (1, 3)
    monkeypatch.setenv("AWA_DSN", dsn)
    assert run(["migrate"]) in (1, 3)
    out, err = capsys.readouterr()
    assert PASSWORD not in out + err
    assert err.count("awa-trio: ") == 2


async def test_nothing_that_knows_it_shows_it(migrated: str) -> None:
    dsn = make_conninfo(migrated, password=PASSWORD)
    opener = Opener.of(dsn, prepare=True)
    async with awa.connect(dsn) as client, Pool(opener, size=1, name="a pool") as pool:
        async with pool.connection() as connection:
            for one in (opener, client, client._backend, pool, connection, connection.info):
                assert PASSWORD not in repr(one) + str(one)


@pytest.mark.sessions
async def test_a_wrong_password_is_not_repeated(
    migrated: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dsn = make_conninfo(migrated, user="nobody_of_this_name", password=PASSWORD)
    with pytest.raises(awa.DatabaseUnavailable) as caught:
        await _connect(dsn)
    assert PASSWORD not in everything(caplog, caught.value)


# ---- callbacks


def test_the_secret_of_callbacks_and_the_tokens(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    api = receiver(memory_client(), secret=[SECRET, SECRET.encode()])
    assert SECRET not in repr(api) + str(api)
    for bad in (SECRET[:3], 7, [SECRET, SECRET[:5]], "\ud800" + SECRET, bytearray(b"x")):
        with pytest.raises((awa.ConfigurationError, TypeError)) as caught:
            receiver(memory_client(), secret=bad)  # type: ignore[arg-type]
        assert SECRET[:3] not in str(caught.value)
    assert SECRET not in str(sign(SECRET, "token", "fail"))
    for arguments in (["--secret", SECRET, "--unsigned"], ["--secret", SECRET, "--bind", "x"]):
        assert run(["callbacks", "serve", "--dsn", "host=/no/where", *arguments]) in (1, 2)
    out, err = capsys.readouterr()
    assert SECRET not in out + err + everything(caplog)


# ---- what jobs hold


@frozen
class Card:
    number: str


@frozen
class Wrong:
    number: int


app = awa.App()
how: list[str] = []


@app.task(max_attempts=2)
async def card(job: awa.Job[Card]) -> object:
    assert job.args.number == VALUE
    assert VALUE not in repr(job)
    match how[-1]:
        case "complete":
            job.set_output({"number": VALUE})
            job.progress.set(message=VALUE, metadata={"number": VALUE})
            job.enqueue_on_completion(Wrong(7), metadata={"number": VALUE}, unique_opts={})
        case "retry":
            raise awa.RetryAfter(0)
        case "raise":
            raise ValueError("declined")
        case "quote":
            # What a handler says itself is recorded with the job, and still not logged.
            raise ValueError(f"declined: {VALUE}")
        case "cancel":
            return awa.Cancel(f"because of {VALUE}")
        case "stage":
            job.enqueue_on_completion(Wrong(VALUE))  # type: ignore[arg-type]
        case "wait":
            return awa.WaitForCallback(await job.register_callback())
    return None


@app.task(max_attempts=1)
async def wrong(job: awa.Job[Wrong]) -> None:
    job.args  # noqa: B018


@app.on_exhausted(Card)
def exhausted(args: Card, job: awa.JobRow, error: str) -> Wrong:
    raise ValueError(f"not with {args.number}")


@pytest.mark.parametrize("database", ["memory", "canonical", "segmented"])
async def test_what_jobs_hold(
    request: pytest.FixtureRequest, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if database == "memory":
        await _all_ways(memory_client(app), caplog)
        return
    dsn: str = request.getfixturevalue(database)
    async with awa.connect(dsn, app=app) as client:
        await _all_ways(client, caplog)
        # Arguments that do not fit, from SQL: the error names the place, and no value.
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT * FROM awa.enqueue('wrong', json_build_object('number', %s::text), queue => 'x')",
                [VALUE],
            )
        worked = await work_one(app, client, queue="x")
        assert worked is not None
        assert worked.job.state is awa.JobState.FAILED
        assert "number" in worked.job.errors[-1].error
        assert VALUE not in everything(caplog)


async def _all_ways(client: awa.Client, caplog: pytest.LogCaptureFixture) -> None:
    for way in ("complete", "retry", "raise", "quote", "cancel", "stage", "wait"):
        how.append(way)
        options: dict[str, Any] = {"metadata": {"n": VALUE}, "tags": [VALUE], "unique_opts": {}}
        enqueued = await client.enqueue(
            Card(VALUE), queue=way, **options | {"unique_opts": {"by_queue": True}}
        )
        with trio.fail_after(30):
            worked = await work_one(app, client, queue=way)
        assert worked is not None
        assert enqueued.inserted
        job = await client.jobs.get(enqueued.id)
        for one in (job, worked, enqueued):
            assert VALUE not in _without_tags(repr(one))
        if job.callback_token is not None:
            assert job.callback_token not in everything(caplog) + repr(job)
            how.append("complete")
            await client.callbacks.resume(job.callback_token, {"number": VALUE})
            await work_one(app, client, queue=way)
            assert job.callback_token not in everything(caplog)
        assert VALUE not in everything(caplog), way


def _without_tags(shown: str) -> str:
    """Errors that handlers made are shown by whoever prints a row; and so are tags."""
    return shown if "errors=[]" in shown else ""

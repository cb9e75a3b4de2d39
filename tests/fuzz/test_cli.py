"""Every command with arguments that make no sense: one sentence, its exit code, no traceback."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from random import Random

import psycopg
import pytest

from awa_trio.cli._main import app, run

from .nasty import text

#: Exit codes of docs/reference/cli.md that bad arguments may lead to; none is a success that
#: waits for a signal.
CODES = {0, 1, 2, 3, 4}

COMMANDS = [
    ("migrate",), ("grants",), ("worker",), ("jobs",), ("jobs", "list"), ("jobs", "show"),
    ("jobs", "cancel"), ("jobs", "retry"), ("dlq",), ("dlq", "list"), ("dlq", "show"),
    ("dlq", "retry"), ("dlq", "purge"), ("storage",), ("storage", "status"), ("callbacks",),
    ("callbacks", "serve"), ("web",), ("demo",), ("nothing",), (), ("check",), ("workers",),
    ("workers", "list"), ("top",), ("jobs", "explain"), ("completion",),
    ("cron",), ("cron", "list"), ("cron", "show"), ("cron", "pause"), ("cron", "resume"),
    ("cron", "trigger"), ("cron", "remove"), ("queues",), ("queues", "list"),
    ("queues", "show"), ("queues", "pause"), ("queues", "drain"), ("queues", "resume"),
    ("queues", "override"), ("queues", "reset"),
]  # fmt: skip

OPTIONS = (
    "--dsn", "-d", "--json", "--limit", "--before", "--state", "--kind", "--queue", "--tag",
    "--reason", "--all", "--run-at", "--priority", "--to-queue", "--key", "--app", "--sql",
    "--since", "--engine", "--status", "--grace", "--name", "--no-listen", "--no-prepare",
    "--telemetry", "--verbose", "--without-follow-ups", "--bind", "--prefix", "--secret",
    "--unsigned", "--window", "--role", "--workers", "--", "-", "---", "--=", "--json=x", "-x",
    "--limit=", "--no-json", "--chaos", "--dry-run", "--yes", "--strict", "--once", "--interval",
)  # fmt: skip

VALUES = (
    "0", "-1", "1", "9" * 30, "9" * 5000, "1e9", "nan", "inf", "-inf", "0x10", "1_000", "٣", "+7",
    "", " ", "available", "AVAILABLE", "completed", "producer", "segmented", "a:b", "x.py:app",
    "x.py", "os:path", "json", "json:loads", ".", "..", "/", "a..b", ":", ":app", "1:2",
    "2026-01-01", "0001-01-01", "9999-12-31T23:59:59", "postgresql://", "postgresql://[", "host=",
    "postgresql://u:p@127.0.0.1:1/x", "dbname=x port=x", "service=none", "unix:", "unix:/no/where/s",
    "127.0.0.1:99999", "host:0", "0" * 64, "zz", "00" * 16, "%s", "\x1b[2J", "[bold]", "é" * 300,
    "\udcff", "\ud800",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated: str) -> Path:
    """A folder of its own, and a database, which commands would find by themselves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWA_DSN", migrated)
    monkeypatch.delenv("AWA_CALLBACK_SECRET", raising=False)
    (tmp_path / "x.py").write_text("raise SystemExit(7)")
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("SELECT * FROM awa.enqueue(E'k\\x1b[2J', '{\"a\": \"\\u001b[2J\"}')")
    return tmp_path


def arguments(chance: Random) -> list[str]:
    given = list(chance.choice(COMMANDS))
    for _ in range(chance.randrange(6)):
        match chance.randrange(3):
            case 0:
                given.append(chance.choice(OPTIONS))
            case 1:
                given += [chance.choice(OPTIONS), chance.choice(VALUES)]
            case _:
                given.append(chance.choice([*VALUES, text(chance).replace("\0", "")]))
    return given


def runs_on(given: list[str]) -> bool:
    """Whether it may be right: a command that would run until a signal, or for minutes."""
    return (
        given[:1] in (["demo"], ["web"])
        or (given[:1] == ["top"] and "--json" in given and "--once" not in given)
    ) or (
        given[:2] == ["callbacks", "serve"] and ("--unsigned" in given or "--secret" in given)
    )


@pytest.mark.parametrize(
    ("seed", "cases"),
    [(1, 250), *(pytest.param(n, 3000, marks=pytest.mark.slow) for n in range(2, 8))],
)
def test_garbage_is_one_sentence(
    folder: Path, seed: int, cases: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = Random(seed)
    codes = dict.fromkeys(CODES, 0)
    for case in range(cases):
        given = arguments(chance)
        if runs_on(given) and "--help" not in given:
            continue
        # In this process: an error that is no error of ours would be raised here.
        code = run(given)
        out, err = capsys.readouterr()
        assert code in CODES, (case, given, code)
        codes[code] += 1
        assert "Traceback" not in out + err, (case, given)
        assert "\x1b[2J" not in out + err, (case, given)
        if code != 0:
            assert err.count("awa-trio: ") >= 1, (case, given, err)
            assert (
                out == ""
                or given[:1] == ["check"]
                or given[:2] in (["jobs", "cancel"], ["dlq", "retry"])
            ), (
                given,
                out,
            )
    assert codes[2] > cases / 3
    assert codes[0]


def test_every_command_is_tried() -> None:
    found: set[tuple[str, ...]] = set()
    for name in app:
        if not name.startswith("-"):
            found.add((name,))
            found |= {(name, one) for one in app[name] if not one.startswith("-")}
    assert found - set(COMMANDS) == {("dev",)}, (
        "dev, which has tests of its own, starts a server"
    )
    assert inspect.iscoroutinefunction(app["dev"].default_command)


@pytest.mark.parametrize(
    "given",
    [
        ["jobs", "list", "--limit", b"\xff\xfe"],
        pytest.param([b"\x80"], marks=pytest.mark.slow),
        pytest.param(["worker", b"\xed\xa0\x80:app"], marks=pytest.mark.slow),
    ],
)
def test_bytes_that_are_no_text(folder: Path, given: list[str | bytes]) -> None:
    """As a real process gets them: the interpreter decodes them first."""
    done = subprocess.run(
        [sys.executable, "-m", "awa_trio", *given], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr

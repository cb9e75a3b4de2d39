"""The commands, as a user meets them: what they print, and how they exit."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from awa_trio._app.schema import schema
from awa_trio.cli import _demo
from awa_trio.cli._main import run
from awa_trio.demo import Progress as DemoProgress
from awa_trio.demo import Summary, run_demo
from awa_trio.pg import TrioConnection

from .pages import commands

APP = """
import os
import time
import trio
from attrs import frozen
import awa_trio as awa

app = awa.App()
app.queue("slow", max_workers=2)
other = awa.App()
nothing = 5

@frozen
class Quick:
    n: int

@frozen
class Slow:
    seconds: float

@app.task()
async def quick(job: awa.Job[Quick]) -> None:
    if job.args.n == 13:
        raise awa.TerminalError("thirteen")
    if job.args.n == 14:
        raise SystemExit(0)
    if job.args.n == 15:
        raise KeyboardInterrupt

@app.on_cancelled(Quick)
def told(args: Quick, job: awa.JobRow, reason: str) -> Slow:
    return Slow(args.n)

@app.task(queue="slow")
async def slow(job: awa.Job[Slow]) -> None:
    await trio.sleep(job.args.seconds)
"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def enqueue(dsn: str, kind: str, args: str, **options: object) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT id FROM awa.enqueue(%s, %s, queue => %s, unique_key => %s,"
            " ordering_key => %s)",
            [
                kind,
                args,
                options.get("queue", "default"),
                options.get("unique_key"),
                options.get("ordering_key"),
            ],
        ).fetchone()
        assert row is not None
        return int(row[0])


def state(dsn: str, job_id: int) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT state FROM awa.get_jobs(ARRAY[%s::bigint])", [job_id]
        ).fetchone()
        assert row is not None
        return str(row[0])


def until(dsn: str, job_id: int, wanted: str) -> None:
    deadline = time.monotonic() + 30
    while state(dsn, job_id) != wanted:
        assert time.monotonic() < deadline, state(dsn, job_id)
        time.sleep(0.02)


@contextmanager
def cli(
    *arguments: str, dsn: str = "", cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "AWA_DSN": dsn, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "awa_trio", *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"never said {text!r}: {lines}")


# ---- errors are one sentence, and the exit code says which kind

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

HUGE = "99999999999999999999"
NOT_UTF8 = os.fsdecode(b"\xff")
NO_MODULES = ("", ":", ":app", ".", ".good:app", "a..b:app", "pkg/", "/etc/passwd")
BROKEN = {
    "pkg/__init__.py": "import pkg.zzz",
    "raises.py": "def f():\n    # here\n    raise ValueError('no')\nf()",
    "registers.py": "import awa_trio\napp = awa_trio.App()\napp.declare(dict, kind='')",
    "grammar.py": "def x(:",
    "lacks.py": "from os import nosuch",
    "exits.py": "import sys; sys.exit(3)",
    "runs.py": "import trio\ntrio.run(trio.sleep, 0)",
    "queue.py": "",
}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["jobs", "list", "--dsn", "host=/nowhere"], 3, "could not be reached"),
        (["migrate", "--dsn", "host=/nowhere"], 3, "could not be reached"),
        (["jobs", "list", "--dsn", "nonsense"], 1, "the DSN cannot be parsed"),
        (["jbos"], 2, "jbos"),
        (["jobs", "list", "--stat", "failed"], 2, "--stat"),
        (["jobs", "list", "--state", "done"], 2, "done"),
        (["jobs", "show", "x"], 2, "x"),
        (["worker", "program", "--dsn", "host=/nowhere"], 3, "Is the server running locally"),
        (["worker", "program", "--dsn", "host=127.0.0.1 port=1"], 3, "Is the server running"),
        (["worker", "nowhere:app"], 1, "there is no module 'nowhere'"),
        (["worker", "nowhere.py"], 1, "there is no file nowhere.py"),
        (["worker", "program:ap"], 1, "has no 'ap'; it has app, other"),
        (["worker", "program:nothing"], 1, "program:nothing is a int, not an awa_trio.App"),
        (["worker", "program", "--queue", "q=many"], 2, "give NAME=ATTEMPTS_AT_ONCE"),
        (["worker", "program", "--queue", "q=²"], 2, "give NAME=ATTEMPTS_AT_ONCE"),
        (["worker", "program", "--queue", "q=0"], 2, "from 1 to 100,000"),
        (["worker", "program", "--queue", ""], 2, "queue: give 1 to 200 characters"),
        (["worker", "program", "--queue", "=5"], 2, "queue: give 1 to 200 characters"),
        (["worker", "program", "--queue", "q" * 300], 2, "1 to 200 characters, not 300"),
        (["worker", "program", "--queue", "q=1", "--queue", "q=2"], 2, "'q' is set twice"),
        (["worker", "program", "--name", ""], 2, "--name: give 1 to 200 characters"),
        (["worker", "program", "--grace", "-1"], 2, "--grace"),
        (["worker", "program", "--grace", "nan"], 2, "--grace"),
        *((["worker", name], 2, "names no module; give MODULE:APP") for name in NO_MODULES),
        (["worker", "pkg:app"], 1, "pkg imports 'pkg.zzz', which is not installed"),
        (["worker", "pkg.zzz:app"], 1, "there is no module 'pkg.zzz'"),
        (["worker", "queue.py"], 1, "'queue' is another module"),
        (["worker", "raises"], 1, "raises cannot be imported (ValueError: no), at /"),
        (["worker", "raises"], 1, "raises.py:3; --verbose shows the traceback"),
        (["worker", "registers"], 1, "kind: give 1 to 200 characters, not 0), at /"),
        (["worker", "registers"], 1, "registers.py:3; --verbose"),
        (["worker", "grammar.py"], 1, "(SyntaxError: invalid syntax (grammar.py, line 1))"),
        (["worker", "lacks"], 1, "cannot import name 'nosuch' from 'os'"),
        (["worker", "runs"], 1, 'under if __name__ == "__main__", at /'),
        (["worker", "exits"], 1, "exits ends the program, with sys.exit(3)"),
        (["jobs", "list", "--limit", "0"], 2, "--limit"),
        (["jobs", "list", "--limit", "-5"], 2, "--limit"),
        (["jobs", "list", "--limit", HUGE], 2, "--limit"),
        (["jobs", "list", "--before", "0"], 2, "--before"),
        (["jobs", "list", "--before", HUGE], 2, "--before"),
        (["jobs", "list", "--kind", NOT_UTF8], 2, "is not text in UTF-8"),
        (["jobs", "list", "--dsn", NOT_UTF8], 2, "is not text in UTF-8"),
        (["jobs", "cancel", "5", "--reason", NOT_UTF8], 2, "is not text in UTF-8"),
        (["worker", "program", "--name", NOT_UTF8], 2, "is not text in UTF-8"),
        (["worker", "program", "--queue", NOT_UTF8], 2, "is not text in UTF-8"),
        (["jobs", "list", "--dsn", "port=abc"], 1, "the DSN cannot be parsed: port='abc'"),
        (["jobs", "list", "--dsn", "connect_timeout=abc"], 1, "cannot be parsed: connect_time"),
        (["migrate", "--sql", "--since", "99"], 2, "--since: give a whole number from 0 to"),
        (["migrate", "--sql", "--since", "-1"], 2, "--since: give a whole number from 0 to"),
        (["migrate", "--since", "1"], 2, "--since: only with --sql"),
        (["migrate", "--sql", "--status"], 2, "--sql and --status: give one"),
        (["demo", "--workers", "0"], 2, "--workers"),
        (["demo", "--workers", "-1"], 2, "--workers"),
        (["dev", "--root", ""], 2, "--root: give a folder"),
        (["dev", "--root", "/dev/null/x"], 1, "cannot be made (/dev/null is not a folder)"),
        pytest.param(["dev", "--root", "/proc/x"], 1, "cannot be made (No such", marks=linux),
    ],
    ids=lambda value: ascii(" ".join(value))[:60] if isinstance(value, list) else "",
)
def test_what_goes_wrong_is_one_sentence(
    folder: Path, capsys: Capture, arguments: list[str], code: int, message: str
) -> None:
    for name, text in BROKEN.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    began = time.monotonic()
    assert run(arguments) == code
    assert time.monotonic() - began < 30
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert "Traceback" not in printed.err


def test_a_database_without_the_schema_is_exit_code_4(dsn: str, capsys: Capture) -> None:
    assert run(["jobs", "list", "--dsn", dsn]) == 4
    assert "awa-trio migrate" in capsys.readouterr().err


@pytest.mark.parametrize("verbose", [False, True])
def test_the_traceback_of_a_program_is_there_for_the_asking(
    folder: Path, capsys: Capture, verbose: bool
) -> None:
    (folder / "raises.py").write_text(BROKEN["raises.py"])
    assert run(["worker", "raises", *(["--verbose"] if verbose else [])]) == 1
    printed = capsys.readouterr().err
    assert ("in f\n    raise ValueError('no')\nValueError: no\n" in printed) == verbose
    assert "importlib" not in printed


@pytest.mark.parametrize("version", [99, None])
def test_migrate_fails_where_a_worker_would(
    folder: Path, migrated: str, capsys: Capture, version: int | None
) -> None:
    with psycopg.connect(migrated) as connection:
        if version is None:
            connection.execute("DROP TABLE awa.schema_version")
        else:
            connection.execute(
                "UPDATE awa.schema_version SET version = 9, oldest_supported = 9"
            )
    for arguments in (["worker", "program"], ["migrate"], ["migrate", "--status"]):
        assert run([*arguments, "--dsn", migrated]) == 4
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_migration_that_postgresql_refuses_is_one_sentence(dsn: str, capsys: Capture) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA awa")
        connection.execute(
            "CREATE FUNCTION awa.beat(bigint) RETURNS int AS 'SELECT 1' LANGUAGE sql"
        )
    assert run(["migrate", "--dsn", dsn]) == 1
    printed = capsys.readouterr().err
    assert "PostgreSQL refuses the migration (" in printed
    assert "nothing was changed" in printed
    assert len(printed.splitlines()) == 1


def test_a_missing_import_of_the_program_is_named(folder: Path, capsys: Capture) -> None:
    (folder / "broken.py").write_text("import not_installed_anywhere")
    assert run(["worker", "broken:app"]) == 1
    assert (
        "broken imports 'not_installed_anywhere', which is not installed"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", [(), ("jobs",), *(path for path, _ in commands())])
def test_every_command_has_help(command: tuple[str, ...], capsys: Capture) -> None:
    assert run([*command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_the_version_is_printed(capsys: Capture) -> None:
    from awa_trio import __version__

    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


# ---- migrate


def test_migrate_creates_the_schema_once(dsn: str, capsys: Capture) -> None:
    assert run(["migrate", "--status", "--dsn", dsn]) == 4
    assert "version none" in capsys.readouterr().out
    assert run(["migrate", "--dsn", dsn]) == 0
    assert "applied 0001_jobs" in capsys.readouterr().out
    assert run(["migrate", "--dsn", dsn]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["migrate", "--status", "--dsn", dsn]) == 0


def test_migrate_prints_what_it_would_run(dsn: str, capsys: Capture) -> None:
    assert run(["migrate", "--sql"]) == 0
    script = capsys.readouterr().out
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(script.encode())
    assert run(["migrate", "--dsn", dsn]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["migrate", "--sql", "--since", str(schema().version)]) == 0
    assert capsys.readouterr().out == ""


# ---- jobs


def test_jobs_are_listed_shown_cancelled_and_retried(migrated: str, capsys: Capture) -> None:
    a = enqueue(migrated, "send_email", '{"to": "a@example.com"}')
    b = enqueue(migrated, "send_email", "{}", queue="mail")
    assert run(["jobs", "list", "--dsn", migrated]) == 0
    table = capsys.readouterr().out
    assert "send_email" in table
    assert "available" in table
    assert "mail" in table
    assert "due just now" in table
    assert not any(line.endswith(" ") for line in table.splitlines())

    assert run(["jobs", "list", "--queue", "mail", "--json", "--dsn", migrated]) == 0
    [job] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (job["id"], job["kind"], job["args"]) == (b, "send_email", {})

    assert run(["jobs", "show", str(a), "--dsn", migrated]) == 0
    shown = capsys.readouterr().out
    assert '{"to": "a@example.com"}' in shown
    assert f"job {a}" in shown

    cancel = ["jobs", "cancel", "--without-follow-ups", "--dsn", migrated]
    assert run([*cancel, str(a), str(b), "--reason", "why not"]) == 0
    assert f"job {a} is cancelled" in capsys.readouterr().out
    assert (
        run(["jobs", "list", "--state", "cancelled", "--state", "failed", "--dsn", migrated])
        == 0
    )
    table = capsys.readouterr().out
    assert "cancelled: why not" in table
    assert table.count("ended just now") == 2
    assert run([*cancel, str(a)]) == 0
    assert "had ended already" in capsys.readouterr().out

    assert run(["jobs", "retry", str(a), "--dsn", migrated]) == 0
    assert state(migrated, a) == "available"
    capsys.readouterr()
    assert run(["jobs", "retry", str(a), "999", "--dsn", migrated]) == 1
    printed = capsys.readouterr().err
    assert "will run without a retry" in printed
    assert "there is no job 999" in printed


def test_progress_and_output_of_a_job_are_shown(migrated: str, capsys: Capture) -> None:
    job_id = enqueue(migrated, "k", "{}", ordering_key="a row")
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "UPDATE awa.jobs SET output = %s, progress = %s,"
            " callback_token = 't', callback_until = '2999-01-01T00:00Z'",
            [
                '{"pages": 4}',
                r'{"percent": 12.5, "message": "\u001b[31mred", "metadata": {"a": [1]}}',
            ],
        )
    assert run(["jobs", "show", str(job_id), "--dsn", migrated]) == 0
    shown = capsys.readouterr().out
    assert '{"pages": 4}' in shown
    assert r'12.5 %  \x1b[31mred  {"a": [1]}' in shown
    assert "callback     until 2999-01-01T00:00:00+00:00 (in " in shown
    assert run(["jobs", "show", str(job_id), "--json", "--dsn", migrated]) == 0
    job = json.loads(capsys.readouterr().out)
    assert job["output"] == {"pages": 4}
    assert job["progress"]["metadata"] == {"a": [1]}
    assert job["callback_until"].startswith("2999-01-01")


def test_a_job_is_cancelled_by_its_unique_key(migrated: str, capsys: Capture) -> None:
    job_id = enqueue(migrated, "k", "{}", unique_key=bytes(range(16)))
    assert run(["jobs", "show", str(job_id), "--dsn", migrated]) == 0
    key = "000102030405060708090a0b0c0d0e0f"
    assert key in capsys.readouterr().out
    cancel = ["jobs", "cancel", "--dsn", migrated]
    assert run([*cancel, "--key", key]) == 1
    assert f"the holder of {key} was left as it is" in capsys.readouterr().err
    cancel += ["--without-follow-ups"]
    assert run([*cancel, "--key", key]) == 0
    assert f"job {job_id} is cancelled" in capsys.readouterr().out
    assert state(migrated, job_id) == "cancelled"
    assert run([*cancel, "--key", key]) == 0
    assert f"the holder of {key} had ended already" in capsys.readouterr().out
    for wrong in (["--key", "xyz"], []):
        assert run([*cancel, *wrong]) == 2
    assert run([*cancel, "--key", "0102"]) == 1
    assert "16 bytes" in capsys.readouterr().err


def test_a_long_list_says_how_to_go_on(migrated: str, capsys: Capture) -> None:
    ids = [enqueue(migrated, "k", "{}") for _ in range(3)]
    assert run(["jobs", "list", "--limit", "2", "--dsn", migrated]) == 0
    assert f"--before {ids[1]}" in capsys.readouterr().out
    assert run(["jobs", "list", "--before", str(ids[0]), "--dsn", migrated]) == 0
    assert "no jobs" in capsys.readouterr().out


def test_an_error_of_a_job_is_shown_as_it_is(migrated: str, capsys: Capture) -> None:
    job_id = enqueue(migrated, "k", "{}")
    cancel = ["jobs", "cancel", "--without-follow-ups", "--dsn", migrated]
    assert run([*cancel, str(job_id), "--reason", "[red]not markup[/]"]) == 0
    capsys.readouterr()
    run(["jobs", "list", "--dsn", migrated])
    run(["jobs", "show", str(job_id), "--dsn", migrated])
    assert capsys.readouterr().out.count("[red]not markup[/]") == 2


#: What makes a terminal rename its window and clear itself, in C0 and C1; and turn text around.
HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31m\r\u202eabc"
SHOWN = r"\x1b]0;pwned\x07\x1b[2J\x9b31m\r\u202eabc"


def test_nothing_in_a_job_reaches_the_terminal_as_a_command(
    migrated: str, capsys: Capture
) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        row = connection.execute(
            "SELECT id FROM awa.enqueue(%(x)s, %(args)s, queue => %(x)s, tags => ARRAY[%(x)s],"
            " metadata => %(args)s, ordering_key => %(x)s)",
            {"x": HOSTILE, "args": json.dumps({"a": "\x9b31m\u202e"}, ensure_ascii=False)},
        ).fetchone()
    assert row is not None
    show = ["jobs", "show", str(row[0]), "--dsn", migrated]
    cancel = [
        "jobs",
        "cancel",
        "--without-follow-ups",
        str(row[0]),
        "--reason",
        f"{HOSTILE}\n\ttwo",
        "--dsn",
        migrated,
    ]
    assert run(cancel) == 0
    capsys.readouterr()
    for arguments in (show, ["jobs", "list", "--dsn", migrated]):
        assert run(arguments) == 0
        printed = capsys.readouterr().out
        assert printed.count(SHOWN) >= 3
        assert not set(printed) & set("\x1b\x07\x9b\r\u202e")
    assert run(show) == 0
    assert "\n        two\n" in capsys.readouterr().out
    for arguments in ([*show, "--json"], ["jobs", "list", "--json", "--dsn", migrated]):
        assert run(arguments) == 0
        printed = capsys.readouterr().out
        assert not set(printed) & set("\x1b\x07\x9b\r\u202e")
        job = json.loads(printed)
        assert (job["kind"], job["queue"], job["tags"]) == (HOSTILE, HOSTILE, [HOSTILE])
        assert job["args"] == job["metadata"] == {"a": "\x9b31m\u202e"}
        assert HOSTILE in job["errors"][-1]["error"]
    assert run(["jobs", "list", "--kind", HOSTILE, "--state", HOSTILE]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "value",
    [
        '{"a": "\\ud800"}',
        '{"a": "\\u0000"}',
        f'{{"a": {"9" * 5000}}}',
        f'{{"a": {"[" * 2000}1{"]" * 2000}}}',
        '{\n  "a":\t"é🎉",\r\n  "a": 2}',
    ],
    ids=["surrogate", "nul", "digits", "depth", "whitespace"],
)
def test_whatever_sql_inserted_is_printed(migrated: str, capsys: Capture, value: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "SELECT awa.enqueue('k', %s, metadata => %s, ordering_key => 'a row')",
            [value, "{}" if "u0000" in value else value],
        )
        connection.execute("UPDATE awa.jobs SET output = %s", [value])
    for arguments in (["list"], ["show", "1"]):
        assert run(["jobs", *arguments, "--dsn", migrated]) == 0
        assert capsys.readouterr().out
        assert run(["jobs", *arguments, "--json", "--dsn", migrated]) == 0
        [line] = capsys.readouterr().out.splitlines()
        for name in ("args", "output"):
            assert f'"{name}": {" ".join(value.split())}' in " ".join(
                line.replace("\\u00e9", "é").split()
            )


@pytest.mark.parametrize("json_", [False, True])
def test_an_encoding_that_lacks_a_character_is_no_error(migrated: str, json_: bool) -> None:
    enqueue(migrated, "é日", '{"é": "日🎉"}')
    done = subprocess.run(
        [sys.executable, "-m", "awa_trio", "jobs", "show", "1", *(["--json"] if json_ else [])],
        env={**os.environ, "AWA_DSN": migrated, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    if json_:
        assert json.loads(done.stdout)["args"] == {"é": "日🎉"}
    else:
        assert rb"\u65e5\U0001f389" in done.stdout


@pytest.mark.parametrize("output", ["closed", "full"])
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]], ids=" ".join)
def test_an_output_that_cannot_be_written_is_no_traceback(
    migrated: str, output: str, arguments: list[str]
) -> None:
    for n in range(50):
        enqueue(migrated, "k", json.dumps({"n": n, "text": "x" * 2000}))
    if output == "closed":
        reader, writer = os.pipe()
        os.close(reader)
    elif os.path.exists("/dev/full"):
        writer = os.open("/dev/full", os.O_WRONLY)
    else:
        pytest.skip("needs /dev/full")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "awa_trio", "jobs", *arguments, "--dsn", migrated],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    expected = (141, "") if output == "closed" else (1, "awa-trio: No space left on device\n")
    assert (done.returncode, done.stderr) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        *(["jobs", "list"], ["jobs", "show", "1"], ["jobs", "retry", "1"]),
        ["jobs", "cancel", "1", "--without-follow-ups"],
        *(
            ["dlq", "list"],
            ["dlq", "show", "1"],
            ["dlq", "retry", "1"],
            ["dlq", "purge", "--all"],
        ),
        ["migrate"],
    ],
    ids=" ".join,
)
def test_a_command_that_ends_prepares_nothing(
    arguments: list[str], migrated: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A pooler in transaction mode would keep it, and refuse it to the next command."""
    enqueue(migrated, "k", "{}")
    thresholds = []
    connect = TrioConnection.connect

    async def watched(*args: Any, **options: Any) -> Any:
        connection = await connect(*args, **options)
        thresholds.append(connection.prepare_threshold)
        return connection

    monkeypatch.setattr(TrioConnection, "connect", watched)
    run([*arguments, "--dsn", migrated])
    assert set(thresholds) == {None}
    assert "prepare" not in capsys.readouterr().err


@pytest.mark.parametrize("closes", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"), [("list", 0), ("list --json", 0), ("show 9", 1)]
)
def test_a_caller_that_has_closed_its_output_is_told_by_the_exit_code(
    migrated: str, closes: str, arguments: str, code: int
) -> None:
    enqueue(migrated, "k", "{}")
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'"$0" -m awa_trio jobs {arguments} --dsn "$1" {closes}',
            sys.executable,
            migrated,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


# ---- worker


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_runs_jobs_and_drains_at_the_first_signal(
    folder: Path, migrated: str, number: signal.Signals
) -> None:
    quick = enqueue(migrated, "quick", '{"n": 1}')
    with cli("worker", "program:app", dsn=migrated, cwd=folder) as process:
        lines_until(process, "serves default, slow")
        until(migrated, quick, "completed")
        slow = enqueue(migrated, "slow", '{"seconds": 1.5}', queue="slow")
        until(migrated, slow, "running")
        process.send_signal(number)
        lines_until(process, "no new jobs")
        late = enqueue(migrated, "quick", '{"n": 2}')
        assert process.wait(30) == 0
    assert state(migrated, slow) == "completed"
    assert state(migrated, late) == "available"


@pytest.mark.parametrize("own", [None, 1234])
def test_a_worker_spares_the_collector_unless_the_app_has_decided(
    folder: Path, migrated: str, own: int | None
) -> None:
    program = (
        APP
        + "\n@app.task(kind='collector')\nasync def collector(job: awa.Job[dict]) -> None:\n"
    )
    program += "    job.set_output([gc.get_threshold()[0], gc.get_freeze_count() - before])\n"
    program += "import gc\nbefore = gc.get_freeze_count()  # not 0 in each Python\n"
    program += "" if own is None else f"gc.set_threshold({own})\n"
    (folder / "program.py").write_text(program)
    job = enqueue(migrated, "collector", "{}")
    with cli("worker", "program:app", dsn=migrated, cwd=folder):
        until(migrated, job, "completed")
    with psycopg.connect(migrated) as connection:
        row = connection.execute("SELECT output FROM awa.jobs WHERE id = %s", [job]).fetchone()
    assert row is not None
    threshold, frozen = row[0]
    assert (threshold, frozen > 0) == ((10_000, True) if own is None else (own, False))


def test_the_second_signal_means_now(folder: Path, migrated: str) -> None:
    slow = enqueue(migrated, "slow", '{"seconds": 60}', queue="slow")
    with cli(
        "worker", "program.py:app", "--queue", "slow=1", dsn=migrated, cwd=folder
    ) as process:
        lines_until(process, "serves slow")
        until(migrated, slow, "running")
        process.send_signal(signal.SIGTERM)
        lines_until(process, "no new jobs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert state(migrated, slow) == "available"
    with psycopg.connect(migrated) as connection:
        assert connection.execute("SELECT count(*) FROM awa.workers").fetchone() == (0,)


def test_a_worker_logs_what_happens_and_never_arguments(folder: Path, migrated: str) -> None:
    failed = enqueue(migrated, "quick", '{"n": 13}')
    with cli("worker", "program", "--verbose", dsn=migrated, cwd=folder) as process:
        lines_until(process, "serves")
        lines = lines_until(
            process, f"job {failed} (quick, attempt 1 of 25, queue default, worker 1) raised"
        )
        until(migrated, failed, "failed")
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert "thirteen" not in "".join(lines)


@pytest.mark.parametrize(
    ("n", "said"),
    [(14, "SystemExit(0), raised by job 1 (quick)"), (15, "KeyboardInterrupt, rai")],
)
def test_a_handler_that_ends_the_worker_did_not_stop_it_in_peace(
    folder: Path, migrated: str, n: int, said: str
) -> None:
    enqueue(migrated, "quick", json.dumps({"n": n}))
    with cli("worker", "program", dsn=migrated, cwd=folder) as process:
        assert process.wait(30) == 1
        assert process.stderr is not None
        lines = process.stderr.read()
    assert said in lines
    assert "ended the worker; a handler returns" in lines
    assert "Traceback" not in lines
    assert state(migrated, 1) == "retryable"


def test_a_signal_before_a_worker_has_started_ends_it(folder: Path, migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute("LOCK TABLE awa.workers IN ACCESS EXCLUSIVE MODE")
        with cli("worker", "program", dsn=migrated, cwd=folder) as process:
            until_it_waits(connection)
            process.send_signal(signal.SIGTERM)
            lines_until(process, "not started")
            connection.rollback()
            assert process.wait(30) == 143
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()


def until_it_waits(connection: psycopg.Connection) -> None:
    """Until somebody waits for a lock that the connection holds."""
    deadline = time.monotonic() + 30
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    while connection.execute(waiting).fetchone() == (0,):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_queue_without_a_number_is_served_as_the_app_says(
    folder: Path, migrated: str
) -> None:
    ids = [enqueue(migrated, "slow", '{"seconds": 60}', queue="slow") for _ in range(3)]
    with cli("worker", "program", "--queue", "slow", dsn=migrated, cwd=folder) as process:
        lines_until(process, "serves slow")
        until(migrated, ids[1], "running")
        time.sleep(0.5)
        assert state(migrated, ids[2]) == "available"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)


def drop_schema(dsn: str) -> None:
    """Locks table by table what a running worker locks in another order: either may lose."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(20):
            with contextlib.suppress(psycopg.errors.DeadlockDetected):
                connection.execute("DROP SCHEMA awa CASCADE")
                return
    raise AssertionError("deadlocked 20 times")


def test_a_worker_ends_when_its_schema_is_dropped(folder: Path, migrated: str) -> None:
    with cli("worker", "program", dsn=migrated, cwd=folder) as process:
        lines_until(process, "serves")
        drop_schema(migrated)
        lines = lines_until(process, "awa-trio: the database has no awa schema")
        assert process.wait(30) == 4
    assert "".join(lines).count("the awa schema is gone, and the worker ends") == 1


@pytest.mark.sessions
@pytest.mark.parametrize(
    ("take", "code", "problem"),
    [
        ("DROP DATABASE {} WITH (FORCE)", 3, "the worker's database was dropped while it ran"),
        ("REVOKE USAGE ON SCHEMA awa FROM {}", 1, "the worker's role lost its rights"),
        ("REVOKE ALL ON awa.jobs FROM {}", 1, "the worker's role lost its rights"),
    ],
)
def test_a_worker_ends_when_what_it_works_with_is_taken_away(
    folder: Path, migrated: str, awa_server: str, take: str, code: int, problem: str
) -> None:
    database = conninfo_to_dict(migrated)["dbname"]
    drops = take.startswith("DROP")
    role = f"worker_{database}"
    as_role = migrated if drops else make_conninfo(migrated, user=role)
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{role}" LOGIN')
        connection.execute(f'GRANT USAGE ON SCHEMA awa TO "{role}"')
        for what in ("TABLES", "SEQUENCES"):
            connection.execute(f'GRANT ALL ON ALL {what} IN SCHEMA awa TO "{role}"')
    with psycopg.connect(awa_server if drops else migrated, autocommit=True) as connection:
        try:
            with cli("worker", "program", dsn=as_role, cwd=folder) as process:
                lines_until(process, "serves")
                connection.execute(take.format(f'"{database if drops else role}"'))
                lines = lines_until(process, f"awa-trio: {problem}")
                assert process.wait(30) == code
            assert "".join(lines).count(", and the worker ends") == 1
        finally:
            if not drops:
                connection.execute(f'DROP OWNED BY "{role}"')
            connection.execute(f'DROP ROLE "{role}"')


def test_a_worker_refuses_a_database_without_the_schema(folder: Path, dsn: str) -> None:
    with cli("worker", "program", dsn=dsn, cwd=folder) as process:
        assert process.wait(30) == 4
        assert process.stderr is not None
        assert "awa-trio migrate" in process.stderr.read()


def test_a_worker_that_does_not_listen_polls(folder: Path, migrated: str) -> None:
    with cli("worker", "program", "--no-listen", dsn=migrated, cwd=folder) as process:
        lines_until(process, "serves")
        until(migrated, enqueue(migrated, "quick", '{"n": 1}'), "completed")
        with psycopg.connect(migrated) as connection:
            sessions = connection.execute(
                "SELECT query FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'awa_trio'"
            ).fetchall()
        assert sessions
        assert not [query for (query,) in sessions if query.startswith("LISTEN")]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


# ---- follow-ups of what an operator does


def test_cancelling_needs_to_know_the_follow_ups_and_says_how(
    folder: Path, migrated: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = [enqueue(migrated, "quick", json.dumps({"n": n})) for n in range(4)]
    strange = enqueue(migrated, "strange", "{}")
    cancel = ["jobs", "cancel", "--dsn", migrated]

    assert run([*cancel, str(quick[0])]) == 1
    printed = capsys.readouterr().err
    assert "follow-ups may be registered for kind 'quick'" in printed
    assert "--app MODULE:APP, or set AWA_APP, or say --without-follow-ups" in printed
    assert len(printed.splitlines()) == 1
    assert state(migrated, quick[0]) == "available"

    assert run([*cancel, "--app", "program:app", str(quick[0]), str(strange)]) == 1
    assert "kind 'strange'; program:app does not run it" in capsys.readouterr().err
    assert state(migrated, quick[0]) == "cancelled"
    assert state(migrated, strange) == "available"
    assert follow_ups(migrated) == [0]

    monkeypatch.setenv("AWA_APP", "program")
    assert run([*cancel, str(quick[1])]) == 0
    assert follow_ups(migrated) == [0, 1]
    monkeypatch.setenv("AWA_APP", "nowhere:app")
    assert run([*cancel, "--without-follow-ups", str(quick[2]), str(strange)]) == 0
    assert state(migrated, strange) == "cancelled"
    assert follow_ups(migrated) == [0, 1]
    assert run([*cancel, str(quick[3])]) == 1
    assert "there is no module 'nowhere'" in capsys.readouterr().err


def follow_ups(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT (args ->> 'seconds')::float"
            " FROM awa.list_jobs(NULL, 'slow', NULL, NULL, NULL, 100) ORDER BY id"
        )
        return [int(row[0]) for row in rows]


# ---- engines


def test_the_engine_is_chosen_once_and_shown(dsn: str, capsys: Capture) -> None:
    assert run(["migrate", "--dsn", dsn]) == 0
    assert run(["storage", "status", "--dsn", dsn]) == 0
    shown = capsys.readouterr().out
    assert "the engine is canonical" in shown
    assert "migrate --engine segmented" in shown
    assert run(["migrate", "--engine", "segmented", "--dsn", dsn]) == 0
    assert "applied 0002_lanes" in capsys.readouterr().out
    assert run(["migrate", "--engine", "segmented", "--dsn", dsn]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["storage", "status", "--dsn", dsn]) == 0
    shown = capsys.readouterr().out
    assert "the engine is segmented" in shown
    assert "new jobs are appended here" in shown
    assert run(["migrate", "--engine", "canonical", "--dsn", dsn]) == 1
    assert "migrate without an engine" in capsys.readouterr().err
    assert run(["migrate", "--engine", "fast", "--dsn", dsn]) == 2


def test_the_script_of_an_engine_makes_it(dsn: str, capsys: Capture) -> None:
    present = str(schema().version)
    for arguments in ([], ["--since", present, "--engine", "segmented"]):
        assert run(["migrate", "--sql", *arguments]) == 0
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(capsys.readouterr().out.encode())
    assert run(["storage", "status", "--dsn", dsn]) == 0
    assert "the engine is segmented" in capsys.readouterr().out


# ---- dead letters


def bury(dsn: str, job_id: int, reason: str = "terminal_error") -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE awa.jobs SET state = 'failed', attempt = 3, finalized_at = now(),"
            " dead_letter = %s, errors = awa.add_error(errors, 'why it failed', 3, true)"
            " WHERE id = %s",
            [reason, job_id],
        )
    return job_id


def test_dead_letters_are_listed_and_shown(migrated: str, capsys: Capture) -> None:
    database = ["--dsn", migrated]
    assert run(["dlq", "list", *database]) == 0
    assert capsys.readouterr().out.strip() == "no dead letters"
    alive = enqueue(migrated, "k", "{}")
    a = bury(migrated, enqueue(migrated, "k", '{"a": 1}', ordering_key="a row"))
    b = bury(
        migrated, enqueue(migrated, "k", "{}", queue="mail", ordering_key="a row"), "rescued"
    )

    assert run(["dlq", "list", *database]) == 0
    table = capsys.readouterr().out
    assert table.index("rescued") < table.index("terminal_error")
    assert "why it failed" in table
    assert run(["dlq", "list", "--queue", "mail", "--json", *database]) == 0
    [job] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (job["id"], job["dead_letter"], job["state"]) == (b, "rescued", "failed")
    assert run(["dlq", "list", "--reason", "terminal_error", "--json", *database]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == a
    assert run(["dlq", "list", "--reason", "boredom", *database]) == 2
    assert "attempts_exhausted" in capsys.readouterr().err
    assert run(["dlq", "list", "--limit", "1", *database]) == 0
    assert f"--before {b}" in capsys.readouterr().out

    assert run(["dlq", "show", str(a), *database]) == 0
    shown = capsys.readouterr().out
    assert "terminal_error" in shown
    assert '{"a": 1}' in shown
    assert run(["dlq", "show", str(a), "--json", *database]) == 0
    assert json.loads(capsys.readouterr().out)["args"] == {"a": 1}
    assert run(["dlq", "show", str(alive), *database]) == 1
    assert f"job {alive} is available, and no dead letter" in capsys.readouterr().err


def test_dead_letters_are_retried(migrated: str, capsys: Capture) -> None:
    ids = [bury(migrated, enqueue(migrated, "k", "{}", ordering_key="a row")) for _ in range(3)]
    other = bury(
        migrated, enqueue(migrated, "k", "{}", queue="mail", ordering_key="a row"), "rescued"
    )
    retry = ["dlq", "retry", "--dsn", migrated]
    later = ["--run-at", "2999-01-01T00:00:00", "--priority", "1", "--to-queue", "new"]
    assert run([*retry, str(ids[0]), "999", *later]) == 1
    printed = capsys.readouterr()
    assert f"job {ids[0]} will run again" in printed.out
    assert "there is no job 999" in printed.err
    with psycopg.connect(migrated) as connection:
        row = connection.execute(
            "SELECT state::text, attempt, queue, priority, extract(year FROM run_at)"
            " FROM awa.get_jobs(ARRAY[%s::bigint])",
            [ids[0]],
        ).fetchone()
    assert row is not None
    assert row[:4] == ("scheduled", 0, "new", 1)
    assert row[4] in (2998, 2999)

    assert run([*retry, "--queue", "default", "--yes"]) == 0
    assert "retried 2 dead letters" in capsys.readouterr().out
    assert state(migrated, other) == "failed"
    assert run([*retry, "--all", "--yes"]) == 0
    assert "retried 1 dead letter" in capsys.readouterr().out


def test_dead_letters_are_purged(migrated: str, capsys: Capture) -> None:
    ids = [bury(migrated, enqueue(migrated, "k", "{}", ordering_key="a row")) for _ in range(3)]
    purge = ["dlq", "purge", "--dsn", migrated]
    assert run([*purge, str(ids[0])]) == 0
    assert f"job {ids[0]} is gone" in capsys.readouterr().out
    assert run([*purge, str(ids[0])]) == 1
    assert f"there is no job {ids[0]}" in capsys.readouterr().err
    assert run([*purge, "--kind", "nothing"]) == 0
    assert run([*purge, "--all", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "purged 0 dead letters",
        "purged 2 dead letters",
    ]


@pytest.mark.parametrize("command", ["show", "retry", "purge"])
def test_a_dead_letter_that_no_job_can_be(command: str, migrated: str, capsys: Capture) -> None:
    assert run(["dlq", command, "9" * 25, "--dsn", migrated]) == 1
    assert f"there is no job {'9' * 25}" in capsys.readouterr().err


@pytest.mark.parametrize("run_at", ["0001-01-01", "0001-01-01T00:00:00"])
def test_a_dead_letter_is_not_retried_before_there_was_time(
    run_at: str, migrated: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert run(["dlq", "retry", "1", "--run-at", run_at, "--dsn", migrated]) == 2
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "outside the years 1 to 9999" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["retry", "purge"])
@pytest.mark.parametrize(
    "which", [[], ["--all", "--queue", "q"], ["5", "--kind", "k"], ["5", "--all"]]
)
def test_many_dead_letters_need_a_filter_or_an_explicit_all(
    command: str, which: list[str], migrated: str, capsys: Capture
) -> None:
    dead = bury(migrated, enqueue(migrated, "k", "{}", ordering_key="a row"))
    assert run(["dlq", command, *which, "--dsn", migrated]) == 2
    said = capsys.readouterr().err
    assert "or --all" in said
    assert ("in one way only" in said) == bool(which)
    assert state(migrated, dead) == "failed"


# ---- dev and demo


def test_dev_offers_a_database_and_keeps_its_data(tmp_path: Path) -> None:
    for expected in (0, 1):
        how = "--json" if expected else "--quiet"
        with cli("dev", how, "--root", str(tmp_path / "pg"), cwd=tmp_path) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            dsn = json.loads(said)["dsn"] if expected else said.strip()
            with psycopg.connect(dsn) as connection:
                row = connection.execute(
                    "SELECT last_value - 1 + is_called::int FROM awa.job_ids"
                ).fetchone()
                assert row == (expected,)
            enqueue(dsn, "k", "{}")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn, connect_timeout=5)


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_dev_while_it_waits_for_another(
    tmp_path: Path, number: signal.Signals
) -> None:
    root = tmp_path / "pg"
    root.mkdir(mode=0o700)
    with open(root / "awa.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with cli("dev", "--root", str(root), cwd=tmp_path) as process:
            until_it_catches(process.pid, signal.SIGTERM)
            process.send_signal(number)
            assert process.wait(10) == 128 + number


def until_it_catches(pid: int, number: signal.Signals) -> None:
    """Until a process has a handler for a signal."""
    deadline = time.monotonic() + 30
    status = Path(f"/proc/{pid}/status")
    while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> number - 1 & 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("chaos", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_demos_numbers_match(
    dsn: str, chaos: bool, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[DemoProgress] = []

    async def watched(*, watch: Callable[[DemoProgress], None], **options: Any) -> Summary:
        def show(progress: DemoProgress) -> None:
            shown.append(progress)
            watch(progress)

        return await run_demo(watch=show, **options)

    monkeypatch.setattr(_demo, "run_demo", watched)
    assert run(["demo", "--dsn", dsn, *(["--chaos"] if chaos else [])]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("yes") == 4
    assert "distinct modules" in printed.out
    assert ("workers were killed" in printed.out) == chaos
    assert printed.err == ""
    # What the bar counts are files, as the text does, and not the jobs that they take.
    files = {progress.files for progress in shown}
    assert files == {shown[-1].files_done}
    assert f"\n{files.pop()} files in {shown[-1].scans} jobs" in printed.out
    assert all(0 <= progress.files_done <= progress.files for progress in shown)

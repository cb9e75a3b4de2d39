"""The commands, as a user meets them: what they print, and how they exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from awa_trio._app.schema import schema
from awa_trio.cli._main import run

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
            "SELECT id FROM awa.enqueue(%s, %s, queue => %s)",
            [kind, args, options.get("queue", "default")],
        ).fetchone()
        assert row is not None
        return int(row[0])


def state(dsn: str, job_id: int) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT state::text FROM awa.jobs WHERE id = %s", [job_id]
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
        (["worker", "program", "--queue", "q=many"], 1, "give NAME=ATTEMPTS_AT_ONCE"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    folder: Path, capsys: Capture, arguments: list[str], code: int, message: str
) -> None:
    assert run(arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert "Traceback" not in printed.err


def test_a_database_without_the_schema_is_exit_code_4(dsn: str, capsys: Capture) -> None:
    assert run(["jobs", "list", "--dsn", dsn]) == 4
    assert "awa-trio migrate" in capsys.readouterr().err


def test_a_missing_import_of_the_program_is_named(folder: Path, capsys: Capture) -> None:
    (folder / "broken.py").write_text("import not_installed_anywhere")
    assert run(["worker", "broken:app"]) == 1
    assert (
        "broken imports 'not_installed_anywhere', which is not installed"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["jobs"],
        ["migrate"],
        ["worker"],
        ["dev"],
        ["demo"],
        ["jobs", "list"],
        ["dlq"],
        ["dlq", "retry"],
    ],
)
def test_every_command_has_help(command: list[str], capsys: Capture) -> None:
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
    assert "cancelled: why not" in capsys.readouterr().out
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
    job_id = enqueue(migrated, "k", "{}")
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "UPDATE awa.jobs SET output = %s, progress = %s",
            [
                '{"pages": 4}',
                r'{"percent": 12.5, "message": "\u001b[31mred", "metadata": {"a": [1]}}',
            ],
        )
    assert run(["jobs", "show", str(job_id), "--dsn", migrated]) == 0
    shown = capsys.readouterr().out
    assert '{"pages": 4}' in shown
    assert r'12.5 %  "\u001b[31mred"  {"a": [1]}' in shown
    assert run(["jobs", "show", str(job_id), "--json", "--dsn", migrated]) == 0
    job = json.loads(capsys.readouterr().out)
    assert job["output"] == {"pages": 4}
    assert job["progress"]["metadata"] == {"a": [1]}


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
            "SELECT (args ->> 'seconds')::float FROM awa.jobs WHERE kind = 'slow' ORDER BY id"
        )
        return [int(row[0]) for row in rows]


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
    a = bury(migrated, enqueue(migrated, "k", '{"a": 1}'))
    b = bury(migrated, enqueue(migrated, "k", "{}", queue="mail"), "rescued")

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
    capsys.readouterr()
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
    ids = [bury(migrated, enqueue(migrated, "k", "{}")) for _ in range(3)]
    other = bury(migrated, enqueue(migrated, "k", "{}", queue="mail"), "rescued")
    retry = ["dlq", "retry", "--dsn", migrated]
    later = ["--run-at", "2999-01-01T00:00:00", "--priority", "1", "--to-queue", "new"]
    assert run([*retry, str(ids[0]), "999", *later]) == 1
    printed = capsys.readouterr()
    assert f"job {ids[0]} will run again" in printed.out
    assert "there is no job 999" in printed.err
    with psycopg.connect(migrated) as connection:
        row = connection.execute(
            "SELECT state::text, attempt, queue, priority, extract(year FROM run_at)"
            " FROM awa.jobs WHERE id = %s",
            [ids[0]],
        ).fetchone()
    assert row is not None
    assert row[:4] == ("scheduled", 0, "new", 1)
    assert row[4] in (2998, 2999)

    assert run([*retry, "--queue", "default"]) == 0
    assert "2 dead letters will run again" in capsys.readouterr().out
    assert state(migrated, other) == "failed"
    assert run([*retry, "--all"]) == 0
    assert "1 dead letter will run again" in capsys.readouterr().out


def test_dead_letters_are_purged(migrated: str, capsys: Capture) -> None:
    ids = [bury(migrated, enqueue(migrated, "k", "{}")) for _ in range(3)]
    purge = ["dlq", "purge", "--dsn", migrated]
    assert run([*purge, str(ids[0])]) == 0
    assert f"job {ids[0]} is gone" in capsys.readouterr().out
    assert run([*purge, str(ids[0])]) == 1
    assert f"there is no job {ids[0]}" in capsys.readouterr().err
    assert run([*purge, "--kind", "nothing"]) == 0
    assert run([*purge, "--all"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 dead letters are gone",
        "2 dead letters are gone",
    ]


@pytest.mark.parametrize("command", ["retry", "purge"])
@pytest.mark.parametrize(
    "which", [[], ["--all", "--queue", "q"], ["5", "--kind", "k"], ["5", "--all"]]
)
def test_many_dead_letters_need_a_filter_or_an_explicit_all(
    command: str, which: list[str], migrated: str, capsys: Capture
) -> None:
    dead = bury(migrated, enqueue(migrated, "k", "{}"))
    assert run(["dlq", command, *which, "--dsn", migrated]) == 2
    assert "or --all" in capsys.readouterr().err
    assert state(migrated, dead) == "failed"


# ---- dev and demo


def test_dev_offers_a_database_and_keeps_its_data(tmp_path: Path) -> None:
    for expected in (0, 1):
        with cli("dev", "--quiet", "--root", str(tmp_path / "pg"), cwd=tmp_path) as process:
            assert process.stdout is not None
            dsn = process.stdout.readline().strip()
            with psycopg.connect(dsn) as connection:
                row = connection.execute("SELECT count(*) FROM awa.jobs").fetchone()
                assert row == (expected,)
            enqueue(dsn, "k", "{}")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn, connect_timeout=5)


@pytest.mark.parametrize("chaos", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_demos_numbers_match(dsn: str, chaos: bool) -> None:
    arguments = ["demo", "--dsn", dsn, *(["--chaos"] if chaos else [])]
    with cli(*arguments) as process:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    assert out.count("yes") == 4
    assert "distinct modules" in out
    assert ("workers were killed" in out) == chaos

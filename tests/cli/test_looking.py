"""The commands that look, and those that act on many: what they print, and how they exit."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import attrs
import psycopg
import pytest

import awa_trio as awa
from awa_trio.cli import _demo
from awa_trio.cli._main import run
from awa_trio.cli._many import each
from awa_trio.cli._output import fitted, share
from awa_trio.demo import Summary

from . import test_cron
from .pages import PAGE, commands, options, page_with, rendered
from .test_commands import APP, BROKEN, Capture, cli, enqueue, lines_until, state

FOLLOWS = "--without-follow-ups"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.py").write_text(APP)
    (tmp_path / "scheduling.py").write_text(test_cron.APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- all of them


def test_the_page_has_every_command_and_option() -> None:
    assert PAGE.read_text() == page_with(rendered()), "run: just cli-page"
    page = PAGE.read_text()
    for path, command in commands():
        assert f"`awa-trio {' '.join(path)}" in page
        for option in options(command):
            assert option.parameter.help, (path, option.names)


def test_the_page_has_every_exit_code() -> None:
    from awa_trio.cli import _exits

    page = PAGE.read_text()
    table = page[page.index("## Exit codes") : page.index("## Environment")]
    for code in (value for name, value in vars(_exits).items() if name.isupper()):
        assert f"| {code} |" in table or f"| {code}, " in table, code


def test_every_command_prints_for_programs_too() -> None:
    for path, command in commands():
        names = {name for option in options(command) for name in option.names}
        assert "--json" in names, path


def fake_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_demo(**_: object) -> Summary:
        numbers = dict.fromkeys((f.name for f in attrs.fields(Summary)), 0)
        return Summary(**numbers | {"modules": {}, "expected": {}, "rows": {}})  # type: ignore[arg-type]

    monkeypatch.setattr(_demo, "run_demo", run_demo)


#: Each command that ends by itself, with arguments that are right, and its exit code. What runs
#: until a signal is tried below, and `dev` among its own tests.
ENDS: dict[tuple[str, ...], tuple[list[str], int]] = {
    ("migrate",): ([], 0),
    ("grants",): (["reader", "--role", "somebody"], 0),
    ("check",): (["program"], 0),
    ("workers", "list"): ([], 0),
    ("top",): (["--once"], 0),
    ("jobs", "list"): ([], 0),
    ("jobs", "show"): (["1"], 0),
    ("jobs", "explain"): (["1"], 0),
    ("jobs", "cancel"): (["1", FOLLOWS], 0),
    ("cron", "list"): ([], 0),
    ("cron", "show"): (["nightly"], 0),
    ("cron", "pause"): (["nightly"], 0),
    ("cron", "resume"): (["nightly"], 0),
    ("cron", "trigger"): (["nightly", "--app", "scheduling"], 0),
    ("cron", "remove"): (["nightly"], 0),
    ("queues", "list"): ([], 0),
    ("queues", "show"): (["default"], 0),
    ("queues", "pause"): (["default"], 0),
    ("queues", "drain"): (["default"], 0),
    ("queues", "resume"): (["default"], 0),
    ("queues", "override"): (["default", "max_workers=3"], 0),
    ("queues", "reset"): (["default"], 0),
    ("dlq", "show"): (["2"], 0),
    ("dlq", "list"): ([], 0),
    ("dlq", "retry"): (["--all", "--dry-run"], 0),
    ("jobs", "retry"): (["--all", "--yes"], 0),
    ("dlq", "purge"): (["--all", "--yes"], 0),
    ("storage", "status"): ([], 0),
    ("demo",): ([], 0),
    ("completion",): (["bash"], 0),
}
RUN_ON = {("worker",), ("callbacks", "serve"), ("web",), ("dev",)}


def test_every_command_is_tried() -> None:
    assert {path for path, _ in commands()} == set(ENDS) | RUN_ON


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("for_programs", [True, False])
def test_every_command_prints_json_or_text(
    canonical: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, for_programs: bool
) -> None:
    fake_demo(monkeypatch)
    monkeypatch.setenv("AWA_DSN", canonical)
    enqueue(canonical, "quick\x1b[31m", '{"n": 1}')
    job_id = enqueue(canonical, "quick", '{"n": 2}')
    with psycopg.connect(canonical, autocommit=True) as connection:
        connection.execute(
            "UPDATE awa.jobs SET state = 'failed', finalized_at = now(), dead_letter = 'terminal_error'"
            " WHERE id = %s",
            [job_id],
        )
        connection.execute(test_cron.ROWS.encode())
    for path, (arguments, code) in ENDS.items():
        assert run([*path, *arguments, *(["--json"] if for_programs else [])]) == code, path
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        lines = printed.out.splitlines()
        assert lines or (for_programs and path == ("workers", "list")), path
        if for_programs:
            assert all(isinstance(json.loads(line), dict) for line in lines), path
        else:
            assert not any(line.startswith("{") for line in lines), path


def test_a_worker_logs_json(folder: Path, migrated: str) -> None:
    job_id = enqueue(migrated, "quick", '{"n": 13}')
    with cli("worker", "program", "--json", dsn=migrated, cwd=folder) as process:
        lines = lines_until(process, "TerminalError")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        lines += process.stderr.readlines()
        assert process.wait(30) == 0
    records = [json.loads(line) for line in lines]
    assert any(record.get("job_id") == job_id for record in records)
    assert "no new jobs" in records[-1]["message"]


# ---- jobs


def test_a_job_is_shown_with_what_happened_to_it(
    folder: Path, migrated: str, capsys: Capture
) -> None:
    job_id = enqueue(migrated, "quick", '{"n": 1}')
    assert run(["jobs", "cancel", str(job_id), "--app", "program", "--dsn", migrated]) == 0
    capsys.readouterr()
    assert run(["jobs", "show", str(job_id), "--dsn", migrated]) == 0
    shown = capsys.readouterr().out
    assert "enqueued in default as quick" in shown
    assert shown.count("cancelled by an operator") == 1
    child = f"job {job_id + 1}  slow  available"
    assert child in shown
    assert run(["jobs", "show", str(job_id), "--json", "--dsn", migrated]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["follow_ups"] == [job_id + 1]
    assert [entry["event"] for entry in found["timeline"]] == ["enqueued", "cancelled"]
    assert run(["jobs", "show", str(job_id + 1), "--dsn", migrated]) == 0
    assert f"triggered by job {job_id}" in capsys.readouterr().out


def test_a_job_is_explained(migrated: str, capsys: Capture) -> None:
    job_id = enqueue(migrated, "quick\x1b[2J", "{}", ordering_key="k\n")
    second = enqueue(migrated, "quick", "{}", ordering_key="k\n")
    assert run(["jobs", "explain", str(second), "--dsn", migrated]) == 0
    said = capsys.readouterr().out
    assert "no worker is alive\n  → start one" in said
    assert f"job {job_id} of its ordering key, 'k\\n', comes first" in said
    assert run(["jobs", "explain", "999", "--dsn", migrated]) == 1
    assert "there is no job 999" in capsys.readouterr().err


# ---- many


def many(dsn: str, count: int, kind: str = "quick") -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT awa.enqueue(%s, '{\"n\": 1}') FROM generate_series(1, %s)", [kind, count]
        )


def test_many_are_counted_then_cancelled(migrated: str, capsys: Capture) -> None:
    many(migrated, 3)
    other = enqueue(migrated, "other", "{}")
    cancel = ["jobs", "cancel", "--kind", "quick", FOLLOWS, "--dsn", migrated]
    assert run([*cancel, "--dry-run"]) == 0
    assert "would cancel 3 jobs" in capsys.readouterr().out
    assert run(cancel) == 2
    assert "there is no terminal to ask at: give --yes" in capsys.readouterr().err
    assert run([*cancel, "--yes"]) == 0
    assert "cancelled 3 jobs" in capsys.readouterr().out
    assert state(migrated, other) == "available"
    retry = ["jobs", "retry", "--state", "cancelled", "--dsn", migrated, "-y"]
    assert run(retry) == 0
    assert "retried 3 jobs" in capsys.readouterr().out
    assert run([*cancel, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"done": 3, "left": 0, "whole": True}


@pytest.mark.parametrize("command", ["cancel", "retry"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which jobs"),
        (["1", "--all"], "in one way only"),
        (["--kind", "k", "--all"], "in one way only"),
        (["1", "--dry-run"], "--dry-run: only with a filter"),
        (["--state", "completed", "--yes"], "not from state 'completed'"),
    ],
)
def test_many_are_meant_in_one_way(
    migrated: str, capsys: Capture, command: str, arguments: list[str], message: str
) -> None:
    more = [FOLLOWS] if command == "cancel" else []
    assert run(["jobs", command, *arguments, *more, "--dsn", migrated]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_many_of_an_unknown_kind_are_refused_and_the_rest_is_told(
    folder: Path, migrated: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awa_trio._app.jobs.CHUNK", 2)
    many(migrated, 1, "stranger")
    many(migrated, 2)
    cancel = ["jobs", "cancel", "--all", "--yes", "--dsn", migrated]
    assert run([*cancel, "--app", "program"]) == 1
    printed = capsys.readouterr()
    assert "cancelled 2 jobs" in printed.out
    assert "the same command goes on with the rest" in printed.err
    assert "registered for kind 'stranger'" in printed.err


def at_a_terminal(
    arguments: list[str], dsn: str, until: str, keys: bytes, term: str = "xterm"
) -> tuple[str, int]:
    """Run a command at a terminal of its own; type when it says something; what it showed."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "AWA_DSN": dsn, "TERM": term, "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-m", "awa_trio", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    )  # fmt: skip
    shown = b""
    deadline = time.monotonic() + 60
    typed = False
    try:
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            assert time.monotonic() < deadline, shown
            if select.select([ours], [], [], 0.05)[0]:
                shown += os.read(ours, 65536)
            if not typed and until.encode() in shown:
                typed = True
                if keys == b"\x03":
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(ours, keys)
        assert typed, shown
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    return shown.decode(), process.returncode


@pytest.mark.parametrize(
    ("keys", "code", "left"),
    [(b"y\n", 0, "cancelled"), (b"\n", 1, "available"), (b"\x03", 130, "available")],
)
def test_many_are_asked_about_at_a_terminal(
    migrated: str, keys: bytes, code: int, left: str
) -> None:
    job_id = enqueue(migrated, "quick", "{}")
    shown, returned = at_a_terminal(
        ["jobs", "cancel", "--all", FOLLOWS], migrated, "cancel 1 job? [y/N]", keys
    )
    assert (returned, state(migrated, job_id)) == (code, left)
    assert "Traceback" not in shown


# ---- top


@pytest.mark.parametrize(
    ("wanted", "room", "given"),
    [
        ([3, 2, 1], 50, [3, 2, 1]),
        ([99, 99, 99], 50, [17, 17, 16]),
        ([99, 1, 99], 14, [7, 1, 6]),
        ([99, 99, 99], 2, [1, 1, 0]),
        ([99, 99, 99], -3, [0, 0, 0]),
    ],
)
def test_what_wants_room_shares_what_there_is(
    wanted: list[int], room: int, given: list[int]
) -> None:
    assert share(wanted, room) == given


@pytest.mark.parametrize(
    ("natural", "room", "widths"),
    [
        ([3, 9, 12, 8, 60], 200, [3, 9, 12, 8, 60]),
        ([3, 9, 12, 8, 60], 80, [3, 9, 12, 8, 40]),
        ([3, 9, 200, 200, 60], 80, [3, 9, 24, 24, 12]),
        ([3, 9, 200, 5, 0], 80, [3, 9, 55, 5, 1]),
        ([9, 9, 200, 5, 60], 10, [9, 9, 1, 1, 1]),
    ],
)
def test_names_and_errors_give_way_to_what_has_an_end(
    natural: list[int], room: int, widths: list[int]
) -> None:
    columns = ("id", "state", "kind", "queue", "last error")
    assert fitted(columns, natural, room) == widths


def test_the_failures_in_top_stand_under_each_other(canonical: str, capsys: Capture) -> None:
    ids = [enqueue(canonical, "k" * n, "{}") for n in (1, 30)]
    with psycopg.connect(canonical, autocommit=True) as connection:
        connection.execute("ALTER SEQUENCE awa.job_ids RESTART 1000000")
        ids.append(enqueue(canonical, "quick", "{}"))
        connection.execute(
            "UPDATE awa.jobs SET state = 'failed', finalized_at = now(),"
            " dead_letter = 'terminal_error', errors = %s",
            [
                json.dumps(
                    [{"error": "boom", "attempt": 1, "at": "2026-01-01", "terminal": True}]
                )
            ],
        )
    assert run(["top", "--dsn", canonical]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("boom")]
    assert sorted(int(line.split()[0]) for line in lines) == ids
    assert len({line.index("boom") for line in lines}) == 1


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_top_shows_what_happens_until_it_is_left(migrated: str, keys: bytes) -> None:
    enqueue(migrated, "quick", "{}", queue="deep")
    shown, code = at_a_terminal(["top"], migrated, "no workers", keys)
    assert code == 0
    assert "deep" in shown
    assert "Traceback" not in shown
    # It leaves the screen as it was.
    assert shown.rindex("\x1b[?1049l") > shown.rindex("no workers")


def test_top_prints_once_on_a_terminal_that_can_only_print(migrated: str) -> None:
    shown, code = at_a_terminal(["top"], migrated, "no workers", b"q", term="dumb")
    assert code == 0
    assert "completed 0.0/s" in shown
    assert "\x1b" not in shown


def test_top_prints_once_where_there_is_no_terminal(migrated: str, capsys: Capture) -> None:
    enqueue(migrated, "quick", "{}", queue="deep")
    assert run(["top", "--dsn", migrated]) == 0
    said = capsys.readouterr().out
    assert "completed 0.0/s" in said
    assert "deep" in said


def test_top_goes_on_for_programs(migrated: str) -> None:
    with cli("top", "--json", "--interval", "0.1", dsn=migrated) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert looks[0]["enqueued_per_second"] is None
    assert looks[2]["enqueued_per_second"] == 0.0


# ---- check


def test_an_app_is_checked_with_its_database(
    folder: Path, migrated: str, capsys: Capture
) -> None:
    assert run(["check", "program"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    enqueue(migrated, "renamed", "{}")
    check = ["check", "program", "--dsn", migrated]
    assert run(check) == 0
    assert "jobs of kind 'renamed' wait in queue 'default'" in capsys.readouterr().out
    assert run([*check, "--strict"]) == 1


@pytest.mark.parametrize(
    ("source", "message", "code"),
    [
        ("", "has no tasks", 1),
        (
            "@app.task(kind='k')\nasync def k(job: awa.Job[dict], n: bytes) -> None: ...",
            "bytes",
            1,
        ),
        (
            "app.queue('mial')\napp.task(kind='k', args=dict)(print)",
            "queue 'mial' has settings",
            0,
        ),
        (
            (
                "app.queue('nightly')\n"
                "app.cron('@daily', queue='nightly')(app.task(kind='k', args=dict)(print))"
            ),
            "nothing is wrong",
            0,
        ),
    ],
)
def test_what_is_wrong_with_an_app_is_said(
    folder: Path, capsys: Capture, source: str, message: str, code: int
) -> None:
    name = f"wrong_{abs(hash(source))}.py"
    (folder / name).write_text(f"import awa_trio as awa\napp = awa.App()\n{source}\n")
    assert run(["check", name]) == code
    assert message in capsys.readouterr().out


def test_an_app_that_cannot_be_imported_fails_the_build(folder: Path, capsys: Capture) -> None:
    (folder / "raises.py").write_text(BROKEN["raises.py"])
    assert run(["check", "raises.py"]) == 1
    assert "cannot be imported" in capsys.readouterr().err
    assert run(["check", "raises.py", "--verbose"]) == 1
    assert "in f\n    raise ValueError('no')\nValueError: no\n" in capsys.readouterr().err


def test_a_check_fails_where_a_worker_would(folder: Path, dsn: str) -> None:
    assert run(["check", "program", "--dsn", dsn]) == 4


# ---- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str, capsys: Capture) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("explain", "--without-follow-ups", "completion"):
        assert word.removeprefix("--") in script


def test_completion_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["completion", "bash", "--install"]) == 0
    where = capsys.readouterr().out.split(" has it")[0]
    assert where.startswith(str(tmp_path))
    assert "awa-trio" in Path(where).read_text()


# ---- each that is named


async def test_what_cannot_be_done_to_one_is_done_to_the_others(capsys: Capture) -> None:
    tried: list[int] = []

    async def act(number: int) -> None:
        tried.append(number)
        if number == 2:
            raise awa.JobNotFound(number)

    assert await each([1, 2, 3], act) == 1
    assert tried == [1, 2, 3]
    assert "2" in capsys.readouterr().err


async def test_without_a_database_the_rest_is_not_tried() -> None:
    tried: list[int] = []

    async def act(number: int) -> None:
        tried.append(number)
        raise awa.DatabaseUnavailable("gone")

    with pytest.raises(awa.DatabaseUnavailable):
        await each([1, 2], act)
    assert tried == [1]

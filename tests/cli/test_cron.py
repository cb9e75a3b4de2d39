"""``awa-trio cron``, as an operator meets it."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from awa_trio.cli._main import run

Capture = pytest.CaptureFixture[str]

APP = """
import awa_trio as awa
from attrs import frozen

app = awa.App()

@frozen
class Report:
    day: int = 1

@app.cron("0 3 * * *", timezone="Europe/Paris", name="nightly", unique_opts={})
@app.task
async def report(job: awa.Job[Report]) -> None: ...

@app.periodic(60)
def nothing(fire: awa.Fire) -> None:
    return None

@app.periodic(60)
def broken(fire: awa.Fire) -> Report:
    raise ZeroDivisionError("by zero")
"""

#: Rows as workers leave them: one that fires, one that nobody has, one with an odd name and error.
ROWS = r"""
INSERT INTO awa.schedules
       (name, expression, timezone, kind, missed, since, cursor, seen_at, fires, fired_for,
        fired_at, last_job_id, error)
VALUES ('nightly', '0 3 * * *', 'Europe/Paris', 'report', 'coalesce', '2026-01-01 00:00+00',
        clock_timestamp(), clock_timestamp(), 1234, '2026-01-02 02:00+00',
        '2026-01-02 02:00:01+00', 77, NULL),
       ('old', 'every 60 s', NULL, NULL, 'skip', '2026-01-01 00:00+00', '2026-01-02 00:00+00',
        '2026-01-02 00:00+00', 0, NULL, NULL, NULL, NULL),
       (E'od\u001bd', '* * * * *', 'UTC', 'k', 'skip', now(), clock_timestamp(), now(), 0,
        NULL, NULL, NULL, E'ValueError: \u001b[2J\n  at line 1')
"""


@pytest.fixture
def scheduled(migrated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "scheduling.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWA_DSN", migrated)
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(ROWS.encode())
    return migrated


def said(capsys: Capture) -> tuple[str, str]:
    captured = capsys.readouterr()
    assert "\x1b[2J" not in captured.out + captured.err
    return captured.out, captured.err


def test_schedules_are_listed_and_shown(scheduled: str, capsys: Capture) -> None:
    assert run(["cron", "list"]) == 0
    out, _ = said(capsys)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "0 3 * * * Europe/Paris" in lines["nightly"]
    assert "1,234" in lines["nightly"]
    assert "orphaned" in lines["old"]
    assert r"od\x1bd" in out
    assert r"ValueError: \x1b[2J" in out

    assert run(["cron", "show", "nightly"]) == 0
    out, _ = said(capsys)
    assert out.count("T03:00:00+0") == 5, "on the clock of the zone"
    for fact in ("schedule nightly", "2026-01-02T02:00:00+00:00", "77", "coalesce", "next"):
        assert fact in out
    assert run(["cron", "show", "od\x1bd"]) == 0
    assert "  at line 1" in said(capsys)[0]


def test_they_are_a_line_of_json_each(scheduled: str, capsys: Capture) -> None:
    assert run(["cron", "list", "--json"]) == 0
    rows = {row["name"]: row for row in map(json.loads, said(capsys)[0].splitlines())}
    assert set(rows) == {"nightly", "old", "od\x1bd"}
    nightly = rows["nightly"]
    assert (nightly["timezone"], nightly["fires"], nightly["last_job_id"]) == (
        "Europe/Paris",
        1234,
        77,
    )
    assert nightly["next_at"].endswith(("01:00:00+00:00", "02:00:00+00:00"))
    assert not nightly["orphaned"]
    assert rows["old"]["orphaned"]
    assert run(["cron", "show", "old", "--json"]) == 0
    assert json.loads(said(capsys)[0])["expression"] == "every 60 s"


def test_they_are_paused_resumed_and_removed(scheduled: str, capsys: Capture) -> None:
    assert run(["cron", "pause", "nightly", "old"]) == 0
    assert said(capsys)[0].splitlines() == [
        "schedule nightly is paused",
        "schedule old is paused",
    ]
    assert run(["cron", "list"]) == 0
    assert said(capsys)[0].count("paused") == 2
    assert run(["cron", "resume", "nightly"]) == 0
    assert "fires again" in said(capsys)[0]
    assert run(["cron", "remove", "old", "older", "nightly"]) == 1
    out, err = said(capsys)
    assert out.splitlines() == ["schedule old is gone", "schedule nightly is gone"]
    assert "there is no schedule 'older'" in err


def test_one_is_triggered_by_its_app(scheduled: str, capsys: Capture) -> None:
    command = ["cron", "trigger", "nightly", "--app", "scheduling:app"]
    assert run(command) == 0
    out, _ = said(capsys)
    job_id = out.removeprefix("job ").strip()
    assert run(command) == 0
    assert said(capsys)[0].strip() == f"a duplicate of job {job_id}"
    assert run(["jobs", "show", job_id, "--json"]) == 0
    shown = json.loads(said(capsys)[0])
    assert (shown["kind"], shown["schedule"]) == ("report", "nightly")
    assert shown["scheduled_for"].endswith("+00:00")
    assert run(["jobs", "show", job_id]) == 0
    assert "nightly, for " in said(capsys)[0]
    assert run(["cron", "trigger", "nothing", "--app", "scheduling:app"]) == 0
    assert said(capsys)[0].strip() == "schedule nothing has nothing to do now"


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["show", "nobody"], 1, "there is no schedule 'nobody'"),
        (["show", ""], 1, "name: give 1 to 200 characters"),
        (["pause", "nightli"], 1, "did you mean 'nightly'"),
        (["pause"], 2, "NAME is missing"),
        (["trigger", "nightly"], 2, "--app is missing"),
        (["trigger", "nightly", "--app"], 2, "--app has no value"),
        (["trigger", "old", "--app", "scheduling:app"], 1, "there is no schedule 'old'"),
        (
            ["trigger", "broken", "--app", "scheduling:app"],
            1,
            "raised ZeroDivisionError: by zero, at",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    scheduled: str, capsys: Capture, arguments: list[str], code: int, problem: str
) -> None:
    assert run(["cron", *arguments]) == code
    out, err = said(capsys)
    assert out == ""
    assert problem in err
    assert err.count("\n") == 1


def test_no_schedules_is_no_error(
    migrated: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("AWA_DSN", migrated)
    assert run(["cron", "list"]) == 0
    assert said(capsys)[0].strip() == "no schedules"
    assert run(["cron", "list", "--json"]) == 0
    assert said(capsys)[0] == ""

"""``awa-trio queues``, as a user meets it."""

from __future__ import annotations

import json

import psycopg
import pytest

from awa_trio.cli._main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def dsn(migrated: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWA_DSN", migrated)
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("SELECT awa.enqueue('k', '{}', queue => 'mail')")
    return migrated


def said(capsys: Capture, *arguments: str) -> str:
    assert run(["queues", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("dsn")
def test_a_queue_is_paused_drained_and_resumed(capsys: Capture) -> None:
    assert said(capsys, "pause", "mail", "other").splitlines() == [
        "queue mail is paused",
        "queue other is paused",
    ]
    assert said(capsys, "pause", "mail") == "queue mail is paused, as it was\n"
    assert run(["queues", "pause", "mial"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "queue mial is paused\n"
    assert "no live worker serves it; did you mean mail?" in printed.err
    assert said(capsys, "resume", "mial") == "queue mial goes on\n"
    assert said(capsys, "resume", "mial") == "queue mial was neither paused nor draining\n"
    assert said(capsys, "drain", "mail") == "queue mail is draining\n"
    row = next(line for line in said(capsys, "list").splitlines() if "mail" in line)
    assert row.split()[:4] == ["mail", "paused,", "draining", "1"]
    status = json.loads(said(capsys, "show", "mail", "--json"))
    assert status["counts"]["available"] == 1
    assert status["paused_at"]
    assert status["draining_since"]
    resumed = json.loads(said(capsys, "resume", "mail", "--json"))
    assert (resumed["paused_at"], resumed["draining_since"]) == (None, None)
    assert said(capsys, "drain", "other", "--wait") == "queue other is empty\n"


@pytest.mark.usefixtures("dsn")
def test_settings_are_overridden_shown_and_reset(capsys: Capture) -> None:
    arguments = ("max_workers=5", "rate=300/60/9", "worker_rate=0.5", "max_per_key=none")
    assert "max_workers=5" in said(capsys, "override", "mail", *arguments)
    status = json.loads(said(capsys, "show", "mail", "--json"))
    assert status["overrides"] == {
        "max_workers": 5,
        "rate": {"count": 300, "per": 60, "burst": 9},
        "worker_rate": {"count": 0.5, "per": 1, "burst": 1},
        "max_per_key": None,
    }
    shown = said(capsys, "show", "mail")
    assert "max_workers: 5 (overridden" in shown
    assert "rate: 300/60/9 (overridden; the app's: none)" in shown  # as override takes it
    assert "worker_rate: 0.5/1/1 (overridden" in shown
    assert "max_per_key: none (overridden" in shown
    assert "max_workers" not in said(capsys, "reset", "mail", "max_workers", "rate")
    assert said(capsys, "reset", "mail") == "queue mail: no overrides\n"


@pytest.mark.usefixtures("dsn")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pause"], 2, "NAME is missing"),
        (["override", "mail", "max_workers"], 2, "give NAME=VALUE"),
        (["override", "mail", "rate=1/2/3/4"], 2, "give NAME=VALUE"),
        (["override", "mail", "rate=0/1"], 2, "above 0"),
        (["override", "mail", "max_workers=0"], 2, "from 1 to 100,000"),
        (["override", "mail", "dead_letters=1"], 2, "this cannot be overridden"),
        (["reset", "mail", "nothing"], 2, "this cannot be overridden"),
        (["pause", ""], 1, "1 to 200 characters"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], code: int, message: str, capsys: Capture
) -> None:
    assert run(["queues", *arguments]) == code
    assert message in capsys.readouterr().err

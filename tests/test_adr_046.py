"""Each sentence of ADR-046 is shown, on every engine, by tests that exist."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from .adr_046 import ADR, Says, says, sentences
from .engines import ENGINES

ROOT = Path(__file__).parents[1]


def on_engines(test: str, engines: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """A test on each engine; with no engine, if it knows of none."""
    if "{" not in test:
        yield None, test
        return
    for engine in engines:
        yield engine, test.format(engine=engine, Engine=engine.capitalize())


def runs(test: str, collected: Iterable[str]) -> bool:
    """Whether a test was collected: it, or others of which it names the beginning."""
    return any(
        one == test or one.startswith(tuple(test + c for c in ":[-]")) for one in collected
    )


def problems(one: Says, collected: Iterable[str], engines: Iterable[str]) -> Iterator[str]:
    """What is wrong with what is said to show a sentence."""
    shown: set[str | None] = set()
    for test in one.tests:
        for engine, name in on_engines(test, engines):
            shown.add(engine)
            if not runs(name, collected):
                yield f"there is no {name}"
    for engine in engines:
        if one.needs_store and engine not in shown:
            yield f"it is not shown on {engine}"
    if not shown:
        yield "it is not shown"


def test_each_sentence_is_shown_on_every_engine() -> None:
    files = {
        f"tests/{name.partition('::')[0]}"
        for _, one in sentences()
        for test in one.tests
        for _, name in on_engines(test, ENGINES)
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *sorted(files)],
        cwd=ROOT,
        env={name: v for name, v in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    collected = {
        line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line
    }
    found = [
        f"{section}: {one.sentence}: {problem}"
        for section, one in sentences()
        for problem in problems(one, collected, ENGINES)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (says("s", "a_{engine}.py::Test{Engine}::test_x"), []),
        (says("s", "a_{engine}.py::Test{Engine}::test_y[p"), []),
        (says("s", "b.py::test_z", needs_store=False), []),
        (says("s", "b.py", needs_store=False), []),
        (says("s", "b.py::test_z"), ["it is not shown on one", "it is not shown on two"]),
        (says("s", "b.py::test", needs_store=False), ["there is no b.py::test"]),
        (
            says("s", "a_{engine}.py::Test{Engine}::test_w"),
            ["there is no a_two.py::TestTwo::test_w"],
        ),
        (says("s", needs_store=False), ["it is not shown"]),
    ],
)
def test_what_is_not_shown_is_found(one: Says, found: list[str]) -> None:
    collected = ["a_one.py::TestOne::test_w", "b.py::test_z"]
    for engine in ("one", "two"):
        collected += [
            f"a_{engine}.py::Test{engine.capitalize()}::{t}" for t in ("test_x", "test_y[p-q]")
        ]
    assert list(problems(one, collected, ["one", "two"])) == found


def test_every_row_of_the_commit_table_is_named() -> None:
    assert len(ADR["When staged follow-ups commit"]) == 9

"""Every example runs, in an empty folder, and does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

#: What each prints, as lines in any order; jobs run when they will.
PRINTED = {
    "quickstart": {"hello world, this is attempt 1 of job 1", "job 1 has completed"},
    "pipeline": {"10 URLs, 3 items", "gave up on https://example.com/"},
    "cron": {
        "no second was left out, or fired for twice: True",
        "every_second: * * * * * *, paused: True",
    },
    "nursery": {
        "assembled at attempt 2",
        "polishing the axle",
        "polishing the gear",
        "polishing the wheel",
    },
    "trio_app": {
        "boiler is at 85.0 degrees",
        "boiler is at 90.5 degrees",
        "4 readings",
        "the worker is gone, and left nothing behind",
    },
    "resources": {
        "index: Trio, at priority 2",
        "alert: Trio, at priority 1",
        "the client is closed",
    },
    "tests_of_handlers": {
        "...                                                                      [100%]"
    },
    "fan_out": {"100 pages, 100 different"},
    "caller_owned_completion": {"batch 1 has 10 words"},
    "quart_trio_app": {
        "cat.png is 320 wide now",
        "{'output': {'file': '320/cat.png'}, 'state': 'completed'}",
    },
    "webhook_wait": {"order 7: completed", "order 7 is on its way", "order 8: failed"},
    "asyncio_inside": {"the larger one has 13 bytes"},
    "django_view": {"ada: 202", "root: 500", "welcome, ada"},
    "fastapi_producer": {
        "202 {'job': 1, 'new': True}",
        "{'job': 1, 'new': False}",
        "{'state': 'available'}",
        "404",
    },
    "sqlalchemy_session": {"shipping order 1", "shipping order 3", "shipping order 4"},
    "sync_code": {
        "cat.jpg at 200 pixels",
        "dog.jpg at 100 pixels",
        "refused: UniqueViolation",
        "cat.jpg became cat.jpg.thumb",
        "the other is cancelled",
    },
    "rate_limits": {
        "12 calls, at most 2 at once per customer",
        "not faster than the API allows",
        "paused: nothing was called",
    },
    "web_mounted": {
        "/upload/cat.png 200 application/json",
        "/queue/jobs 200 text/html",
        "resized cat.png",
    },
    "transaction": {"refused: nobody has that many", "shipping order 1", "shipping order 2"},
}


def how_to_run(program: str) -> list[str]:
    """An example's command line, for Python."""
    pytest_ = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return [*(pytest_ if program.startswith("tests_") else ()), program]


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_it_runs(name: str, dsn: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", *how_to_run(f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "AWA_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert PRINTED[name] <= set(lines), done.stdout
    if name == "pipeline":
        assert len([line for line in lines if line.startswith("indexing item")]) == 3


def test_every_example_is_tested_and_listed() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == set(PRINTED)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"]({name}.py)" in readme for name in names)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_it_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 80

"""A test that hangs fails, and says where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from . import hanging

HANGING = """
import time
import trio

async def waits_for_ever():
    await trio.sleep_forever()

async def test_hangs():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_for_ever)

def test_blocks():
    time.sleep(60)

def test_goes_on():
    time.sleep(1.1)
"""


def test_a_test_that_hangs_fails_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests import hanging\nfrom tests.hanging import pytest_runtest_protocol\n"
        "hanging.LIMIT = 1\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.name == 'test_goes_on':\n"
        "            item.add_marker('slow')\n"
    )
    (tmp_path / "test_hanging.py").write_text(HANGING)
    root = Path(hanging.__file__).parents[1]
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
            *("-W", "ignore", "-o", "addopts=", "-o", "trio_mode=true", "--rootdir", str(tmp_path)),
            str(tmp_path),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert "2 failed, 1 passed" in ran.stdout
    assert "test_hanging.py::test_hangs took more than 1 s" in ran.stdout
    assert "test_hanging.py::test_blocks took more than 1 s" in ran.stdout
    assert "waits_for_ever" in ran.stdout
    assert "in test_blocks" in ran.stdout


def test_every_test_is_watched(request: pytest.FixtureRequest) -> None:
    hook = request.config.hook.pytest_runtest_protocol
    watching = {one.function.__module__ for one in hook.get_hookimpls()}
    assert hanging.__name__ in watching

"""A soak runs, in seconds; and a worker that loses something is found out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from . import app
from .load import MIX
from .verdict import BOUNDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "engine", ["canonical", pytest.param("segmented", marks=pytest.mark.slow)]
)
def test_a_worker_that_loses_descriptors_is_found_out(tmp_path: Path, engine: str) -> None:
    kept = tmp_path / "kept.jsonl"
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.08", "--every", "0.24"]
    done = subprocess.run(
        [*command, "--engine", engine, "--leak", "fds", "--save", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "not flat: file descriptors" in done.stderr.splitlines(), done.stderr
    *samples, facts = map(json.loads, kept.read_text().splitlines())
    assert len(samples) == 20
    for sample in samples:
        assert {bound.name for bound in BOUNDS} <= set(sample)
    assert facts["unexpected"] == []
    assert facts["engine"] == engine
    assert facts["done"]["enqueued"] > 20
    assert facts["worker"]["settled"]["completed"] > 20
    assert facts["worker"]["lives"] == 1
    assert samples[-1]["fds"] > samples[0]["fds"] + 10


def test_the_slots_are_counted() -> None:
    queues = app.app._registry.queues.values()
    assert sum(queue.max_workers for queue in queues) == app.SLOTS


def test_each_kind_is_in_the_mix() -> None:
    """But for what others stage, and what measures."""
    made = {type(make(1, Random(0))[0]).__name__ for _, make in MIX}
    kinds = {name.title().replace("_", "") for name in app.app.kinds}
    assert made == kinds - {"Item", "Probe"}
    assert sum(weight for weight, _ in MIX) == 100

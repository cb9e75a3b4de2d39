"""The benchmark runs: with nothing but this project, and few jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import contenders

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_measures_on_a_server_of_its_own(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    command = [sys.executable, "-m", "tests.bench", "--quick", "--scale", "0.02", "--peers"]
    measures = ["drain", "pickup500", "engine-alone"]
    done = subprocess.run(
        [*command, "--only", *measures, "--save", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    saved = json.loads(kept.read_text())
    assert saved["facts"]["fsync"] == saved["facts"]["synchronous_commit"] == "on"
    assert list(saved["results"]) == measures
    [drain] = saved["results"]["drain"]["canonical"]
    assert drain["jobs"] == 200
    assert min(drain["per_s"], drain["worker_us"], drain["wal_b"], drain["commits"]) > 0
    [pickup] = saved["results"]["pickup500"]["canonical"]
    assert pickup["jobs"] == 500
    assert 0 < pickup["p50_ms"] <= pickup["p95_ms"] <= pickup["p99_ms"]
    assert pickup["durable_ms"] > 0
    [engine] = saved["results"]["engine-alone"]["canonical"]
    assert engine["per_s"] > 0
    assert "Drain: handlers that do nothing" in done.stdout


def test_a_queue_that_is_not_installed_is_left_out() -> None:
    """Each either can be loaded or says in a line why not."""
    for name in contenders.PEERS:
        reason = contenders.missing(name)
        if reason is None:
            assert contenders.load(name).package in contenders.title(name)
        else:
            assert reason.startswith(f"{name} is left out: ")
            assert "\n" not in reason

"""The files of examples/deploy say what this release understands, and agree with its timings."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import awa_trio as awa
from awa_trio.cli._main import app as cli

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"
BLOCKED = awa.Timings().give_up_blocked_after


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "awa-worker.service").read_text())
    return parser["Service"]


def dockerfile() -> dict[str, str]:
    """The last of each instruction."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(maxsplit=1) for line in lines)


def pod() -> dict[str, Any]:
    loaded = yaml.safe_load((DEPLOY / "kubernetes.yml").read_text())
    found: dict[str, Any] = loaded["spec"]["template"]["spec"]
    return found


def commands() -> dict[str, list[str]]:
    made = dockerfile()
    entrypoint = json.loads(made["ENTRYPOINT"])
    return {
        "systemd": shlex.split(unit()["ExecStart"]),
        "docker": [*entrypoint, *json.loads(made["CMD"])],
        "kubernetes": [*entrypoint, *pod()["containers"][0]["args"]],
    }


@pytest.mark.parametrize("where", ["systemd", "docker", "kubernetes"])
def test_the_command_is_one_and_there_is_time_for_its_jobs(where: str) -> None:
    program, *arguments = commands()[where]
    assert Path(program).name == "awa-trio"
    _, bound, _ = cli.parse_args(arguments, exit_on_error=False, print_error=False)
    given = bound.arguments
    assert given["probes"].endswith(":8080")
    waits = {
        "systemd": float(unit()["TimeoutStopSec"]),
        "docker": float(
            re.findall(r"--stop-timeout (\d+)", (DEPLOY / "Dockerfile").read_text())[0]
        ),
        "kubernetes": float(pod()["terminationGracePeriodSeconds"]),
    }
    assert waits[where] >= given["grace"] + 10


def test_nobody_restarts_a_worker_sooner_than_it_gives_up_its_jobs_itself() -> None:
    assert float(unit()["WatchdogSec"]) > BLOCKED
    probe = pod()["containers"][0]["livenessProbe"]
    assert probe["httpGet"]["path"] == "/healthz"
    assert probe["periodSeconds"] * probe["failureThreshold"] > BLOCKED
    check = dockerfile()["HEALTHCHECK"]
    [interval], [retries] = (
        re.findall(r"--interval=(\d+)s", check),
        re.findall(r"--retries=(\d+)", check),
    )
    assert int(interval) * int(retries) > BLOCKED
    assert ":8080/healthz" in check


def test_systemd_knows_every_key_of_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "awa-worker.service").read_text()
    copy = tmp_path / "awa-worker.service"
    copy.write_text(text.replace(unit()["ExecStart"].split()[0], "/bin/true"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if copy.name in line]
    assert (done.returncode, said) == (0, [])

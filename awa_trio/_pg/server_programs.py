"""How PostgreSQL's programs are run: initdb, once, and the postmaster."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from awa_trio._core.errors import ConfigurationError
from awa_trio._pg import server_data, server_files
from awa_trio._pg.server_errors import DevServerError
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_identity import Identity

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
        f"--username={server_data.USER}",
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
        "port": str(server_data.port_of(data)),
        "unix_socket_directories": str(folder),
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
    # Nothing of the user's own PostgreSQL applies to this one: PGCLIENTENCODING, for one,
    # would become the default of every client. The locale goes because initdb's messages are
    # passed on, and because macOS lets no server start in one that does not exist.
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

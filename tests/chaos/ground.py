"""The servers: one that is written to, and one that follows it if promotions are to happen."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from awa_trio._app.schema import Engine, schema
from awa_trio._pg import server_binaries, server_data
from awa_trio._pg.server_identity import find_identity
from awa_trio.pg import DevServer, DevServerError
from tests.pg.servers import FAR, take_down

NAME = "chaos"

#: Bytes of the disk that WAL is on, where it can be full: some segments of 16 MiB.
WAL_DISK = 160 << 20

SETTINGS: Mapping[str, str | int] = {
    # As little as fits on the disk for WAL, or it never asks for more.
    "min_wal_size": "32MB",
    "max_wal_size": "64MB",
    "wal_keep_size": "32MB",
    "wal_retrieve_retry_interval": "100ms",
    "shared_buffers": "32MB",
}


class Node:
    """One server, in a folder; it can be killed, started again, and made anew from another."""

    def __init__(self, folder: Path, settings: Mapping[str, str | int]) -> None:
        self.folder = folder
        self.wal: Path | None = None
        """Where its WAL is, if on a disk of its own."""
        self._settings = settings
        self._server = self._made()
        self._dsn = ""

    def _made(self) -> DevServer:
        return DevServer(self.folder / "pg", settings=self._settings, stop_timeout=0)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._server.root / "data"

    def dsn(self, database: str = NAME) -> str:
        """Its own address, past all proxies: the same for as long as its folder is."""
        return make_conninfo(self._dsn, dbname=database)

    def start(self) -> None:
        """Start it, however it ended, and wait until it answers."""
        self._server = self._made().start()
        self._dsn = self._server.dsn()

    def stop(self) -> None:
        """End it at once; or see that nothing is left of one that has died."""
        self._server.stop()

    def kill(self) -> None:
        """End it as the kernel does, with all its processes, and see that they are gone."""
        take_down(self._server, signal.SIGKILL)
        self.stop()

    def revive(self) -> None:
        """Start it again if it does not answer."""
        if not self.answers():
            self.stop()
            self.start()

    def answers(self) -> bool:
        """Whether it takes connections, or says that it has no more."""
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError as error:
            return "too many clients" in str(error)
        return True

    def connect(self, database: str = NAME) -> psycopg.Connection[Any]:
        """A connection past all proxies, in autocommit mode."""
        return psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=5)

    def execute(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements each in a transaction of its own; the last one's rows, if any."""
        with self.connect(database) as connection:
            for statement in statements:
                done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def postmaster(self) -> int:
        """Its process."""
        pid = server_data.read_pid(self.data)
        assert pid is not None
        return pid

    def put_wal_on(self, disk: Path) -> None:
        """Move the WAL of a server that is not running to a disk of its own."""
        self.wal = disk / "pg_wal"
        shutil.move(self.data / "pg_wal", self.wal)
        self.data.joinpath("pg_wal").symlink_to(self.wal)

    def copy_from(self, primary: Node) -> None:
        """Become a standby of another server, whatever this one was; it must not run."""
        shutil.rmtree(self.data, ignore_errors=True)
        self._server.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = []
        if self.wal is not None:
            shutil.rmtree(self.wal, ignore_errors=True)
            options = [f"--waldir={self.wal}"]
        identity = find_identity(primary.data)
        source = make_conninfo(primary.dsn("postgres"), dbname="")
        subprocess.run(
            [
                *identity.prefix,
                str(server_binaries.find_binaries() / "pg_basebackup"),
                f"--dbname={source}",
                f"--pgdata={self.data}",
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
                *options,
            ],
            check=True,
            capture_output=True,
            timeout=FAR,
            **identity.process_user,
        )


class Ground:
    """The servers of one run."""

    def __init__(self, nodes: list[Node], most_connections: int) -> None:
        self.nodes = nodes
        self.most_connections = most_connections
        """As many as the server takes."""
        self.primary = nodes[0]

    @property
    def standby(self) -> Node | None:
        """The one that follows."""
        return next((node for node in self.nodes if node is not self.primary), None)

    def follow(self) -> None:
        """Let the standby follow, and no commit be acknowledged that it does not have."""
        assert self.standby is not None
        self.standby.copy_from(self.primary)
        self.standby.start()
        self.primary.execute(
            "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
        )
        self.wait_for_standby()

    def wait_for_standby(self) -> None:
        """Wait until the standby has all that is acknowledged."""
        until(
            lambda: self.primary.execute(
                "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                " AND state = 'streaming'"
            ),
            "the standby follows",
        )

    def promote(self) -> None:
        """The primary dies, and the standby takes its place; then the dead one follows it."""
        old, new = self.primary, self.standby
        assert new is not None
        old.kill()
        new.execute("SELECT pg_promote()")
        self.primary = new
        # Until there is one that follows, nobody waits for it.
        new.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + FAR
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.02)


@contextmanager
def ground(
    folder: Path, engine: str, *, standby: bool, wal_disk: bool, most_connections: int
) -> Iterator[Ground]:
    """Start the servers, with the schema in a database, for a block.

    Args:
      folder: an empty one, for everything.
      engine: whose schema.
      standby: whether a second one follows.
      wal_disk: whether WAL is on a disk so small that it can be filled.
      most_connections: as many as a server takes.
    """
    settings = {**SETTINGS, "max_connections": most_connections}
    nodes = [Node(folder / name, settings) for name in ("a", "b")[: 1 + standby]]
    with ExitStack() as stack:
        nodes[0].folder.mkdir()
        nodes[0].start()
        stack.callback(nodes[0].stop)
        if wal_disk:
            nodes[0].stop()
            nodes[0].put_wal_on(stack.enter_context(disk(nodes[0].folder / "disk")))
            nodes[0].start()
            stack.callback(nodes[0].stop)
        nodes[0].execute(f"CREATE DATABASE {NAME}")
        nodes[0].execute(schema(Engine(engine)).script(), database=NAME)
        made = Ground(nodes, most_connections)
        if standby:
            nodes[1].folder.mkdir()
            if wal_disk:
                nodes[1].wal = stack.enter_context(disk(nodes[1].folder / "disk")) / "pg_wal"
            stack.callback(nodes[1].stop)
            made.follow()
        try:
            yield made
        finally:
            for node in nodes:
                with suppress(DevServerError):
                    node.stop()


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A disk of `WAL_DISK` bytes, mounted for a block."""
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={WAL_DISK},mode=0700", "chaos", str(folder)],
        check=True,
        capture_output=True,
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def no_disk() -> str | None:
    """Why no disk can be mounted here; None if it can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with disk(Path(folder) / "disk"):
                return None
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no small disk can be mounted here ({error})"


def no_standby() -> str | None:
    """Why no standby can be made here; None if it can."""
    folder = server_binaries.find_binaries()
    if folder.joinpath("pg_basebackup").exists():
        return None
    return f"there is no pg_basebackup in {folder}"

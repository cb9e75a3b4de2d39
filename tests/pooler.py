"""A PgBouncer in transaction mode, in front of a server, for as long as a block runs."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from awa_trio._pg.server_identity import find_identity

#: Where Debian puts it, which is in no ordinary user's PATH.
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

MISSING = "there is no pgbouncer here (Debian: apt install pgbouncer)"


class Pooler:
    """A running PgBouncer; `pooler` makes one."""

    def __init__(self, server: str, folder: Path, port: int) -> None:
        self._server = server
        self._folder = folder
        self._port = port

    def dsn(self, dsn: str) -> str:
        """The address by which this pooler gives access to the database of ``dsn``."""
        return make_conninfo(
            "", dbname=conninfo_to_dict(dsn)["dbname"], host=str(self._folder),
            port=str(self._port), user="through_the_pooler",
        )  # fmt: skip

    def leads(self, dsn: str) -> bool:
        """Whether an address is one of this pooler's."""
        try:
            return conninfo_to_dict(dsn).get("host") == str(self._folder)
        except (psycopg.ProgrammingError, UnicodeError):
            return False  # it is the address of nothing

    def past(self, dsn: str) -> str:
        """The server's own address of the database of ``dsn``."""
        return make_conninfo(self._server, dbname=conninfo_to_dict(dsn)["dbname"])


@contextmanager
def pooler(server: str) -> Iterator[Pooler]:
    """Start a PgBouncer in front of a server, for any of its databases.

    Args:
      server: the server's DSN, by a socket or an address that asks for no password.
    """
    assert PROGRAM is not None, MISSING
    given = conninfo_to_dict(server)
    port = int(secrets.randbelow(20_000)) + 40_000  # only a number in the socket's name
    with tempfile.TemporaryDirectory(prefix="awa-pooler-") as name:
        folder = Path(name)
        identity = find_identity(folder)
        config = folder / "pgbouncer.ini"
        config.write_text(
            "\n".join(
                [
                    "[databases]",
                    f"* = host={given['host']} port={given.get('port', 5432)} user={given['user']}",
                    "[pgbouncer]",
                    "pool_mode = transaction",
                    "auth_type = any",
                    f"unix_socket_dir = {folder}",
                    f"listen_port = {port}",
                    "max_client_conn = 1000",
                    "default_pool_size = 8",
                    "log_connections = 0",
                    "log_disconnections = 0",
                    "log_pooler_errors = 0",
                ]
            )
        )
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            [*identity.prefix, PROGRAM, str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **identity.process_user,
        )
        made = Pooler(server, folder, port)
        try:
            _await(made.dsn(server), process, folder / "log")
            yield made
        finally:
            ended = process.poll()
            process.terminate()
            process.wait(20)
            log.close()
            if ended is not None:
                said = (folder / "log").read_text()
                pytest.fail(f"pgbouncer ended by itself, with {ended}: {said[-2000:]}")


def _await(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(dsn, prepare_threshold=None).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"pgbouncer does not start: {log.read_text()}") from None
            time.sleep(0.02)
        else:
            return

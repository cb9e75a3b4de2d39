"""A private PostgreSQL for development, the demo and tests.

A `DevServer` belongs to a folder, its root. Everybody who opens that folder, in
this process or another, shares one server: the first starts it, the last stops
it, and whoever is killed never has to be cleaned up after.

Elsewhere: how that is agreed upon is `server_root`; what is done about it is
`server_start` and `server_stop`. Which binaries is `server_binaries`, how they
are run `server_programs`, and as which user `server_identity`. Locks and folders
are `server_files`, processes `server_process`, the data directory `server_data`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
import trio
from psycopg import sql

from awa_trio._core.errors import ConfigurationError
from awa_trio._pg import (
    server_data,
    server_process,
    server_programs,
    server_root,
    server_start,
    server_stop,
)
from awa_trio._pg.connection_turns import require_trio
from awa_trio._pg.server_errors import DevServerError, DevServerTimeout
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_root import Options, Root, never_cancelled
from awa_trio._pg.server_start import Running

Setting = str | int | float | bool

#: PostgreSQL cuts longer names, and would then find another database.
NAME_BYTES = 63


class DevServer:
    """A PostgreSQL of one's own, in a folder, shared by everybody who opens that folder.

    Use it as a context manager, or call `start` and `stop`. It listens on a Unix
    socket that only its owner can reach, and on no network; the superuser
    ``postgres`` needs no password. It works as root and as any other user.

    A server whose users were all killed keeps running until the next user adopts
    it, or, if it is temporary, until the next temporary one ends it. A server that
    was itself killed is recovered by the next `start`. A forked child is no user.

    Args:
      root: the folder, made with mode 0700 if it does not exist, and kept. Default,
          a temporary one, which is removed when its last user leaves.
      settings: PostgreSQL settings by name. They apply if this call is the one that
          starts the server; one that runs already is taken as it is.
      durable (bool): False trades the data's survival of a crash of the machine for
          speed, as tests like it. Default, True.
      bin: the folder of ``initdb`` and ``postgres``. Default, ``AWA_PG_BIN``, else
          those of the extra ``embedded``, else of ``PATH``.
      keep (bool): whether data that this call makes stays when its last user leaves.
          Default, True for a root that was given.
      start_timeout (float): seconds to wait for the server, crash recovery included,
          and for others that are starting or stopping it. Default, 120.
      stop_timeout (float): seconds after which a shutdown stops being polite.
          Default, 60.

    Raises:
      ConfigurationError: a setting is no setting, or is not the caller's to set.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        settings: Mapping[str, Setting] | None = None,
        durable: bool = True,
        bin: str | os.PathLike[str] | None = None,  # noqa: A002
        keep: bool | None = None,
        start_timeout: float = 120.0,
        stop_timeout: float = 60.0,
    ) -> None:
        asked = server_programs.check_settings(settings or {})
        if root is None:
            path = server_root.temporary_root(uuid.uuid4().hex[:12])
        else:
            path = Path(os.path.realpath(Path(root).expanduser()))
        options = Options(
            settings=asked if durable else {**server_programs.NOT_DURABLE, **asked},
            durable=durable,
            programs=None if bin is None else Path(bin),
            keep=root is not None if keep is None else keep,
            start_timeout=start_timeout,
            stop_timeout=stop_timeout,
        )
        self._root = Root(path, options)
        self._users = FileLock(self._root.users_lock)
        self._running: Running | None = None
        self._busy = threading.Lock()

    def __repr__(self) -> str:
        return f"<DevServer {str(self.root)!r}{' started' if self.started else ''}>"

    # ---- What a user asks -------------------------------------------------------

    @property
    def root(self) -> Path:
        """The folder, its links resolved."""
        return self._root.path

    @property
    def started(self) -> bool:
        """Whether this object is a user of the server; in a forked child it is not."""
        return self._users.held

    @property
    def version(self) -> str:
        """The running server's version, such as ``"18.6"``.

        Raises:
          DevServerError: this object is no user of the server.
          psycopg.OperationalError: it had no connection to spare, and still has none.
        """
        running = self._known()
        if running.version is not None:
            return running.version
        with self._connect() as connection:
            return server_process.version_of(connection)

    def dsn(self, dbname: str = "postgres") -> str:
        """The address of a database of this server, as a URI.

        It is the same every time, as long as the data and ``TMPDIR`` are.

        Raises:
          DevServerError: this object is no user of the server.
        """
        at = self._known().postmaster
        folder = quote(str(at.folder), safe="")
        return (
            f"postgresql://{server_data.USER}@/{quote(dbname, safe='')}"
            f"?host={folder}&port={at.port}"
        )

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that the server in this folder has written; empty if it never ran."""
        return self._root.log_tail(lines)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make a database and return its DSN.

        Args:
          name: at most 63 bytes; quoted, so every character is allowed but NUL.
          template: the database to copy, which nobody may be connected to. A small one
              takes some 20 milliseconds. Default, PostgreSQL's own, which is empty.

        Raises:
          ConfigurationError: a name is empty, too long, or holds a NUL.
          DevServerError: this object is no user of the server.
          psycopg.errors.DuplicateDatabase: there is one of that name.
          psycopg.errors.InvalidCatalogName: there is no such template.
          psycopg.errors.ObjectInUse: somebody has stayed connected to the template.
        """
        statement = sql.SQL("CREATE DATABASE {}").format(_database(name))
        source = None if template is None else _database(template)
        with self._connect() as connection:
            if source is not None:
                statement += sql.SQL(" TEMPLATE {}").format(source)
                # 27 ms, where WAL_LOG, the default since 15, takes 61 (15.18, 30 tables).
                if connection.info.server_version >= 150_000:
                    statement += sql.SQL(" STRATEGY file_copy")
            connection.execute(statement)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Remove a database if it exists, whoever is connected to it.

        Raises:
          ConfigurationError: the name is empty, too long, or holds a NUL.
          DevServerError: this object is no user of the server.
        """
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(_database(name))
        with self._connect() as connection:
            connection.execute(statement)

    def _known(self) -> Running:
        if self._running is None or not self.started:
            raise DevServerError(
                f"the server in {self.root} has not been started by this object"
            )
        return self._running

    def _connect(self) -> psycopg.Connection:
        return server_process.connect(self._known().postmaster)

    # ---- Coming and going ------------------------------------------------------

    def start(self) -> Self:
        """Become a user of the server, and start it unless it runs; return this object.

        Does nothing if this object is a user already. Who never calls `stop` remains a
        user until the process ends, and leaves the server running.

        Raises:
          PostgresNotFound: there are no binaries to start it with.
          DataDirectoryMismatch: another major version made the data.
          DevServerTimeout: it does not answer within ``start_timeout`` seconds. It goes
              on, and a later `start` finds it further.
          DevServerError: the folder is not safe to use, or PostgreSQL does not start.
        """
        self._start(never_cancelled)
        return self

    def stop(self) -> None:
        """Cease to be a user of the server, and stop it if nobody else is one.

        Does nothing if this object is no user. The last user of a temporary folder
        removes it.

        Raises:
          DevServerError: others held the folder for too long, or PostgreSQL does not
              end. This object is no user any more.
        """
        # Before the lock: a forked child may have inherited it locked.
        if not self.started:
            return
        with self._busy:
            if self._running is None:
                return
            try:
                with self._root.turn(never_cancelled, make=False):
                    self._users.release()
                    server_stop.stop_if_unused(self._root, self._users)
            except FileNotFoundError:
                # Somebody deleted the folder. PostgreSQL notices within a minute, and ends.
                pass
            except OSError as error:
                raise self._unusable(error) from error
            finally:
                self._users.release()
                self._running = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, checkpoint: Callable[[], None]) -> None:
        with self._busy:
            if self.started:
                return
            if not self._root.options.keep:
                server_stop.sweep(self.root.parent, self._root.options)
            try:
                with self._root.turn(checkpoint, make=True):
                    self._join(checkpoint)
            except OSError as error:
                raise self._unusable(error) from error

    def _join(self, checkpoint: Callable[[], None]) -> None:
        try:
            running = server_start.bring_up(self._root, checkpoint)
            # Others take this lock alone in their turns only, and this is ours.
            if not self._users.try_lock(shared=True):
                raise DevServerError(f"another program has locked {self._users.path}; end it")
            self._running = running
        except DevServerTimeout:
            raise
        except BaseException:
            self._users.release()
            server_stop.stop_if_unused(self._root, self._users)
            raise

    def _unusable(self, error: OSError) -> DevServerError:
        what = error.strerror or str(error)
        where = f" at {error.filename}" if error.filename else ""
        return DevServerError(
            f"the folder {self.root} cannot be used ({what}{where}); choose another"
        )


@contextlib.asynccontextmanager
async def dev_server(
    root: str | os.PathLike[str] | None = None,
    *,
    settings: Mapping[str, Setting] | None = None,
    durable: bool = True,
    bin: str | os.PathLike[str] | None = None,  # noqa: A002
    keep: bool | None = None,
    start_timeout: float = 120.0,
    stop_timeout: float = 60.0,
) -> AsyncGenerator[DevServer]:
    """A started `DevServer`, for Trio: started and stopped in a thread, while the loop runs on.

    Takes the same arguments and raises the same errors. Cancelling it while it waits
    for the server ends the wait, and the server with it unless others use it. Leaving
    is not cut short by cancellation.

    The server's own methods block, for milliseconds; those that connect belong into
    `trio.to_thread.run_sync`.

    Raises:
      WrongEventLoop: called outside Trio.
    """
    require_trio("dev_server()", "use DevServer in a thread")
    server = DevServer(
        root,
        settings=settings,
        durable=durable,
        bin=bin,
        keep=keep,
        start_timeout=start_timeout,
        stop_timeout=stop_timeout,
    )
    # Its own: threads that wait elsewhere in the program must not keep it from stopping.
    limiter = trio.CapacityLimiter(1)
    start = functools.partial(server._start, trio.from_thread.check_cancelled)
    await trio.to_thread.run_sync(start, limiter=limiter)
    try:
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(server.stop, limiter=limiter)


def _database(name: str) -> sql.Identifier:
    size = len(name.encode())
    if not 0 < size <= NAME_BYTES or "\0" in name:
        raise ConfigurationError(
            f"a database's name has 1 to {NAME_BYTES} bytes and no NUL; {name!r} has {size}"
        )
    return sql.Identifier(name)

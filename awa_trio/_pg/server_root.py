"""What may happen to a development server's folder, one process at a time.

Three locks in the root say how things stand:

- ``awa.lock`` is held by whoever comes or goes, for that long: a turn. So "the
  last one leaves" never meets "a new one arrives".
- ``awa.users`` is shared by all users. Who can take it alone, in a turn, knows
  that there is no other. The kernel drops the share of a user that was killed.
- ``awa.server`` is inherited by the server's processes, and by nobody else: it
  is free when none of them is left.

Everything here but `Root.turn` happens in a turn.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
from attrs import frozen

from awa_trio._pg import server_binaries, server_files, server_process
from awa_trio._pg.server_errors import DevServerError, DevServerTimeout
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_identity import Identity, find_identity
from awa_trio._pg.server_process import Postmaster

logger = logging.getLogger("awa_trio.pg.dev_server")

#: How the folders of temporary servers begin; `sweep` finds by it those of the killed.
TEMPORARY_PREFIX = "awa-trio-pg-"
#: Marks a root that its last user removes. Nothing without it is ever removed.
TEMPORARY_MARK = "awa.temporary"
#: Children of a dead postmaster leave within milliseconds, if they leave by themselves; a
#: postmaster that has just been started has written its postmaster.pid by then.
ORPHANS_SECONDS = 3.0
#: An immediate shutdown kills after five seconds what is left (PostgreSQL's
#: SIGKILL_CHILDREN_AFTER_SECS); twice that.
IMMEDIATE_SECONDS = 10.0
#: How often a wait that takes long is mentioned in the log.
MENTION_SECONDS = 5.0


@frozen
class Options:
    """How a server is started and stopped; `server.DevServer` says what they mean."""

    settings: Mapping[str, str]
    durable: bool
    programs: Path | None
    keep: bool
    start_timeout: float
    stop_timeout: float


@frozen
class Running:
    """A server that has answered."""

    postmaster: Postmaster
    version: str | None
    """Such as ``"18.6"``; None if it answered that it has no connection to spare."""


@frozen(eq=False)
class Root:
    """One folder with a server in it."""

    path: Path
    options: Options

    @property
    def data(self) -> Path:
        """The data directory; if it exists, then complete."""
        return self.path / "data"

    @property
    def log(self) -> Path:
        """What the server that runs, or ran last, has said."""
        return self.path / "postgres.log"

    def log_tail(self, lines: int = 20) -> str:
        """The log's last lines; empty if there is none."""
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 400 * lines))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    @contextlib.contextmanager
    def turn(self, checkpoint: Callable[[], None], *, make: bool) -> Iterator[None]:
        """Have the root for oneself; with `make`, a root that does not exist is made.

        Raises:
          DevServerError: the root is not safe to use, or others have had it for the
              whole of ``start_timeout``.
          FileNotFoundError: it does not exist, and was not to be made.
          OSError: the system does not allow it.
        """
        lock = FileLock(self.path / "awa.lock")
        began = time.monotonic()
        while not self._try_turn(lock, make=make):
            if time.monotonic() - began > self.options.start_timeout:
                raise DevServerError(
                    f"another process has been starting or stopping the server in {self.path}"
                    f" for {self.options.start_timeout:g} seconds; look who holds {lock.path}"
                )
            _pause(checkpoint, began)
        try:
            yield
        finally:
            lock.release()

    def _try_turn(self, lock: FileLock, *, make: bool) -> bool:
        try:
            if make:
                self._make()
            return lock.try_lock()
        except FileNotFoundError:
            # The last user of a temporary root is removing it at this very moment.
            if not make:
                raise
            return False

    def _make(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        identity = find_identity(self.data)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            server_files.check_root(self.path, (os.geteuid(), identity.owner))
        else:
            # The user that PostgreSQL runs as must pass through.
            server_files.give_to(self.path, identity.owner, identity.group)

    # ---- In a turn: coming ----------------------------------------------------

    def bring_up(self, checkpoint: Callable[[], None]) -> Running:
        """The server, which answers now: found, or started, or waited for.

        Raises:
          DevServerTimeout: it does not answer in ``start_timeout`` seconds.
          DevServerError: and its subclasses: it cannot be started.
        """
        identity = find_identity(self.data)
        if not self.options.keep and not self.data.exists():
            self.path.joinpath(TEMPORARY_MARK).touch(mode=0o600)
        alive = FileLock(self.path / "awa.server")
        launched = False
        began = mentioned = time.monotonic()
        while True:
            running, silence = self._knock(identity)
            if running is not None:
                return running
            if alive.try_lock():
                try:
                    if launched:
                        raise DevServerError(
                            f"PostgreSQL ended while it was starting in {self.path}",
                            self.log_tail(),
                        )
                    self._launch(identity, alive)
                    launched = True
                finally:
                    alive.hand_over()
            now = time.monotonic()
            if now - began > self.options.start_timeout:
                raise DevServerTimeout(
                    f"PostgreSQL in {self.path} does not answer after {now - began:.0f} seconds:"
                    f" {silence}; if it is recovering from a crash, start it again later, or"
                    " with a longer start_timeout",
                    self.log_tail(),
                )
            if now - began > ORPHANS_SECONDS and not launched:
                self._end_orphans(alive)
            if now - mentioned > MENTION_SECONDS:
                logger.info("waiting for PostgreSQL in %s: %s", self.path, self.log_tail(1))
                mentioned = now
            _pause(checkpoint, began)

    def _knock(self, identity: Identity) -> tuple[Running | None, str]:
        """The server if it answers a real connection; else what was found instead."""
        postmaster = self._postmaster(identity)
        if postmaster is None:
            return None, "it has not opened its socket"
        if not postmaster.admits:
            return None, f"it says that it is {postmaster.status}"
        try:
            with server_process.connect(postmaster) as connection:
                return Running(postmaster, server_process.version_of(connection)), ""
        except psycopg.OperationalError as error:
            said = str(error).strip()
            full = "too many clients" in said or "connection slots" in said
            return (Running(postmaster, None) if full else None), said

    def _postmaster(self, identity: Identity) -> Postmaster | None:
        """The server that this root's data directory tells of, if it was started as ours are."""
        postmaster = server_process.read_postmaster(self.data)
        if postmaster and server_files.is_private(postmaster.folder, identity.owner):
            return postmaster
        return None

    def _launch(self, identity: Identity, alive: FileLock) -> None:
        programs = self._binaries()
        if self.data.exists():
            server_process.check_version(self.data, programs)
        else:
            server_process.initialise(
                self.data, programs, identity, alive, durable=self.options.durable
            )
        folder = server_files.socket_folder(self.path)
        server_files.make_private(folder, identity.owner, identity.group)
        server_process.clear_stale(self.data, folder)
        server_process.launch(
            self.data,
            programs,
            identity,
            alive,
            folder=folder,
            settings=self.options.settings,
            log=self.log,
        )

    def _binaries(self) -> Path:
        if self.options.programs is None:
            return server_binaries.find_binaries()
        return server_binaries.choose(
            [server_binaries.examine("bin", self.options.programs, named=True)]
        )

    def _end_orphans(self, alive: FileLock) -> None:
        """Make way for a new server, if what holds the lock has no postmaster any more."""
        # Without a data directory it is an initdb, which ends by itself.
        if not self.data.exists() or self._postmaster_at_work() is not None:
            return
        if server_process.end_orphans(self.data):
            return
        # No PostgreSQL holds it, so a program does that one of them had started.
        alive.path.unlink(missing_ok=True)

    # ---- In a turn: going -----------------------------------------------------

    def stop_if_unused(self, users: FileLock) -> None:
        """Stop the server, unless it has users; remove a root that is temporary.

        Raises:
          DevServerError: it does not end.
        """
        if not users.try_lock():
            return
        try:
            temporary = self.path.joinpath(TEMPORARY_MARK).exists()
            self._shut_down(at_once=temporary)
            folder = server_files.socket_folder(self.path)
            with contextlib.suppress(OSError):
                folder.rmdir()
            if temporary:
                self._remove()
        finally:
            users.release()

    def _shut_down(self, *, at_once: bool) -> None:
        identity = find_identity(self.data)
        alive = FileLock(self.path / "awa.server")
        # A fast shutdown writes everything out first, for which a temporary root has no use.
        patience = 0.0 if at_once else self.options.stop_timeout
        told: set[tuple[int, signal.Signals]] = set()
        began = time.monotonic()
        while True:
            free = alive.try_lock()
            alive.release()
            pid = self._listener(identity)
            # A postmaster that neither holds the lock nor listens here was started by other
            # means, and is not ours to stop.
            if not free:
                pid = pid or self._postmaster_at_work()
            ending = any(server_process.is_postgres_on(each, self.data) for each, _ in told)
            if free and pid is None and not ending:
                return
            waited = time.monotonic() - began
            kind = signal.SIGINT if waited < patience else signal.SIGQUIT
            if pid and (pid, kind) not in told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, kind)
                told.add((pid, kind))
            if waited > patience + IMMEDIATE_SECONDS:
                raise DevServerError(
                    f"PostgreSQL in {self.path} (process {pid}) does not end", self.log_tail()
                )
            if waited > ORPHANS_SECONDS:
                self._end_orphans(alive)
            _pause(never_cancelled, began)

    def _postmaster_at_work(self) -> int | None:
        """The postmaster, if it lives; it need not listen yet, or any more."""
        pid = server_process.read_pid(self.data)
        if pid is not None and server_process.is_postgres_on(pid, self.data):
            return pid
        return None

    def _listener(self, identity: Identity) -> int | None:
        postmaster = self._postmaster(identity)
        return None if postmaster is None else server_process.listening_pid(postmaster)

    def _remove(self) -> None:
        """Remove what this module has made, and the folder if that was all."""
        old = self.path / "data.old"
        shutil.rmtree(old, ignore_errors=True)
        # At once, so that data which exists is complete, even if this is cut short.
        with contextlib.suppress(FileNotFoundError):
            self.data.rename(old)
        for folder in (old, self.path / "data.new", self.path / "socket"):
            shutil.rmtree(folder, ignore_errors=True)
        # The lock of the turn goes last: who waits for it finds that it is gone, and begins
        # anew. Who has made another by now keeps the folder.
        names = ("postgres.log", "postgres.log.old", "awa.users", "awa.server", TEMPORARY_MARK)
        for name in (*names, "awa.lock"):
            self.path.joinpath(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()


def temporary_root(key: str, under: str | os.PathLike[str] | None = None) -> Path:
    """The root that all processes give to `DevServer` which want to share a temporary server.

    Give it with ``keep=False``. What is named like this is found, and ended, by the next
    temporary server under the same folder if its users were killed.

    Args:
      key: what these processes have in common, and no others have; part of a file's name.
      under: the folder to put it in. Default, the one for temporary files.
    """
    folder = tempfile.gettempdir() if under is None else under
    return Path(os.path.realpath(folder)) / f"{TEMPORARY_PREFIX}{key}"


def sweep(folder: Path, options: Options) -> None:
    """End the temporary servers in a folder whose users were all killed; nobody else would."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError, DevServerError):
            mark = path / TEMPORARY_MARK
            if not mark.exists():
                continue
            server_files.check_root(path, (os.geteuid(),))
            root = Root(path, options)
            lock = FileLock(path / "awa.lock")
            if not lock.try_lock():
                continue
            try:
                if mark.exists():
                    root.stop_if_unused(FileLock(path / "awa.users"))
                else:
                    # Its last user has just removed it, but for the lock that was made anew.
                    lock.path.unlink()
                    path.rmdir()
            finally:
                lock.release()


def never_cancelled() -> None:
    """The checkpoint of callers that cannot be cancelled."""


def _pause(checkpoint: Callable[[], None], began: float) -> None:
    checkpoint()
    # Starting and stopping take about 0.1 s; what takes longer takes much longer.
    time.sleep(0.01 if time.monotonic() - began < 2 else 0.1)

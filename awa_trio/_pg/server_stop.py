"""How a server ends: when its last user leaves, or after all of them were killed, in a turn."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from awa_trio._pg import server_files, server_process
from awa_trio._pg.server_errors import DevServerError
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_identity import Identity, find_identity
from awa_trio._pg.server_root import (
    ORPHANS_SECONDS,
    TEMPORARY_MARK,
    TEMPORARY_PREFIX,
    Options,
    Root,
    never_cancelled,
    pause,
)

#: An immediate shutdown kills after five seconds what is left (PostgreSQL's
#: SIGKILL_CHILDREN_AFTER_SECS); twice that.
IMMEDIATE_SECONDS = 10.0


def stop_if_unused(root: Root, users: FileLock) -> None:
    """Stop the server, unless it has users; remove a root that is temporary.

    Raises:
      DevServerError: it does not end.
    """
    if not users.try_lock():
        return
    try:
        temporary = root.path.joinpath(TEMPORARY_MARK).exists()
        _shut_down(root, at_once=temporary)
        folder = server_files.socket_folder(root.path)
        with contextlib.suppress(OSError):
            folder.rmdir()
        if temporary:
            _remove(root)
    finally:
        users.release()


def _shut_down(root: Root, *, at_once: bool) -> None:
    identity = find_identity(root.data)
    alive = FileLock(root.server_lock)
    # A fast shutdown writes everything out first, for which a temporary root has no use.
    patience = 0.0 if at_once else root.options.stop_timeout
    told: set[tuple[int, signal.Signals]] = set()
    began = time.monotonic()
    while True:
        free = alive.try_lock()
        alive.release()
        pid = _listener(root, identity)
        # A postmaster that neither holds the lock nor listens here was started by other
        # means, and is not ours to stop.
        if not free:
            pid = pid or root.postmaster_at_work()
        ending = any(server_process.is_postgres_on(each, root.data) for each, _ in told)
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
                f"PostgreSQL in {root.path} (process {pid}) does not end", root.log_tail()
            )
        if waited > ORPHANS_SECONDS:
            root.end_orphans()
        pause(never_cancelled, began)


def _listener(root: Root, identity: Identity) -> int | None:
    postmaster = root.postmaster(identity)
    return None if postmaster is None else server_process.listening_pid(postmaster)


def _remove(root: Root) -> None:
    """Remove what this module has made, and the folder if that was all."""
    old = root.path / "data.old"
    shutil.rmtree(old, ignore_errors=True)
    # At once, so that data which exists is complete, even if this is cut short.
    with contextlib.suppress(FileNotFoundError):
        root.data.rename(old)
    for folder in (old, root.path / "data.new", root.path / "socket"):
        shutil.rmtree(folder, ignore_errors=True)
    # The lock of the turn goes last: who waits for it finds that it is gone, and begins
    # anew. Who has made another by now keeps the folder.
    names = ("postgres.log", "postgres.log.old", "awa.users", "awa.server", TEMPORARY_MARK)
    for name in (*names, "awa.lock"):
        root.path.joinpath(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        root.path.rmdir()


def sweep(folder: Path, options: Options) -> None:
    """End the temporary servers in a folder whose users were all killed; nobody else would."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError, DevServerError):
            mark = path / TEMPORARY_MARK
            if not mark.exists():
                continue
            server_files.check_root(path, (os.geteuid(),))
            root = Root(path, options)
            lock = FileLock(root.turn_lock)
            if not lock.try_lock():
                continue
            try:
                if mark.exists():
                    stop_if_unused(root, FileLock(root.users_lock))
                else:
                    # Its last user has just removed it, but for the lock that was made anew.
                    lock.path.unlink()
                    path.rmdir()
            finally:
                lock.release()

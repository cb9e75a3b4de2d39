"""What a development server's folder says about it, and whose turn it is to change that.

Three locks in the root say how things stand:

- ``awa.lock`` is held by whoever comes or goes, for that long: a turn. So "the
  last one leaves" never meets "a new one arrives".
- ``awa.users`` is shared by all users. Who can take it alone, in a turn, knows
  that there is no other. The kernel drops the share of a user that was killed.
- ``awa.server`` is inherited by the server's processes, and by nobody else: it
  is free when none of them is left.

Elsewhere: what is done in a turn is `server_start` and `server_stop`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attrs import frozen

from awa_trio._pg import server_data, server_files, server_process
from awa_trio._pg.server_data import Postmaster
from awa_trio._pg.server_errors import DevServerError
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_identity import Identity, find_identity

#: How the folders of temporary servers begin; `sweep` finds by it those of the killed.
TEMPORARY_PREFIX = "awa-trio-pg-"
#: Marks a root that its last user removes. Nothing without it is ever removed.
TEMPORARY_MARK = "awa.temporary"
#: Children of a dead postmaster leave within milliseconds, if they leave by themselves; a
#: postmaster that has just been started has written its postmaster.pid by then.
ORPHANS_SECONDS = 3.0
#: How long a root may be found gone, look after look, before the system is to blame and
#: not its last user, who removes it within milliseconds.
VANISHED_SECONDS = 1.0


@frozen
class Options:
    """How a server is started and stopped; `server.DevServer` says what they mean."""

    settings: Mapping[str, str]
    durable: bool
    programs: Path | None
    keep: bool
    start_timeout: float
    stop_timeout: float


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
    def users_lock(self) -> Path:
        """What users share."""
        return self.path / "awa.users"

    @property
    def turn_lock(self) -> Path:
        """What is held for a turn."""
        return self.path / "awa.lock"

    @property
    def server_lock(self) -> Path:
        """What the server's processes hold."""
        return self.path / "awa.server"

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
        lock = FileLock(self.turn_lock)
        began = time.monotonic()
        vanished: float | None = None
        while True:
            try:
                if make:
                    self._make()
                if lock.try_lock():
                    break
                vanished = None
            except FileNotFoundError:
                # The last user of a temporary root is removing it at this very moment.
                vanished = vanished or time.monotonic()
                if not make or time.monotonic() - vanished > VANISHED_SECONDS:
                    raise
            if time.monotonic() - began > self.options.start_timeout:
                raise DevServerError(
                    f"another process has been starting or stopping the server in {self.path}"
                    f" for {self.options.start_timeout:g} seconds; look who holds {lock.path}"
                )
            pause(checkpoint, began)
        try:
            yield
        finally:
            lock.release()

    def _make(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise self._not_made(f"{error.filename} is not a folder") from error
        except FileNotFoundError as error:
            raise self._not_made(error.strerror) from error
        identity = find_identity(self.data)
        try:
            self.path.mkdir(mode=0o700)
        except FileNotFoundError as error:
            # Nobody removes what is above a root: the system makes no folders there.
            raise self._not_made(error.strerror) from error
        except FileExistsError:
            server_files.check_root(self.path, (os.geteuid(), identity.owner))
        else:
            # The user that PostgreSQL runs as must pass through.
            server_files.give_to(self.path, identity.owner, identity.group)

    def _not_made(self, why: object) -> DevServerError:
        return DevServerError(f"the folder {self.path} cannot be made ({why}); choose another")

    # ---- In a turn ----------------------------------------------------------------

    def postmaster(self, identity: Identity) -> Postmaster | None:
        """The server that this root's data directory tells of, if it was started as ours are."""
        postmaster = server_data.read_postmaster(self.data)
        if postmaster and server_files.is_private(postmaster.folder, identity.owner):
            return postmaster
        return None

    def postmaster_at_work(self) -> int | None:
        """The postmaster, if it lives; it need not listen yet, or any more."""
        pid = server_data.read_pid(self.data)
        if pid is not None and server_process.is_postgres_on(pid, self.data):
            return pid
        return None

    def end_orphans(self) -> None:
        """Make way for a new server, if what holds the lock has no postmaster any more."""
        # Without a data directory it is an initdb, which ends by itself.
        if not self.data.exists() or self.postmaster_at_work() is not None:
            return
        if server_process.end_orphans(self.data):
            return
        # No PostgreSQL holds it, so a program does that one of them had started.
        self.server_lock.unlink(missing_ok=True)


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


def never_cancelled() -> None:
    """The checkpoint of callers that cannot be cancelled."""


def pause(checkpoint: Callable[[], None], began: float) -> None:
    """Wait a moment before looking again at what was waited for since `began`."""
    checkpoint()
    # Starting and stopping take about 0.1 s; what takes longer takes much longer.
    time.sleep(0.01 if time.monotonic() - began < 2 else 0.1)

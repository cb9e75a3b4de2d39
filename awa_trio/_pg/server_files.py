"""The locks and folders of a development server, and how far they can be trusted.

A lock here is a `flock`: the kernel drops it when its holder dies, however that
happens, so no lock outlives its process and none is ever broken by force.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import threading
from pathlib import Path

from awa_trio._pg.server_errors import DevServerError

#: A socket's address holds 108 bytes on Linux and 104 on macOS, a NUL among them.
#: The smaller serves both, so that one folder has one address wherever it is mounted.
ADDRESS_BYTES = 103
#: libpq and PostgreSQL agree on this name; a port has five digits at most.
SOCKET_NAME = ".s.PGSQL.65535"

# fork() copies descriptors, and a copy keeps the lock. The hooks make a forked
# child forget every lock; the guard makes a fork wait while one is being opened.
_guard = threading.Lock()
_open: set[FileLock] = set()


class FileLock:
    """A `flock` on a file that may be deleted and made anew by whoever holds it.

    Children do not keep it: neither across exec, nor across `os.fork`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def try_lock(self, *, shared: bool = False) -> bool:
        """Take the lock if that is possible at once; say whether it was.

        Raises:
          OSError: the file cannot be opened or made, or is a symbolic link.
        """
        assert self._fd is None, f"{self.path} is locked by this very object"
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with _guard:
                self._fd = os.open(self.path, flags, 0o600)
                _open.add(self)
            try:
                self._share_with_the_folders_owner()
                fcntl.flock(
                    self._fd, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
                )
            except BlockingIOError:
                self.hand_over()
                return False
            except BaseException:
                self.hand_over()
                raise
            if self._is_current():
                return True
            # Its last holder deleted the file while it was being opened here.
            self.hand_over()

    def release(self) -> None:
        """Let go of the lock, for every copy of it; does nothing if it is not held."""
        if self._fd is not None:
            # Not by closing alone: a child forked by foreign code may have a copy.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.hand_over()

    def fileno(self) -> int:
        """The descriptor, to be inherited by a process that shall hold the lock as well."""
        assert self._fd is not None
        return self._fd

    def hand_over(self) -> None:
        """Forget the lock; it stays held as long as a process has inherited it."""
        with _guard:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
                _open.discard(self)

    def _share_with_the_folders_owner(self) -> None:
        # Root may come first to the folder of a user, who shall be able to come next.
        assert self._fd is not None
        folder = os.stat(self.path.parent)
        if os.geteuid() == 0 and os.fstat(self._fd).st_uid != folder.st_uid:
            os.fchown(self._fd, folder.st_uid, folder.st_gid)

    def _is_current(self) -> bool:
        assert self._fd is not None
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self.path))
        except FileNotFoundError:
            return False


def _forget_in_child() -> None:
    # The child has one thread and inherited a locked guard from its parent's fork.
    for lock in _open:
        assert lock._fd is not None
        os.close(lock._fd)
        lock._fd = None
    _open.clear()
    _guard.release()


os.register_at_fork(
    before=_guard.acquire,
    after_in_parent=_guard.release,
    after_in_child=_forget_in_child,
)


def check_root(root: Path, owners: tuple[int, ...]) -> None:
    """Refuse a root folder in which somebody else could swap files under the server.

    Others may be able to read it: all that is worth reading is in folders of
    mode 0700 inside.

    Raises:
      DevServerError: it is not a folder, belongs to another user, or others can
          write to it.
    """
    status = os.lstat(root)
    if not stat.S_ISDIR(status.st_mode):
        raise DevServerError(f"{root} is not a folder; choose another")
    if status.st_uid not in owners:
        raise DevServerError(
            f"{root} belongs to user ID {status.st_uid}, and this is user ID {os.geteuid()};"
            " choose a folder of your own"
        )
    if status.st_mode & 0o022:
        raise DevServerError(
            f"others can write to {root}, and so to its data; choose another folder, or close"
            f" it with: chmod go-w {root}"
        )


def is_private(folder: Path, owner: int) -> bool:
    """Whether a folder exists, is no link, and is closed to everybody but its owner."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == owner
        and stat.S_IMODE(status.st_mode) & 0o077 == 0
    )


def make_private(folder: Path, owner: int, group: int) -> None:
    """Make a folder of mode 0700 for an owner, or accept one that is exactly that.

    Raises:
      DevServerError: something else is there, or can be put there by others.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        give_to(folder, owner, group)
    if not is_private(folder, owner):
        raise DevServerError(
            f"{folder} exists and is not a folder of user ID {owner} with mode 0700, so others"
            " may be behind it; remove it"
        )
    # Whoever can rename it could put another in its place after this check.
    around = os.stat(folder.parent)
    if around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX:
        raise DevServerError(
            f"others can replace {folder}, because {folder.parent} is open to them and not"
            " sticky; set TMPDIR to a folder that is not"
        )


def give_to(path: Path, owner: int, group: int) -> None:
    """Make a path that this process has just made another user's, if it is another's."""
    if os.lstat(path).st_uid != owner:
        os.chown(path, owner, group, follow_symlinks=False)


def socket_folder(root: Path) -> Path:
    """Where the server on this root has its socket: inside, if such a path can be an address.

    Else in a folder named after a hash of the root, under the temporary folder.
    """
    inside = root / "socket"
    if _is_address(inside):
        return inside
    name = f"awa-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / name
    # A TMPDIR may be as deep as the root; make_private asks who else can write here.
    return folder if _is_address(folder) else Path("/tmp") / name  # noqa: S108


def _is_address(folder: Path) -> bool:
    # libpq takes a comma in a host for a list; PostgreSQL cuts the name at a line's end
    # when it writes it into postmaster.pid; psycopg sends names as UTF-8.
    text = str(folder)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    fits = size + 1 + len(SOCKET_NAME) <= ADDRESS_BYTES
    return fits and not any(character in text for character in ',"\n\r')

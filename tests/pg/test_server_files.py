"""Locks that die with their process, and folders that nobody else is behind."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from awa_trio._pg.server_errors import DevServerError
from awa_trio._pg.server_files import (
    ADDRESS_BYTES,
    SOCKET_NAME,
    FileLock,
    check_root,
    is_private,
    make_private,
    socket_folder,
)

ME, GROUP = os.geteuid(), os.getegid()
root_only = pytest.mark.skipif(ME != 0, reason="only root can give a folder away")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def is_free(path: Path) -> bool:
    lock = FileLock(path)
    free = lock.try_lock()
    lock.release()
    return free


# ---- Locks ------------------------------------------------------------------


def test_a_lock_is_held_by_one_or_shared_by_many(path: Path) -> None:
    one, two, three = FileLock(path), FileLock(path), FileLock(path)

    assert one.try_lock(shared=True)
    assert two.try_lock(shared=True)
    assert not three.try_lock()
    one.release()
    two.release()
    assert three.try_lock()
    assert not one.try_lock(shared=True)
    three.release()

    assert [lock.held for lock in (one, two, three)] == [False, False, False]


@pytest.fixture
def forked(path: Path) -> Iterator[FileLock]:
    """A lock that was held when this process forked, and the child still runs."""
    lock = FileLock(path)
    assert lock.try_lock()
    ours, childs = socket.socketpair()
    with warnings.catch_warnings():
        # From 3.12 on: the test runner's threads do not matter to this child.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        ours.close()
        childs.send(b"the hooks have run")
        childs.recv(1)
        os._exit(1 if lock.held else 0)
    childs.close()
    assert ours.recv(100)
    yield lock
    ours.close()
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_does_not_keep_a_lock(forked: FileLock) -> None:
    assert not is_free(forked.path)

    # As the kernel does for a process that dies: closed, not unlocked.
    forked.hand_over()

    assert is_free(forked.path)


def test_a_program_does_not_keep_a_lock(path: Path) -> None:
    lock = FileLock(path)
    assert lock.try_lock()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as program:
        lock.hand_over()

        assert is_free(path)
        program.communicate()


def test_a_program_that_inherits_a_lock_holds_it_until_it_ends(path: Path) -> None:
    lock = FileLock(path)
    assert lock.try_lock()
    inherited = [lock.fileno()]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=inherited) as program:
        lock.hand_over()

        assert not is_free(path)
        program.kill()
        program.wait()

    assert is_free(path)


def test_letting_go_counts_for_every_copy(path: Path) -> None:
    lock = FileLock(path)
    assert lock.try_lock()
    copy = os.dup(lock.fileno())

    lock.release()

    assert is_free(path)
    os.close(copy)


def test_a_lock_on_a_file_that_was_deleted_meanwhile_is_no_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def delete_then_lock(fd: int, operation: int) -> None:
        monkeypatch.undo()
        path.unlink()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", delete_then_lock)
    lock = FileLock(path)

    assert lock.try_lock()
    assert os.fstat(lock.fileno()).st_ino == path.stat().st_ino
    assert not is_free(path)
    lock.release()


def test_a_link_in_the_place_of_a_lock_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic link"):
        FileLock(path).try_lock()

    assert not (tmp_path / "elsewhere").exists()


@root_only
def test_root_leaves_a_lock_to_the_folders_owner(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    lock = FileLock(folder / "lock")

    assert lock.try_lock()

    assert (folder / "lock").stat().st_uid == 65534
    lock.release()


# ---- Folders ------------------------------------------------------------------


def test_a_private_folder_is_made_closed_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "folder", ME, GROUP)
    finally:
        os.umask(before)

    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    make_private(tmp_path / "folder", ME, GROUP)  # a second time it is found


@pytest.mark.parametrize("trick", ["open", "link", "file"])
def test_what_is_not_private_is_refused_and_left_alone(trick: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    if trick == "open":
        folder.mkdir(mode=0o750)
    if trick == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real")
    if trick == "file":
        folder.touch(mode=0o600)
    before = folder.lstat()

    with pytest.raises(DevServerError, match=f"{folder} exists and is not a folder of user"):
        make_private(folder, ME, GROUP)

    assert not is_private(folder, ME)
    assert folder.lstat() == before


@root_only
def test_another_users_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    os.chown(tmp_path / "folder", 65534, 65534)

    with pytest.raises(DevServerError, match="is not a folder of user ID 0"):
        make_private(tmp_path / "folder", 0, 0)


def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    around = tmp_path / "around"
    around.mkdir()
    around.chmod(0o777)
    with pytest.raises(DevServerError, match=f"others can replace {around / 'folder'}"):
        make_private(around / "folder", ME, GROUP)

    around.chmod(0o1777)
    make_private(around / "folder", ME, GROUP)


def test_a_root_may_be_read_by_others_but_not_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check_root(tmp_path, (ME,))

    tmp_path.chmod(0o775)
    with pytest.raises(DevServerError, match="others can write to"):
        check_root(tmp_path, (ME,))


def test_a_root_belongs_to_its_user_and_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DevServerError, match=f"belongs to user ID {ME}"):
        check_root(tmp_path, (ME + 1,))
    (tmp_path / "file").touch()
    with pytest.raises(DevServerError, match="is not a folder"):
        check_root(tmp_path / "file", (ME,))


# ---- Where the socket is --------------------------------------------------------

LONGEST = ADDRESS_BYTES - len("/socket/") - len(SOCKET_NAME)


@pytest.mark.parametrize(
    "root",
    ["/srv/awa", "/srv/with space", "/srv/it's", "/srv/größe", "/" + "a" * (LONGEST - 1)],
)
def test_a_socket_is_inside_a_root_that_can_be_an_address(root: str) -> None:
    assert socket_folder(Path(root)) == Path(root) / "socket"


@pytest.mark.parametrize(
    "root",
    [
        "/" + "a" * LONGEST,
        "/" + "é" * (LONGEST // 2 + 1),  # bytes count, not characters
        "/srv/a,b",
        '/srv/a"b',
        "/srv/a\nb",
        "/srv/\udcff",
    ],
    ids=["long", "long in bytes", "comma", "quote", "line end", "not UTF-8"],
)
def test_else_it_is_in_a_short_folder_of_its_own(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")

    folder = socket_folder(Path(root))

    assert folder.parent == Path("/var/tmp")
    assert socket_folder(Path(root)) == folder
    assert socket_folder(Path(root + "x")) != folder


def test_a_deep_temporary_folder_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "t" * LONGEST)

    assert socket_folder(Path("/" + "a" * LONGEST)).parent == Path("/tmp")

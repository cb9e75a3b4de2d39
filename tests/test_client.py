"""The client on PostgreSQL: on Trio, on asyncio, and in transactions of the caller's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import trio
from attrs import frozen
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

import awa_trio as awa
from awa_trio._seam.errors import Lasting, Transient
from awa_trio.pg import TrioConnection
from awa_trio.testing import drain
from awa_trio.testing.fixtures import fresh_database

S = awa.JobState
app = awa.App()


@frozen
class Greet:
    name: str
    when: datetime | None = None
    ident: UUID | None = None


@frozen
class Resolve:
    n: int


@app.task(queue="greetings", priority=3, max_attempts=5)
async def greet(job: awa.Job[Greet]) -> None: ...


@app.task()
async def resolve(job: awa.Job[Resolve]) -> None:
    if job.args.n < 0:
        raise awa.TerminalError("negative")


@pytest.fixture
async def client(migrated: str) -> AsyncIterator[awa.Client]:
    async with awa.connect(migrated, app=app) as client:
        yield client


def count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM awa.list_jobs(NULL, NULL, NULL, NULL, NULL, 10000)"
        ).fetchone()
        assert row is not None
        return int(row[0])


# ---- enqueue


async def test_a_job_is_enqueued_as_its_task_says(client: awa.Client) -> None:
    ident = UUID(int=7)
    answer = await client.enqueue(Greet("a", datetime(2026, 1, 1, tzinfo=UTC), ident))
    job = await client.jobs.get(answer.id)
    assert answer.inserted
    assert (job.kind, job.queue, job.priority, job.max_attempts) == ("greet", "greetings", 3, 5)
    assert job.args_json == {
        "name": "a",
        "when": "2026-01-01T00:00:00+00:00",
        "ident": str(ident),
    }


async def test_options_say_otherwise(client: awa.Client) -> None:
    run_at = datetime.now(UTC) + timedelta(hours=1)
    answer = await client.enqueue(
        Greet("a"),
        queue="other",
        priority=1,
        max_attempts=2,
        tags=["t"],
        metadata={"m": 1},
        run_at=run_at,
        unique_opts={},
        ordering_key="o",
        deadline=3,
    )
    job = await client.jobs.get(answer.id)
    assert (job.queue, job.priority, job.max_attempts, job.tags) == ("other", 1, 2, ("t",))
    assert (job.metadata, job.run_at, job.ordering_key, job.deadline) == (
        {"m": 1},
        run_at,
        "o",
        3,
    )
    assert job.state is S.SCHEDULED
    assert job.unique_key is not None


async def test_a_duplicate_is_a_value(client: awa.Client) -> None:
    first = await client.enqueue(Resolve(1), unique_opts={})
    second = await client.enqueue(awa.EnqueueRequest(Resolve(1)).unique())
    other = await client.enqueue(Resolve(2), unique_opts={})
    assert (second.id, second.inserted) == (first.id, False)
    assert other.inserted


@pytest.mark.parametrize("n", [0, 1, 12_345])
async def test_many_are_enqueued_together(client: awa.Client, n: int) -> None:
    answers = await client.enqueue_many(Resolve(i) for i in range(n))
    assert [a.inserted for a in answers] == [True] * n
    assert [a.id for a in answers] == sorted(a.id for a in answers)


async def test_many_or_none(client: awa.Client, migrated: str) -> None:
    with pytest.raises(awa.InvalidRequest):
        await client.enqueue_many([Resolve(1), Resolve(2), Resolve("x")])  # type: ignore[arg-type]
    assert count(migrated) == 0


async def test_many_may_bring_their_own_options(client: awa.Client) -> None:
    jobs = [Resolve(1), awa.EnqueueRequest(Resolve(2), priority=1)]
    a, b = await client.enqueue_many(jobs, priority=4)
    assert (await client.jobs.get(a.id)).priority == 4
    assert (await client.jobs.get(b.id)).priority == 1


@frozen
class Resolv:
    n: int


async def test_an_unknown_kind_is_refused_and_the_nearest_named(
    client: awa.Client, migrated: str
) -> None:
    with pytest.raises(
        awa.UnknownKind, match=r"no task of kind 'resolv'; did you mean 'resolve'\?"
    ):
        await client.enqueue(Resolv(1))
    with pytest.raises(awa.UnknownKind, match="'greeet'; did you mean 'greet'"):
        await client.enqueue({"name": "a"}, kind="greeet")
    assert count(migrated) == 0


async def test_without_an_app_any_kind_is_named_after_its_class(migrated: str) -> None:
    async with awa.connect(migrated) as client:
        job = await client.jobs.get((await client.enqueue(Resolv(1))).id)
    assert (job.kind, job.queue) == ("resolv", "default")


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (Resolve(1), {"priority": 0}, "priority"),
        (Resolve(1), {"priority": 5}, "priority"),
        (Resolve(1), {"max_attempts": 1001}, "max_attempts"),
        (Resolve(1), {"queue": "x" * 201}, "queue"),
        (Resolve(1), {"queue": "a\x00b"}, "queue"),
        (Resolve(1), {"tags": ["t"] * 21}, "tags"),
        (Resolve(1), {"run_at": datetime(2026, 1, 1)}, "run_at"),  # noqa: DTZ001
        (Resolve(1), {"metadata": {"a": [1, float("nan")]}}, r"metadata\.a\[1\]"),
        (Resolve(1), {"metadata": {"awa:x": 1}}, "reserved"),
        (Resolve(1), {"unique_opts": {"by_argss": True}}, "by_args"),
        (Resolve(1), {"prioritty": 1}, "priority"),
        (Resolve(1), {"kind": 5}, "kind: give a str, not int"),
        (Resolve(1), {"kind": []}, "kind: give a str, not list"),
        ("resolve", {}, "args: give an instance of the class of a task's arguments.* not str"),
        (
            [Resolve(1)],
            {},
            "args: give an instance of the class of a task's arguments.* not list",
        ),
        (None, {}, "args: give an instance of the class of a task's arguments"),
        (Resolve("1"), {}, r"args\.n"),  # type: ignore[arg-type]
        (Resolve(2**63), {}, r"args\.n"),
        (Greet("a\x00b"), {}, r"args\.name"),
        (Greet("\ud800"), {}, r"args\.name"),
        (Greet("a", datetime(2026, 1, 1)), {}, r"args\.when"),  # noqa: DTZ001
        ({"a": {1: 2}}, {"kind": "resolve"}, "args"),
    ],
)
async def test_what_the_database_would_refuse_is_refused_first(
    client: awa.Client, migrated: str, args: object, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(awa.InvalidRequest, match=message):
        await client.enqueue(args, **options)
    assert count(migrated) == 0


# ---- transactions


async def test_jobs_and_rows_commit_together(client: awa.Client, migrated: str) -> None:
    async with client.transaction() as tx:
        await tx.connection.execute("CREATE TABLE orders (id int)")
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        answer = await tx.enqueue(Resolve(1))
        assert count(migrated) == 0
    assert (await client.jobs.get(answer.id)).state is S.AVAILABLE
    with psycopg.connect(migrated) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]


async def test_or_not_at_all(client: awa.Client, migrated: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await tx.enqueue_many([Resolve(1), Resolve(2)], unique_opts={})
            raise ZeroDivisionError
    assert count(migrated) == 0
    assert (await client.enqueue(Resolve(1), unique_opts={})).inserted


async def test_a_cancelled_transaction_is_rolled_back(
    client: awa.Client, migrated: str
) -> None:
    with trio.move_on_after(0.05) as scope:
        async with client.transaction() as tx:
            await tx.enqueue(Resolve(1))
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert count(migrated) == 0
    await client.enqueue(Resolve(1))


async def test_a_bad_request_does_not_end_the_transaction(
    client: awa.Client, migrated: str
) -> None:
    async with client.transaction() as tx:
        await tx.enqueue(Resolve(1))
        with pytest.raises(awa.InvalidRequest):
            await tx.enqueue(Resolve(2), priority=9)
        with pytest.raises(awa.UnknownKind):
            await tx.enqueue(Resolv(2))
        duplicate = await tx.enqueue(Resolve(3), unique_opts={})
        assert not (await tx.enqueue(Resolve(3), unique_opts={})).inserted
        assert duplicate.inserted
    assert count(migrated) == 2


async def test_the_callers_statements_return_psycopgs_usual_types(client: awa.Client) -> None:
    async with client.transaction() as tx:
        await tx.enqueue(Resolve(1))
        for binary in (False, True):
            cursor = await tx.connection.execute(
                "SELECT '[1]'::json, '[1]'::jsonb, '2026-01-01Z'::timestamptz, 1::bigint",
                binary=binary,
            )
            at = datetime(2026, 1, 1, tzinfo=UTC)
            assert await cursor.fetchone() == ([1], [1], at, 1)


async def test_an_error_of_the_callers_own_is_the_callers(client: awa.Client) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        async with client.transaction() as tx:
            await tx.connection.execute("SELECT * FROM nowhere")


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("another database of theirs is down"),
        psycopg.InterfaceError("the cursor is closed"),
        TimeoutError("theirs"),
        awa.DatabaseUnavailable("theirs"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_in_the_block_is_the_callers(
    client: awa.Client, migrated: str, error: Exception
) -> None:
    with pytest.raises(type(error)) as caught:
        async with client.transaction() as tx:
            await tx.enqueue(Resolve(1))
            raise error
    assert caught.value is error
    assert count(migrated) == 0


async def test_a_timeout_of_the_callers_own_is_the_callers(client: awa.Client) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled):
        async with client.transaction() as tx:
            await tx.connection.execute("SET LOCAL statement_timeout = 10")
            await tx.connection.execute("SELECT pg_sleep(10)")


async def test_a_rollback_that_the_caller_asks_for_is_no_error(
    client: awa.Client, migrated: str
) -> None:
    async with client.transaction() as tx:
        answer = await tx.enqueue(Resolve(1))
        if answer.inserted:
            raise psycopg.Rollback
    assert count(migrated) == 0


async def test_a_connection_that_is_lost_before_the_commit_is_said_so(
    client: awa.Client, migrated: str
) -> None:
    with pytest.raises(awa.DatabaseUnavailable, match="committing a transaction, which may"):
        async with client.transaction() as tx:
            await tx.enqueue(Resolve(1))
            cursor = await tx.connection.execute("SELECT pg_backend_pid()")
            pid = await cursor.fetchone()
            with psycopg.connect(migrated, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", pid)
    assert count(migrated) == 0


# ---- the caller's own connection


class Odd(Dumper):
    """What somebody may want their numbers and strings to be sent as."""

    oid = psycopg.adapters.types["text"].oid

    def dump(self, obj: object) -> bytes:
        return b"odd"


class OddLoader(Loader):
    def load(self, data: object) -> str:
        return "odd"


async def test_adapters_of_the_callers_own_are_left_alone(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        for kind in (int, str, bool, list):
            connection.adapters.register_dumper(kind, Odd)
        for name in ("int8", "bool", "json"):
            connection.adapters.register_loader(name, OddLoader)
        answer = awa.enqueue(connection, Resolve(1), unique_opts={}, tags=["a"])
        assert isinstance(answer.id, int)
        assert connection.execute("SELECT 1::int8").fetchone() == ("odd",)
    async with awa.connect(migrated) as client:
        assert (await client.jobs.get(answer.id)).tags == ("a",)


def test_on_a_synchronous_connection(migrated: str) -> None:
    with psycopg.connect(
        migrated, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
    ) as connection:
        answer = awa.enqueue(connection, Greet("a"), app=app)
        assert awa.enqueue(connection, Resolve(1), unique_opts={}).inserted
        assert not awa.enqueue(connection, Resolve(1), unique_opts={}).inserted
        assert count(migrated) == 0
    assert count(migrated) == 2
    with psycopg.connect(migrated) as connection:
        awa.enqueue(connection, Resolve(2))
        connection.rollback()
    assert count(migrated) == 2
    with psycopg.connect(migrated) as connection:
        row = connection.execute(
            "SELECT queue FROM awa.get_jobs(ARRAY[%s::bigint])", [answer.id]
        ).fetchone()
        assert row == ("greetings",)


async def test_on_a_trio_connection(migrated: str) -> None:
    async with await TrioConnection.connect(migrated) as connection:
        assert (await awa.enqueue(connection, Resolve(1))).inserted
        await connection.rollback()
        assert (await awa.enqueue(connection, Resolve(2))).inserted
    assert count(migrated) == 1


def test_on_an_asyncio_connection(migrated: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(migrated) as connection:
            assert (await awa.enqueue(connection, Resolve(1))).inserted

    asyncio.run(main())
    assert count(migrated) == 1


def test_a_connection_in_another_encoding_sends_the_same_job(migrated: str) -> None:
    with psycopg.connect(migrated, client_encoding="LATIN1") as connection:
        answer = awa.enqueue(connection, Greet("é🎉"), tags=["é"], app=app)
    with psycopg.connect(migrated) as connection:
        row = connection.execute(
            "SELECT args->>'name', tags FROM awa.get_jobs(ARRAY[%s::bigint])", [answer.id]
        ).fetchone()
    assert row == ("é🎉", ["é"])


def test_a_refused_request_leaves_the_callers_transaction_alone(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        awa.enqueue(connection, Resolve(1))
        with pytest.raises(awa.InvalidRequest):
            awa.enqueue(connection, Resolve(1), priority=0)
        with pytest.raises(awa.UnknownKind):
            awa.enqueue(connection, Resolv(1), app=app)
    assert count(migrated) == 1


def test_from_plain_sql(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        row = connection.execute(
            "SELECT * FROM awa.enqueue('resolve', '{\"n\": 1}', queue => 'q', priority => 1,"
            " tags => ARRAY['a', 'b'], unique_key => '\\x00112233445566778899aabbccddeeff')"
        ).fetchone()
        again = connection.execute(
            "SELECT * FROM awa.enqueue('resolve', '{}',"
            " unique_key => '\\x00112233445566778899aabbccddeeff')"
        ).fetchone()
        assert row is not None
        assert row[1] is True
        assert again == (row[0], False)
        stored = connection.execute(
            "SELECT kind, args::text, queue, tags"
            " FROM awa.list_jobs(NULL, NULL, NULL, NULL, NULL, 10)"
        ).fetchall()
        assert stored == [("resolve", '{"n": 1}', "q", ["a", "b"])]
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("SELECT awa.enqueue('k', '{}', priority => 5)")


# ---- jobs


async def test_jobs_are_read_and_listed(client: awa.Client) -> None:
    a = await client.enqueue(Greet("a"), tags=["x"])
    b = await client.enqueue(Resolve(1))
    await drain(app, client)
    listed = client.jobs.list
    assert [j.id for j in await listed()] == [b.id, a.id]
    assert [j.id for j in await listed(kind="greet")] == [a.id]
    assert [j.id for j in await listed(state="completed", queue="default")] == [b.id]
    assert [j.id for j in await listed(state=[S.COMPLETED, "failed"], tag="x")] == [a.id]
    assert [j.id for j in await listed(before_id=b.id, limit=1)] == [a.id]
    with pytest.raises(ValueError, match="nonsense"):
        await listed(state="nonsense")
    with pytest.raises(ValueError, match="limit"):
        await listed(limit=0)
    with pytest.raises(awa.JobNotFound, match="no job 999"):
        await client.jobs.get(999)


@pytest.mark.parametrize("job_id", [0, -1, 2**63, -(2**70), pytest.param(10**5000, id="huge")])
@pytest.mark.parametrize("method", ["get", "wait", "cancel", "retry"])
async def test_an_id_that_no_job_can_have_is_no_jobs(
    client: awa.Client, method: str, job_id: int
) -> None:
    with pytest.raises(awa.JobNotFound, match="there is no job") as caught:
        await getattr(client.jobs, method)(job_id)
    assert caught.value.job_id == job_id


@pytest.mark.parametrize("job_id", ["5", None, True, 5.0])
@pytest.mark.parametrize("method", ["get", "wait", "cancel", "retry"])
async def test_an_id_is_an_int(client: awa.Client, method: str, job_id: Any) -> None:
    with pytest.raises(TypeError, match="job_id: give an int, not"):
        await getattr(client.jobs, method)(job_id)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "\0"}, ValueError, r"kind: U\+0000"),
        ({"queue": "\0"}, ValueError, r"queue: U\+0000"),
        ({"tag": "\ud800"}, ValueError, "tag: a lone surrogate"),
        ({"kind": 5}, TypeError, "kind: give a str, not int"),
        ({"before_id": 2**70}, ValueError, "before_id: give a whole number"),
        ({"before_id": "5"}, TypeError, "before_id: give a whole number from 1 on, not str"),
        ({"limit": "x"}, TypeError, "limit: give a whole number from 1 to .*, not str"),
        ({"limit": 2**31}, ValueError, "limit: give a whole number from 1 to 2,147,483,647"),
        ({"state": 5}, TypeError, "state: give a str, not int"),
        ({"state": [[]]}, ValueError, r"state: there is no state \[\]; there are scheduled"),
    ],
)
async def test_a_list_of_what_cannot_be_is_refused(
    client: awa.Client, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await client.jobs.list(**options)


async def test_other_slips_of_a_type_name_the_parameter(client: awa.Client) -> None:
    anything: Any = 5
    with pytest.raises(TypeError, match="reason: give a str"):
        await client.jobs.cancel(1, reason=anything)
    for jobs in (anything, {"a": 1}, "abc"):
        with pytest.raises(TypeError, match="jobs: give the arguments of several, in a list"):
            await client.enqueue_many(jobs)
    with pytest.raises(TypeError, match="connection: give a psycopg connection, not int"):
        awa.enqueue(anything, Resolve(1))
    with pytest.raises(TypeError, match="app: give an App, not int"):
        awa.enqueue(anything, Resolve(1), app=anything)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"grace": "x"}, TypeError, "grace: give seconds, as a number, not str"),
        ({"grace": float("nan")}, awa.ConfigurationError, "grace: give at least 0 seconds"),
        ({"timings": "x"}, TypeError, "timings: give a Timings, not str"),
        ({"retention": 5}, TypeError, "retention: give a Retention, not int"),
        ({"random": 5}, TypeError, "random: give a Random, not int"),
        ({"queues": 5}, TypeError, "queues: give a list of names"),
        ({"queues": [1]}, awa.ConfigurationError, "queue: give a str, not int"),
        ({"queues": {"a": "5"}}, awa.ConfigurationError, "give a whole number from 1"),
        ({"name": 5}, TypeError, "name: give a str, not int"),
        ({"name": ""}, awa.ConfigurationError, "name: give 1 to 200 characters, not 0"),
        ({"name": "a\0b"}, awa.ConfigurationError, r"name: U\+0000"),
        ({"name": "\ud800"}, awa.ConfigurationError, "name: a lone surrogate"),
        ({"client": 5}, TypeError, "client: give a Client, not int"),
        ({"app": 5}, TypeError, "app: give an App, not int"),
    ],
)
async def test_a_worker_is_refused_what_it_cannot_use(
    client: awa.Client, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"app": app, "client": client, **options}
    with trio.fail_after(5), pytest.raises(error, match=message):
        await awa.run_worker(**given)


@pytest.mark.parametrize("state", ["available", "scheduled", "retryable"])
async def test_a_waiting_job_is_cancelled(client: awa.Client, state: str) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    answer = await client.enqueue(Resolve(1), run_at=later if state == "scheduled" else None)
    if state == "retryable":

        @frozen
        class Failing:
            pass

        other = awa.App()

        @other.task(args=Resolve)
        async def resolve(job: awa.Job[Resolve]) -> None:
            raise ValueError

        await drain(other, client, most=1)
    assert (await client.jobs.get(answer.id)).state == state
    assert await client.jobs.cancel(answer.id, reason="why")
    job = await client.jobs.get(answer.id)
    assert job.state is S.CANCELLED
    assert job.errors[-1].error == "cancelled: why"
    assert not await client.jobs.cancel(answer.id)


@pytest.mark.parametrize("as_bytes", [True, False])
async def test_a_job_is_cancelled_by_its_unique_key(client: awa.Client, as_bytes: bool) -> None:
    answer = await client.enqueue(Resolve(1), unique_opts={})
    other = await client.enqueue(Resolve(2), unique_opts={})
    key = (await client.jobs.get(answer.id)).unique_key
    wanted = key if as_bytes else Resolve(1)
    assert await client.jobs.cancel_by_key(wanted, reason="why") == answer.id
    job = await client.jobs.get(answer.id)
    assert (job.state, job.errors[-1].error) == (S.CANCELLED, "cancelled: why")
    assert await client.jobs.cancel_by_key(wanted) is None
    assert (await client.jobs.get(other.id)).state is S.AVAILABLE


async def test_a_completed_job_that_holds_the_key_is_left(client: awa.Client) -> None:
    answer = await client.enqueue(Resolve(1), unique_opts={})
    await drain(app, client)
    assert await client.jobs.cancel_by_key(Resolve(1)) is None
    assert (await client.jobs.get(answer.id)).state is S.COMPLETED


async def test_a_key_is_computed_as_for_the_enqueue(client: awa.Client) -> None:
    options = awa.UniqueOpts(by_queue=True, by_period=7)
    answer = await client.enqueue(Resolve(1), queue="x", unique_opts=options)
    cancel = client.jobs.cancel_by_key
    assert await cancel(Resolve(1)) is None
    assert await cancel(Resolve(1), queue="y", unique_opts=options) is None
    assert await cancel(Resolve(1), queue="x", unique_opts=options) == answer.id
    answer = await client.enqueue(Resolve(1), queue="x", unique_opts=options)
    request = awa.EnqueueRequest(Resolve(1), queue="x", unique_opts=options)
    assert await cancel(request) == answer.id


async def test_keys_that_are_none_are_refused(client: awa.Client) -> None:
    cancel = client.jobs.cancel_by_key
    with pytest.raises(awa.InvalidRequest, match="16 bytes, not 3"):
        await cancel(b"abc")
    with pytest.raises(awa.InvalidRequest, match="leave out the options"):
        await cancel(bytes(16), kind="resolve")
    with pytest.raises(awa.InvalidRequest, match="no unique options"):
        await cancel(awa.EnqueueRequest(Resolve(1)))
    with pytest.raises(awa.UnknownKind):
        await cancel({"n": 1}, kind="nonsense")


async def test_a_failed_job_is_retried_with_all_its_attempts(client: awa.Client) -> None:
    answer = await client.enqueue(Resolve(-1))
    await drain(app, client)
    assert (await client.jobs.get(answer.id)).state is S.FAILED
    await client.jobs.retry(answer.id)
    job = await client.jobs.get(answer.id)
    assert (job.state, job.attempt) == (S.AVAILABLE, 0)
    with pytest.raises(
        awa.InvalidTransition, match="is available: it will run without a retry"
    ):
        await client.jobs.retry(answer.id)


async def test_a_completed_job_is_never_reopened(client: awa.Client) -> None:
    answer = await client.enqueue(Resolve(1))
    await drain(app, client)
    with pytest.raises(awa.InvalidTransition, match="completed jobs are never reopened"):
        await client.jobs.retry(answer.id)
    assert not await client.jobs.cancel(answer.id)
    assert (await client.jobs.get(answer.id)).state is S.COMPLETED


async def test_a_retry_that_needs_a_key_another_job_holds_is_refused(
    client: awa.Client,
) -> None:
    first = await client.enqueue(Resolve(-1), unique_opts={})
    await drain(app, client)
    second = await client.enqueue(Resolve(-1), unique_opts={})
    with pytest.raises(awa.UniqueConflict) as caught:
        await client.jobs.retry(first.id)
    assert (caught.value.job_id, caught.value.holder_id) == (first.id, second.id)
    assert (await client.jobs.get(first.id)).state is S.FAILED


async def test_one_waits_for_a_job(client: awa.Client) -> None:
    answer = await client.enqueue(Resolve(1))
    async with trio.open_nursery() as nursery:
        await nursery.start(awa.run_worker, app, client)
        with trio.fail_after(10):
            job = await client.jobs.wait(answer.id)
        nursery.cancel_scope.cancel()
    assert job.state is S.COMPLETED
    with pytest.raises(awa.JobNotFound):
        await client.jobs.wait(10**9)


def test_the_client_runs_on_asyncio(migrated: str) -> None:
    async def main() -> None:
        async with awa.connect(migrated, app=app, pool_size=3) as client:
            async with asyncio.TaskGroup() as group:
                for n in range(20):
                    group.create_task(client.enqueue(Resolve(n)))
            async with client.transaction() as tx:
                await tx.enqueue(Resolve(99))
            jobs = await client.jobs.list()
            assert len(jobs) == 21
            assert await client.jobs.cancel(jobs[0].id)
            with pytest.raises(awa.WrongEventLoop, match="run_worker needs Trio"):
                await awa.run_worker(app, client)

    asyncio.run(main())


# ---- connecting


@pytest.mark.parametrize(
    ("dsn", "error", "message"),
    [
        (
            "host=/nowhere dbname=x",
            awa.DatabaseUnavailable,
            "connecting: PostgreSQL could not be reached",
        ),
        ("postgresql://127.0.0.1:1/x", awa.DatabaseUnavailable, "could not be reached"),
        ("nonsense", awa.ConfigurationError, "the DSN cannot be parsed"),
        ("hots=x", awa.ConfigurationError, "it looks like postgresql://"),
        ("host=\ud800", awa.ConfigurationError, "the DSN: a lone surrogate"),
        ("host=a\0b", awa.ConfigurationError, r"the DSN: U\+0000"),
        ("port=abc", awa.ConfigurationError, "cannot be parsed: port='abc': give a number"),
        ("port=1,99999", awa.ConfigurationError, "port='99999': give a number from 1"),
        ("connect_timeout=abc", awa.ConfigurationError, "connect_timeout='abc': give a whole"),
        ("keepalives=yes", awa.ConfigurationError, "keepalives='yes': give a whole number"),
        ("sslmode=yes", awa.ConfigurationError, "sslmode='yes': give one of disable, allow"),
        (None, TypeError, "dsn: give a str, not None"),
        (5, TypeError, "dsn: give a str, not int"),
    ],
)
async def test_a_wrong_dsn_is_one_sentence(
    dsn: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        async with awa.connect(dsn):
            pass
    assert "\n" not in str(caught.value)
    for function in (awa.migrate, awa.schema_status):
        with pytest.raises(error, match=message):
            await function(dsn)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"app": 5}, TypeError, "app: give an App, not int"),
        ({"pool_size": "x"}, TypeError, "pool_size: give a whole number from 1 to .*, not str"),
        ({"pool_size": 0}, awa.ConfigurationError, "pool_size: give a whole number from 1"),
    ],
)
async def test_a_client_is_refused_what_it_cannot_use(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        async with awa.connect("host=/nowhere", **options):
            pass


# A pooler takes no PGOPTIONS, unless told to.
@pytest.mark.sessions
@pytest.mark.parametrize("said_by", ["dsn", "PGCLIENTENCODING", "PGOPTIONS"])
async def test_a_client_speaks_utf8_whatever_is_asked_for(
    migrated: str, monkeypatch: pytest.MonkeyPatch, said_by: str
) -> None:
    dsn = migrated
    if said_by == "dsn":
        dsn = make_conninfo(migrated, client_encoding="LATIN1")
    else:
        option = "" if said_by == "PGCLIENTENCODING" else "-c client_encoding="
        monkeypatch.setenv(said_by, f"{option}LATIN1")
    async with awa.connect(dsn) as client:
        answer = await client.enqueue(Resolve(1), kind="解決", queue="🎉", tags=["é"])
        await client.jobs.cancel(answer.id, reason="因", without_follow_ups=True)
        [job] = await client.jobs.list(kind="解決", queue="🎉", tag="é")
    assert job.errors[-1].error == "cancelled: 因"


def test_a_connection_of_the_callers_that_lacks_a_character_says_so(migrated: str) -> None:
    with psycopg.connect(migrated, client_encoding="LATIN1") as connection:
        with pytest.raises(awa.InvalidRequest, match=r"client_encoding, .*lacks a"):
            awa.enqueue(connection, Resolve(1), queue="🎉")
        awa.enqueue(connection, Resolve(1))
    assert count(migrated) == 1


async def test_the_environment_says_which_database(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWA_DSN", migrated)
    assert await awa.schema_status() == await awa.schema_status(migrated)
    async with awa.connect(app=app) as client:
        await client.enqueue(Resolve(1))
    assert count(migrated) == 1
    monkeypatch.setenv("AWA_DSN", "host=/nowhere")
    monkeypatch.setenv("PGHOST", "/nowhere")
    with pytest.raises(awa.DatabaseUnavailable, match=r"reached \(.*\)$"):
        await awa.migrate()


async def test_no_database_at_all_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWA_DSN", "PGHOST", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGPORT", "1")
    with pytest.raises(awa.DatabaseUnavailable, match="no DSN was given: pass one, or set AWA"):
        async with awa.connect():
            pass


async def test_a_password_is_never_in_an_error() -> None:
    with pytest.raises(awa.DatabaseUnavailable) as caught:
        async with awa.connect("postgresql://me:hunter2@127.0.0.1:1/x"):
            pass
    assert "hunter2" not in str(caught.value) + repr(caught.value)


async def test_a_database_without_the_schema_says_how_to_make_it(dsn: str) -> None:
    with pytest.raises(awa.SchemaMissing, match="awa-trio migrate"):
        async with awa.connect(dsn):
            pass


@pytest.mark.parametrize(
    ("version", "oldest", "error", "message"),
    [
        (0, 0, awa.SchemaUnversioned, "does not say its version"),
        (99, 1, None, ""),
        (99, 99, awa.SchemaNewer, "pip install --upgrade awa-trio"),
    ],
)
async def test_a_schema_of_another_version(
    migrated: str, version: int, oldest: int, error: type[Exception] | None, message: str
) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute(
            "UPDATE awa.schema_version SET version = %s, oldest_supported = %s",
            [version, oldest],
        )
    if error is None:
        async with awa.connect(migrated, app=app) as client:
            await client.enqueue(Resolve(1))
        return
    with pytest.raises(error, match=message):
        async with awa.connect(migrated):
            pass


@pytest.mark.parametrize(
    "lost",
    [
        "DROP TABLE awa.schema_version",
        "DELETE FROM awa.schema_version",
        # As another program has it, whose schema has the same name: the ancestor.
        "ALTER TABLE awa.schema_version DROP COLUMN oldest_supported",
    ],
)
async def test_a_schema_without_a_version_is_left_alone(migrated: str, lost: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute(lost.encode())
    for function in (awa.migrate, awa.schema_status):
        with pytest.raises(awa.SchemaUnversioned, match="DROP SCHEMA awa CASCADE"):
            await function(migrated)
    with pytest.raises(awa.SchemaUnversioned):
        async with awa.connect(migrated):
            pass
    assert count(migrated) == 0


async def test_an_empty_schema_made_beforehand_is_filled(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA awa")
    applied, _ = await awa.migrate(dsn)
    assert applied


async def test_a_schema_that_is_too_new_is_not_called_up_to_date(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute("UPDATE awa.schema_version SET version = 99, oldest_supported = 99")
    with pytest.raises(awa.SchemaNewer):
        await awa.migrate(migrated)


@pytest.mark.sessions
async def test_a_role_without_rights_is_told_so(migrated: str) -> None:
    role = f"weak_{uuid4().hex}"
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            with pytest.raises(awa.ConfigurationError, match="may not use the awa schema"):
                async with awa.connect(make_conninfo(migrated, user=role)):
                    pass
        finally:
            connection.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize("since", [-1, 99, "x", None])
def test_a_script_since_no_version_is_refused(since: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="since: give"):
        awa.schema_script(since)


async def test_an_older_schema_is_refused(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import attrs

    from awa_trio._app import schema as schemas
    from awa_trio._pg.migrate import Migration

    ours = schemas.schema()
    v = ours.version
    newer = attrs.evolve(ours, migrations=[*ours.migrations, Migration(v + 1, "x", "")])
    monkeypatch.setattr(schemas, "schema", lambda: newer)
    with pytest.raises(
        awa.SchemaOlder, match=rf"version {v}, this release needs {v + 1}.*awa-trio migrate"
    ):
        async with awa.connect(migrated):
            pass


async def test_a_database_of_each_earlier_version_comes_forward(dsn: str) -> None:
    import attrs

    from awa_trio._app.schema import schema

    ours = schema()
    for version in range(1, ours.version + 1):
        # Its functions were others, and are replaced by ours in the end.
        functions = ours.functions if version == ours.version else ()
        step = attrs.evolve(ours, migrations=ours.migrations[:version], functions=functions)
        async with await TrioConnection.connect(dsn, autocommit=True) as connection:
            assert len(await step.migrate(connection)) == 1
            await connection.execute(
                "INSERT INTO awa.jobs (kind, queue, args) VALUES ('resolve', 'default', '{\"n\": 1}')"
            )
    async with awa.connect(dsn, app=app) as client:
        assert len(await drain(app, client)) == ours.version


@pytest.mark.sessions
async def test_a_server_that_goes_away_is_one_sentence_and_comes_back(
    client: awa.Client, migrated: str
) -> None:
    await client.enqueue(Resolve(1))
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    with pytest.raises(awa.DatabaseUnavailable, match="enqueueing"):
        await client.enqueue(Resolve(2))
    await client.enqueue(Resolve(3))


def test_without_an_event_loop_it_says_so() -> None:
    coroutine = awa.connect("").__aenter__()
    with pytest.raises(awa.WrongEventLoop, match=r"trio\.run"):
        coroutine.send(None)


async def test_a_full_pool_is_a_named_error(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from awa_trio._pg import pool

    defaults = pool.Pool.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setattr(pool.Pool.__init__, "__kwdefaults__", {**defaults, "timeout": 0.05})
    async with awa.connect(migrated, app=app, pool_size=1) as client:
        async with client.transaction():
            with pytest.raises(awa.DatabaseUnavailable, match="1 of 1 are borrowed"):
                await client.enqueue(Resolve(1))


@pytest.mark.parametrize(
    "error",
    [psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName],
)
async def test_a_pooler_that_does_not_keep_prepared_statements_is_named(
    migrated: str, monkeypatch: pytest.MonkeyPatch, error: type[psycopg.Error]
) -> None:
    async def refuse(connection: object) -> None:
        raise error("prepared statement")

    monkeypatch.setattr("awa_trio._app.connect.check_schema", refuse)
    with pytest.raises(awa.ConfigurationError, match="leave out prepare=True"):
        async with awa.connect(migrated):
            raise AssertionError


@pytest.mark.sessions
async def test_a_dropped_database_is_told_in_any_language(
    migrated: str, awa_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's message is in its own language; its catalog says it in all of them."""
    from awa_trio._app.connections import Opener
    from awa_trio._store import failures

    with fresh_database(awa_server) as name:
        gone = make_conninfo(awa_server, dbname=name)
    monkeypatch.setattr(
        failures, "_NO_DATABASE", re.compile("la base de données .* n'existe pas")
    )
    with pytest.raises(psycopg.OperationalError) as caught:
        await Opener.of(gone, prepare=True)()
    error = failures.store_error(caught.value)
    assert (error.lasting, type(error)) == (Lasting.DATABASE, Transient)
    # What is there, and refuses for another reason that names it, is not gone.
    nobody = make_conninfo(migrated, user="nobody_of_this_name")
    with pytest.raises(psycopg.OperationalError) as caught:
        await Opener.of(nobody, prepare=True)()
    assert failures.store_error(caught.value).lasting is None

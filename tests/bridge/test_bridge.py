"""Jobs in transactions of SQLAlchemy, Django, asyncpg and psycopg: all the same job, all or none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import asyncpg
import attrs
import psycopg
import pytest
import sqlalchemy as sa
import trio
from attrs import frozen
from django.db import connections as django_connections
from django.db import transaction
from psycopg.conninfo import make_conninfo
from sqlalchemy.orm import Session, sessionmaker

import awa_trio as awa
from awa_trio import bridge

from ..security.test_roles import role_in
from . import ways
from .ways import WAYS, in_transaction

app = awa.App()


@frozen
class Ship:
    order: int
    note: str = ""


@frozen
class Unknown:
    pass


app.declare(Ship, queue="shipping")

#: What is different in each job, and nothing else is.
OWN = ("id", "raw_created_at", "raw_run_at")

HARD = 'a "quote", a \\backslash, {braces}, %s :p1 $1 \' é 🎉 \n'

OPTIONS: list[dict[str, Any]] = [
    {},
    {
        "queue": "é 🎉",
        "priority": 1,
        "max_attempts": 7,
        "tags": ["plain", "a,b", 'a "b" \\c', "NULL", "{}", "é 🎉"],
        "metadata": {"a": ["NULL", None, 1.5, {"b": HARD}]},
        "run_at": datetime(2999, 12, 31, 23, 59, 59, 999999, timezone(timedelta(hours=-5))),
        "unique_opts": {"by_queue": True, "states": 255},
        "ordering_key": HARD[:20],
        "limit_key": HARD[:19],
        "deadline": 1e-05,
    },
    {"run_at": datetime(1, 1, 1, tzinfo=UTC), "deadline": 0, "ordering_key": "NULL"},
    {"unique_opts": {}, "limit_key": "NULL"},
]


def stored(dsn: str) -> list[awa.JobDetails]:
    async def read() -> list[awa.JobDetails]:
        async with awa.connect(dsn) as client:
            return await client.jobs.list()

    return list(reversed(trio.run(read)))


def compared(job: awa.JobDetails) -> dict[str, Any]:
    fields = attrs.asdict(job, recurse=False)
    return {name: value for name, value in fields.items() if name not in OWN}


@contextmanager
def producing(dsn: str) -> Iterator[str]:
    """The DSN of a role that has a producer's rights, and no others."""
    with psycopg.connect(dsn, autocommit=True) as connection, role_in(dsn) as role:
        [engine] = connection.execute("SELECT awa.engine()").fetchone() or [""]
        script = awa.grants_script("producer", role, engine=awa.Engine(engine))
        connection.execute(script.encode())
        yield make_conninfo(dsn, user=role)


#: Every way into the one engine, and one of each kind into the other.
INTO = [("migrated", name) for name in WAYS] + [
    ("segmented", name) for name in ("psycopg", "Session", "Django", "asyncpg")
]


@pytest.mark.parametrize(("database", "by"), INTO)
def test_jobs_are_those_that_a_client_would_have_enqueued(
    request: pytest.FixtureRequest, database: str, by: str
) -> None:
    dsn: str = request.getfixturevalue(database)

    def singly_and_at_once(connection: Any) -> list[Any]:
        one = [
            partial(bridge.enqueue, connection, Ship(n, HARD), app=app, **options)
            for n, options in enumerate(OPTIONS)
        ]
        requests = [
            awa.EnqueueRequest(Ship(n, HARD)).options(**options)
            for n, options in enumerate(OPTIONS, 100)
        ]
        return [*one, partial(bridge.enqueue_many, connection, requests, app=app)]

    def in_vain(connection: Any) -> list[Any]:
        def fail() -> Any:
            raise LookupError("no such order")

        many = partial(bridge.enqueue_many, connection, [Ship(2), Ship(3)])
        return [partial(bridge.enqueue, connection, Ship(1)), many, fail]

    def refused_and_repeated(connection: Any) -> list[Any]:
        with pytest.raises(awa.InvalidRequest, match="priority"):
            bridge.enqueue(connection, Ship(1), priority=0)
        with pytest.raises(awa.InvalidRequest, match="priority"):
            bridge.enqueue_many(connection, [Ship(1)], priority=0)
        with pytest.raises(awa.UnknownKind, match="unknown"):
            bridge.enqueue(connection, Unknown(), app=app)
        not_an_app: Any = "app"
        with pytest.raises(TypeError, match="app: give an App"):
            bridge.enqueue(connection, Ship(1), app=not_an_app)
        one = partial(bridge.enqueue, connection, Ship(9), unique_opts={})
        none = partial(bridge.enqueue_many, connection, [])
        many = partial(
            bridge.enqueue_many, connection, [Ship(9), Ship(8), Ship(8)], unique_opts={}
        )
        return [one, one, none, many]

    with producing(dsn) as producer:
        *singly, at_once = in_transaction(WAYS[by], producer, singly_and_at_once)
        with pytest.raises(LookupError):
            in_transaction(WAYS[by], producer, in_vain)
        ours = stored(dsn)
        first, again, none, many = in_transaction(WAYS[by], producer, refused_and_repeated)
    assert [answer.id for answer in (*singly, *at_once)] == [job.id for job in ours]
    assert all(answer.inserted for answer in (*singly, *at_once))
    keys = [options.get("limit_key") for options in OPTIONS]
    assert [job.limit_key for job in ours] == 2 * keys
    assert any(keys)
    assert (first.inserted, again.inserted, again.id, none) == (True, False, first.id, [])
    assert [answer.inserted for answer in many] == [False, True, False]
    assert (many[0].id, many[2].id) == (first.id, many[1].id)

    async def enqueue() -> None:
        async with awa.connect(dsn, app=app) as client:
            for first in (0, 100):
                for n, options in enumerate(OPTIONS, first):
                    again = await client.enqueue(Ship(n, HARD), **options)
                    assert again.inserted is ("unique_opts" not in options)

    trio.run(enqueue)
    theirs = stored(dsn)[len(ours) + 2 :]
    keyless = [job for job in ours if job.unique_key is None]
    assert [compared(job) for job in keyless] == [compared(job) for job in theirs]
    assert len(keyless) == 4
    for job in ours:
        options = OPTIONS[job.args_json["order"] % 100]
        if "run_at" in options:
            assert job.run_at == options["run_at"]


def test_a_database_without_the_schema_is_said_so(dsn: str) -> None:
    for by in WAYS.values():
        with pytest.raises(awa.SchemaMissing, match="awa-trio migrate"):
            in_transaction(by, dsn, lambda c: [partial(bridge.enqueue, c, Ship(1))])


@pytest.mark.untouched
def test_a_schema_of_another_release_is_said_so(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute(
            "ALTER FUNCTION awa.enqueue RENAME TO was;"
            "ALTER FUNCTION awa.enqueue_many RENAME TO was_many"
        )
    for by in WAYS.values():
        for call in (
            lambda c: [partial(bridge.enqueue, c, Ship(1))],
            lambda c: [partial(bridge.enqueue_many, c, [Ship(1), Ship(2)])],
        ):
            with pytest.raises(awa.SchemaError, match=r"has no awa\.enqueue.*awa-trio migrate"):
                in_transaction(by, migrated, call)


def test_a_queue_that_is_drained_takes_nothing_over_any_bridge(migrated: str) -> None:
    with awa.BlockingClient(migrated) as client:
        client.queues.drain("shipping")
    for by in WAYS.values():
        with pytest.raises(awa.QueueDraining, match="queue 'shipping' is being drained"):
            in_transaction(
                by, migrated, lambda c: [partial(bridge.enqueue, c, Ship(1), app=app)]
            )
    assert stored(migrated) == []


# ---- what is no transaction


def test_a_connection_without_a_transaction_is_refused(migrated: str) -> None:
    refused = partial(
        pytest.raises, awa.ConfigurationError, match="no transaction is open on this connection"
    )
    with ways.django(migrated) as connection, refused():
        bridge.enqueue(connection, Ship(1))
    with ways.engine(migrated, isolation_level="AUTOCOMMIT") as engine:
        with Session(engine) as session, refused():
            bridge.enqueue(session, Ship(1))

    async def main() -> None:
        for driver in ("asyncpg", "psycopg"):
            async with (
                ways.async_engine(migrated, driver, isolation_level="AUTOCOMMIT") as engine,
                engine.connect() as connection,
            ):
                with refused():
                    await bridge.enqueue(connection, Ship(1))
        alone = await asyncpg.connect(**ways.for_asyncpg(migrated))
        with refused():
            await bridge.enqueue(alone, Ship(1))
        await alone.close()

    asyncio.run(main())
    assert stored(migrated) == []


def test_another_kind_of_database_is_refused() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        with pytest.raises(awa.ConfigurationError, match="leads to sqlite"):
            bridge.enqueue(connection, Ship(1))
    engine.dispose()


def test_what_only_leads_to_a_connection_is_refused_with_the_way() -> None:
    engine = sa.create_engine("sqlite://")
    anything: Any
    for anything, hint in (
        (engine, r"not Engine; take a connection from it, with engine\.begin\(\)"),
        (sessionmaker(engine), "not sessionmaker; open a session with it"),
        (django_connections, r"not ConnectionHandler; give one of them"),
        (object(), "not object$"),
        (None, "not None$"),
        ("postgresql://", "not str$"),
    ):
        with pytest.raises(TypeError, match=hint):
            bridge.enqueue(anything, Ship(1))
        with pytest.raises(TypeError, match=hint):
            bridge.enqueue_many(anything, [Ship(1)])


def test_nothing_is_imported_that_the_program_has_not() -> None:
    program = (
        "import sys, awa_trio, awa_trio.bridge as bridge\n"
        "try: bridge.enqueue(object(), {}, kind='k')\n"
        "except TypeError: pass\n"
        "print({'sqlalchemy', 'django', 'asyncpg', 'trio_asyncio'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_a_savepoint_that_is_rolled_back_drops_its_job_and_no_other(migrated: str) -> None:
    def enqueue_in(connection: Any, savepoint: Any) -> None:
        bridge.enqueue(connection, Ship(1))
        with pytest.raises(LookupError), savepoint():
            bridge.enqueue(connection, Ship(2))
            raise LookupError
        bridge.enqueue(connection, Ship(3))

    with ways.engine(migrated) as engine, Session(engine) as session, session.begin():
        enqueue_in(session, session.begin_nested)
    with ways.django(migrated) as connection, transaction.atomic(using="awa"):
        enqueue_in(connection, partial(transaction.atomic, using="awa"))
    assert [job.args_json["order"] for job in stored(migrated)] == [1, 3, 1, 3]


def test_what_a_user_lets_a_library_make_of_types_does_not_matter(migrated: str) -> None:
    """Codecs of asyncpg's, row factories and adapters of psycopg's, strings that are not standard."""

    async def main() -> None:
        connection = await asyncpg.connect(**ways.for_asyncpg(migrated))
        for name in ("json", "text", "timestamptz", "bytea"):
            await connection.set_type_codec(
                name,
                schema="pg_catalog",
                encoder=str,
                decoder=lambda value: f"changed {value}",
                format="text",
            )
        async with connection.transaction():
            await connection.execute("SET LOCAL DateStyle TO 'German, DMY'")
            await connection.execute("SET LOCAL TimeZone TO 'Asia/Kathmandu'")
            answer = await bridge.enqueue(connection, Ship(0, HARD), app=app, **OPTIONS[1])
            assert answer.inserted
        await connection.close()

    asyncio.run(main())
    with ways.django(migrated) as connection, transaction.atomic(using="awa"):
        with connection.cursor() as cursor:
            for setting in ("standard_conforming_strings TO off", "bytea_output TO 'escape'"):
                cursor.execute(f"SET LOCAL {setting}")
            cursor.execute("SET LOCAL search_path TO pg_temp")
        requests = [awa.EnqueueRequest(Ship(n, HARD)).options(**OPTIONS[1]) for n in (1, 2)]
        bridge.enqueue_many(connection, requests, app=app)
    jobs = stored(migrated)
    assert {(job.run_at, job.queue, job.tags, job.args_json["note"]) for job in jobs} == {
        (OPTIONS[1]["run_at"], OPTIONS[1]["queue"], tuple(OPTIONS[1]["tags"]), HARD)
    }
    assert len(jobs) == 3

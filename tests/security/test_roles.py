"""Roles with the shipped GRANTs: each can do all that is its own, and nothing else.

Source: docs/explanation/security.md, whose table this is.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.resources import files
from uuid import uuid4

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio import Engine, Rights
from awa_trio._app.connections import Opener
from awa_trio._app.rights import PARTS
from awa_trio._pg.pool import Pool
from awa_trio._store.sql.store import SqlWorkerStore
from awa_trio.pg import TrioConnection

from .operations import OPERATIONS, Desk, Plain, app, outcome

#: A pooler logs in as whom it was told to, whoever its clients say they are.
pytestmark = pytest.mark.sessions

DATABASES = {Engine.CANONICAL: "canonical", Engine.SEGMENTED: "segmented"}


@pytest.fixture(params=list(Engine))
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.param
    return engine


@pytest.fixture
def database(request: pytest.FixtureRequest, engine: Engine) -> str:
    dsn: str = request.getfixturevalue(DATABASES[engine])
    return dsn


@contextmanager
def role_in(dsn: str, *scripts: str) -> Iterator[str]:
    """A role that may log in, and has what the scripts grant to it; its name is odd on purpose."""
    role = f'rôle "{uuid4().hex[:12]}" \\ ;--'
    quoted = psycopg.sql.Identifier(role).as_string()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {quoted} LOGIN".encode())
        try:
            for script in scripts:
                connection.execute(script.replace("ROLE", quoted).encode())
            yield role
        finally:
            connection.execute(f"DROP OWNED BY {quoted}".encode())
            connection.execute(f"DROP ROLE {quoted}".encode())


@asynccontextmanager
async def desk_of(dsn: str, role: str | None, engine: Engine) -> AsyncIterator[Desk]:
    as_role = dsn if role is None else make_conninfo(dsn, user=role)
    opener = Opener.of(as_role, prepare=True)
    async with (
        awa.connect(dsn, app=app) as owner,
        awa.connect(as_role, app=app) as client,
        await TrioConnection.connect(as_role, autocommit=True) as connection,
        Pool(opener, size=2, name="the role's pool") as pool,
    ):
        store = SqlWorkerStore(pool, opener, opener)
        yield Desk(dsn, owner, client, connection, store, engine is Engine.SEGMENTED)


@pytest.mark.parametrize("rights", list(Rights))
async def test_a_role_can_do_what_is_its_own_and_nothing_else(
    database: str, engine: Engine, rights: Rights
) -> None:
    wrong: list[str] = []
    with role_in(database) as role:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(awa.grants_script(rights, role, engine=engine).encode())
        async with desk_of(database, role, engine) as desk:
            for operation in OPERATIONS:
                if operation.only_segmented and not desk.segmented:
                    continue
                allowed = operation.allowed
                if desk.segmented and operation.in_lanes is not None:
                    allowed = operation.in_lanes
                expected = "done" if rights in allowed else "refused"
                found = await outcome(operation, desk)
                if found != expected:
                    wrong.append(f"{operation.name}: {found}, not {expected}")
    assert not wrong, chr(10).join(wrong)


async def test_a_role_with_a_workers_rights_runs_a_worker_and_turns_the_ring(
    database: str, engine: Engine
) -> None:
    with role_in(database) as role:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(awa.grants_script("worker", role, engine=engine).encode())
        timings = awa.Timings(rescue_interval=0.05, prune_interval=0.05, poll_interval=0.05)
        async with (
            awa.connect(make_conninfo(database, user=role), app=app) as client,
            trio.open_nursery() as nursery,
        ):
            worker = await nursery.start(
                partial(
                    awa.run_worker,
                    app,
                    client,
                    timings=timings,
                    retention=awa.Retention(completed=0.01),
                )
            )
            for round in range(4):
                await client.enqueue_many([Plain(100 * round + n) for n in range(20)])
                with trio.fail_after(30):
                    while await client.jobs.list():
                        await trio.sleep(0.02)
            worker.stop()
        if engine is Engine.SEGMENTED:
            with psycopg.connect(database) as connection:
                [(emptied,)] = connection.execute("SELECT max(number) FROM awa.segments")
            assert emptied > 5, "no segment has been emptied"


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("rights", list(Rights))
def test_the_files_grant_and_do_nothing_else(engine: Engine, rights: Rights) -> None:
    script = awa.grants_script(rights, "shop", engine=engine)
    statements = re.sub(r"^--.*$", "", script, flags=re.MULTILINE).split(";")
    assert [one.strip() for one in statements][-1] == ""
    for one in statements[:-1]:
        assert re.fullmatch(r'GRANT [^"]+ TO "shop"', one.strip()), one
        # What a role has it cannot pass on, nor does it have what a later release adds.
        assert "GRANT OPTION" not in one
        assert not re.search(r"\bALL\b", one)


def test_every_file_is_part_of_some_rights() -> None:
    folders = files("awa_trio").joinpath("_store")
    present = {
        file.name.removesuffix(".sql")
        for engine in Engine
        for file in folders.joinpath(engine, "grants").iterdir()
    }
    assert present == {part for parts in PARTS.values() for part in parts}


@pytest.mark.parametrize(
    ("rights", "role", "engine", "problem"),
    [
        ("king", "x", "canonical", "there are no rights 'king'"),
        ("worker", "x", "other", "there is no engine 'other'"),
        ("worker", "", "canonical", "1 to 63 bytes"),
        ("worker", "é" * 32, "canonical", "1 to 63 bytes"),
        ("worker", "a\0", "canonical", "role"),
        ("worker", "a\ud800", "canonical", "role"),
    ],
)
def test_what_no_role_can_be_given_is_refused(
    rights: str, role: str, engine: str, problem: str
) -> None:
    with pytest.raises(awa.ConfigurationError, match=problem):
        awa.grants_script(rights, role, engine=engine)


def test_a_role_is_quoted() -> None:
    assert 'TO "a""; DROP SCHEMA awa; --";' in awa.grants_script(
        "reader", 'a"; DROP SCHEMA awa; --'
    )

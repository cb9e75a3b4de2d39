"""Nothing of ours runs what others have put into a schema under a familiar name.

Whoever may create objects in a schema of somebody's search_path can wait there with functions,
operators and tables that have the names of PostgreSQL's own. Here everything that our SQL
names has such a double, and it stands before PostgreSQL's in the path.
"""

from __future__ import annotations

import re
from importlib.resources import files

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio import Engine
from awa_trio._app.schema import schema

from .operations import OPERATIONS, outcome
from .test_roles import DATABASES, desk_of

HOSTILE = "hostile, pg_catalog"

_TRAP = """
CREATE FUNCTION hostile.trap() RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN RAISE EXCEPTION 'trapped' USING ERRCODE = 'TRAPS'; END $$
"""

#: Doubles of all functions whose names our SQL uses, in each of their signatures.
_FUNCTIONS = """
SELECT DISTINCT p.proname, pg_get_function_identity_arguments(p.oid) AS args,
       pg_get_function_result(p.oid) AS result
  FROM pg_proc AS p
 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
   AND p.proname = ANY (%s)
"""

#: And of all operators, for each pair of types, and ones for the types of ours.
_OPERATORS = """
SELECT o.oprname, o.oprleft::regtype::text AS l, o.oprright::regtype::text AS r,
       o.oprresult::regtype::text AS result
  FROM pg_operator AS o
 WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0 AND o.oprresult <> 0
   AND o.oprname = ANY (%s)
"""


def source() -> str:
    """All SQL of ours, without its comments."""
    folder = files("awa_trio").joinpath("_store")
    texts = [
        file.read_text("utf-8")
        for engine in Engine
        for kind in ("functions", "migrations")
        for file in folder.joinpath(engine, kind).iterdir()
    ]
    return re.sub(r"--.*$", "", "\n".join(texts), flags=re.MULTILINE)


def lay_traps(connection: psycopg.Connection) -> int:
    """Fill a schema with doubles that raise; return how many."""
    text = source()
    names = sorted(set(re.findall(r"(?<![.\w])([a-z_0-9]+)\(", text)))
    operators = sorted(set(re.findall(r"[-+*/<>=~!@#%^&|]+", text)))
    connection.execute("CREATE SCHEMA hostile")
    connection.execute(_TRAP.encode())
    laid = 0
    for name, args, result in connection.execute(_FUNCTIONS, [names]).fetchall():
        if '"any"' in args or result == "trigger":
            continue
        statement = sql.SQL(
            "CREATE FUNCTION hostile.{}({}) RETURNS {} LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM hostile.trap(); RETURN{}; END'"
        ).format(
            sql.Identifier(name),
            sql.SQL(args),
            sql.SQL(result),
            sql.SQL(
                ""
                if result.startswith(("SETOF", "TABLE", "void")) or "OUT " in args
                else " NULL"
            ),
        )
        laid += _made(connection, statement)
    pairs = connection.execute(_OPERATORS, [operators]).fetchall()
    ours = [
        (name, left, right, "boolean")
        for name in ("=", "<", ">", "<>", "<=", ">=")
        for left, right in [
            ("awa.label", "text"),
            ("text", "awa.label"),
            ("awa.label", "awa.label"),
            ("awa.priority", "smallint"),
            ("awa.job_state", "awa.job_state"),
            ("awa.job_state", "text"),
            ("awa.unique_states", "smallint"),
        ]
    ]
    for number, (name, left, right, result) in enumerate([*pairs, *ours]):
        function = sql.SQL("hostile.{}").format(sql.Identifier(f"op{number}"))
        types = sql.SQL(f"{left}, {right}")
        made = _made(
            connection,
            sql.SQL(
                "CREATE FUNCTION {}({}) RETURNS {} LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM hostile.trap(); RETURN NULL; END'"
            ).format(function, types, sql.SQL(result)),
        )
        if made:
            laid += _made(
                connection,
                sql.SQL("CREATE OPERATOR hostile.{} (FUNCTION = {}, LEFTARG = {}, RIGHTARG = {})").format(
                    sql.SQL(name), function, sql.SQL(left), sql.SQL(right)
                ),
            )  # fmt: skip
    for table in ("pg_class", "pg_namespace", "pg_database", "pg_control_system"):
        laid += _made(
            connection,
            sql.SQL("CREATE VIEW hostile.{} AS SELECT hostile.trap()").format(
                sql.Identifier(table)
            ),
        )
    return laid


def _made(connection: psycopg.Connection, statement: sql.SQL | sql.Composed) -> bool:
    """Create something, unless PostgreSQL lets nobody have it."""
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.Error:
        return False
    return True


@pytest.mark.sessions  # by options=, which a pooler refuses
@pytest.mark.parametrize("engine", list(Engine))
async def test_nothing_of_ours_runs_what_stands_before_postgresqls_own(
    request: pytest.FixtureRequest, engine: Engine
) -> None:
    dsn: str = request.getfixturevalue(DATABASES[engine])
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert lay_traps(connection) > 400
    hostile = make_conninfo(dsn, options=f"-csearch_path={HOSTILE.replace(' ', '')}")
    with psycopg.connect(hostile, autocommit=True) as connection:
        # The traps do work, for functions, operators and tables.
        for statement in (
            "SELECT now()",
            "SELECT 1 = 1",
            "SELECT pg_notify('a', 'b')",
            "SELECT kind = 'x'::text FROM awa.jobs UNION ALL SELECT 'x'::awa.label = 'y'::text",
            "SELECT * FROM pg_class",
        ):
            with pytest.raises(psycopg.Error, match="trapped"):
                connection.execute(statement.encode())
    async with desk_of(hostile, None, engine) as desk:
        for operation in OPERATIONS:
            # What an act does by a statement of its own is not ours.
            if operation.ours and not (operation.only_segmented and not desk.segmented):
                assert await outcome(operation, desk) == "done", operation.name
        assert (await awa.storage_status(hostile)).engine is engine
        await desk.store.tell(["default"])
        # Without the path that its functions bring along, it would have been caught.
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("ALTER FUNCTION awa.enqueue RESET search_path")
        [enqueueing] = [one for one in OPERATIONS if one.name == "enqueue a job"]
        assert "trapped" in await outcome(enqueueing, desk)


@pytest.mark.sessions  # by options=, which a pooler refuses
@pytest.mark.parametrize("engine", list(Engine))
async def test_a_migration_runs_nothing_of_others(dsn: str, engine: Engine) -> None:
    """Whoever migrates is the owner of everything, and often a superuser."""
    hostile = make_conninfo(dsn, options=f"-csearch_path={HOSTILE.replace(' ', '')}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert lay_traps(connection) > 400
        _, version = await awa.migrate(hostile)
        assert version == schema().version
        assert await awa.migrate(hostile) == ([], version)
        if engine is Engine.SEGMENTED:
            applied, _ = await awa.migrate(hostile, engine=engine)
            assert applied
        await awa.schema_status(hostile)
        # What was made at that time, such as an index on an expression, has no part of them.
        connection.execute("DROP SCHEMA hostile CASCADE")
        [(count,)] = connection.execute("SELECT count(*) FROM awa.enqueue('kind', '{}')")
        assert count == 1


@pytest.mark.parametrize("engine", list(Engine))
def test_every_function_says_where_it_looks(
    request: pytest.FixtureRequest, engine: Engine
) -> None:
    """A body in SQL's own syntax was looked up when it was created; any other has its path."""
    with psycopg.connect(request.getfixturevalue(DATABASES[engine])) as connection:
        rows = connection.execute(
            "SELECT proname, prosecdef, prosqlbody IS NOT NULL,"
            " 'search_path=pg_catalog, pg_temp' = ANY (proconfig)"
            " FROM pg_proc WHERE pronamespace = 'awa'::regnamespace"
        ).fetchall()
    assert len(rows) > 45
    for name, definer, parsed, fixed in rows:
        assert parsed or fixed, name
        assert fixed or not definer, name
    # With the owner's rights: these and no others.
    assert {name for name, definer, *_ in rows if definer} == (
        {"depth", "take_back"} if engine is Engine.SEGMENTED else {"depth"}
    )

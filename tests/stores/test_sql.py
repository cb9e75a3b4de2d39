"""The SQL files: one function each, its header true, its statements on indexes."""

from __future__ import annotations

import importlib
import pkgutil
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import awa_trio
from awa_trio._app.schema import RENAMED
from awa_trio._store import sql

FOLDER = Path(awa_trio.__file__).parent / "_store" / "canonical"
SEGMENTED = FOLDER.parent / "segmented"
FUNCTIONS = [
    path
    for folder in (FOLDER, SEGMENTED)
    for path in sorted((folder / "functions").glob("*.sql"))
]
IDS = [f"{path.parent.parent.name}/{path.stem}" for path in FUNCTIONS]

#: What the classes over them send.
STATEMENTS = {
    value
    for module in pkgutil.iter_modules(sql.__path__)
    for value in vars(importlib.import_module(f"{sql.__name__}.{module.name}")).values()
    if isinstance(value, bytes) and b"FROM awa." in value
}


def header(path: Path) -> str:
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def signatures(awa_server: str, segmented_template: str) -> dict[str, list[str]]:
    """Each function's parameters, as PostgreSQL knows them, in the engine that has them all."""
    with psycopg.connect(
        psycopg.conninfo.make_conninfo(awa_server, dbname=segmented_template)
    ) as connection:
        rows = connection.execute(
            "SELECT proname, coalesce(proargnames[1:pronargs], '{}') FROM pg_proc"
            " WHERE pronamespace = 'awa'::regnamespace"
        ).fetchall()
    return dict(rows)


@pytest.mark.parametrize("path", FUNCTIONS, ids=IDS)
def test_a_file_holds_the_function_it_is_named_after(path: Path) -> None:
    created = re.findall(
        r"^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) awa\.(\w+)\(",
        path.read_text(),
        re.MULTILINE,
    )
    assert created == [path.stem]


@pytest.mark.parametrize("path", FUNCTIONS, ids=IDS)
def test_its_header_says_what_it_does_returns_and_locks(path: Path) -> None:
    text = header(path)
    assert text.startswith(f"-- {path.stem}: ")
    assert re.search(r"^-- Returns ", text, re.MULTILINE)
    assert re.search(r"^-- Locks", text, re.MULTILINE)


@pytest.mark.parametrize("path", FUNCTIONS, ids=IDS)
def test_its_header_names_every_parameter(path: Path, signatures: dict[str, list[str]]) -> None:
    text = header(path)
    for other in re.findall(r"\bas (?:for )?awa\.(\w+)", text):
        for folder in (FOLDER, SEGMENTED):
            named = folder / "functions" / f"{other}.sql"
            text += "\n" + (header(named) if named.exists() else "")
    for parameter in signatures[path.stem]:
        singular_of = {parameter + "s", re.sub("y$", "ies", parameter), parameter}
        assert any(re.search(rf"^--\s+{name}\b", text, re.MULTILINE) for name in singular_of), (
            parameter
        )


@pytest.mark.parametrize("path", FUNCTIONS, ids=IDS)
def test_nothing_runs_with_the_rights_of_another(path: Path) -> None:
    """But what takes back its caller's own insert, and what counts; with their names fixed."""
    statement = re.sub(r"--.*", "", path.read_text())
    if path.stem == "take_back":
        assert "SECURITY DEFINER\nSET search_path = pg_catalog, pg_temp" in statement
        assert "b.xid = pg_current_xact_id()" in statement
    elif path.stem == "depth":
        assert "STABLE SECURITY DEFINER\nSET search_path = pg_catalog, pg_temp" in statement
        assert "INOUT max_depth int, OUT due int" in statement
    else:
        assert "SECURITY DEFINER" not in statement


@pytest.mark.parametrize("path", FUNCTIONS, ids=IDS)
def test_every_name_is_qualified(path: Path) -> None:
    """Whatever the caller's search_path is, the tables are ours."""
    body = re.sub(r"--.*", "", path.read_text())
    ours = "jobs unique_claims workers leaders queues buckets segments"
    ours += " lane_jobs lane_claims lane_ends lane_turns lane_sweep lane_states"
    for table in ours.split():
        for found in re.finditer(rf"\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+({table})\b", body):
            raise AssertionError(f"{path.stem}: {found[0]}")


def test_every_function_is_called_by_the_thin_class_or_by_another() -> None:
    called = {value.decode().split("awa.")[1].split("(")[0] for value in STATEMENTS}
    bodies = "".join(re.sub(r"--.*", "", path.read_text()) for path in FUNCTIONS)
    called.add("engine")  # By migrations.
    called.add("unique_key")  # By users: docs/reference/sql.md.
    for path in FUNCTIONS:
        by_sql = len(re.findall(rf"awa\.{path.stem}\(", bodies)) > 1
        assert path.stem in called or by_sql, path.stem
    for name in RENAMED.values():
        assert f"awa.{name}(" in bodies, name


def test_engines_take_the_same_and_return_the_same(
    awa_server: str, canonical_template: str, segmented_template: str
) -> None:
    """A function of the same name has the same parameters and results in both."""
    known = []
    for name in (canonical_template, segmented_template):
        dsn = psycopg.conninfo.make_conninfo(awa_server, dbname=name)
        with psycopg.connect(dsn) as connection:
            rows = connection.execute(
                "SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid)"
                " FROM pg_proc WHERE pronamespace = 'awa'::regnamespace"
            ).fetchall()
        known.append({name: rest for name, *rest in rows})
    canonical, segmented = known
    assert canonical.items() <= segmented.items()
    for original, name in RENAMED.items():
        assert segmented[name] == segmented[original]


def test_the_number_of_parameters_is_the_functions(signatures: dict[str, list[str]]) -> None:
    for value in STATEMENTS:
        found = re.fullmatch(r"SELECT \* FROM awa\.(\w+)\((.*)\)", value.decode())
        if found:
            given = found[2].split(", ") if found[2] else []
            assert len(given) == len(signatures[found[1]]), found[1]


def test_no_sql_is_built_from_values() -> None:
    """Statements in the store are constants; values travel as parameters."""
    for path in FOLDER.parent.rglob("*.py"):
        text = path.read_text()
        assert not re.search(
            r'f"[^"]*\b(SELECT|INSERT|UPDATE|DELETE)\b(?!.*awa\.\{function\})', text
        ), path


#: The hot statements of the functions, as they are inside, with what the planner sees.
HOT: dict[str, tuple[str, list[Any]]] = {
    "claim: the head of a lane": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.queue = $1 AND j.kind = $2 AND j.priority = $3
           AND j.state IN ('available', 'scheduled', 'retryable')
           AND j.ordering_key IS NULL AND j.limit_key IS NULL AND j.run_at <= $5
         ORDER BY j.run_at, j.id LIMIT $4 FOR UPDATE SKIP LOCKED
        """,
        ["q", "k", 2, 100, "2999-01-01"],
    ),
    "lanes: the next lane": (
        """
        SELECT j.kind, j.priority FROM awa.jobs AS j
         WHERE j.queue = $1 AND j.ordering_key IS NULL AND j.limit_key IS NULL
           AND j.state IN ('available', 'scheduled', 'retryable')
           AND (j.kind, j.priority) > ($2, $3)
         ORDER BY j.kind, j.priority LIMIT 1
        """,
        ["q", "k", 2],
    ),
    "backlogs: what is due in a lane": (
        """
        SELECT count(*), min(d.run_at)
          FROM (SELECT j.run_at FROM awa.jobs AS j
                 WHERE j.queue = $1 AND j.kind = $2 AND j.priority = $3
                   AND j.state IN ('available', 'scheduled', 'retryable')
                   AND j.ordering_key IS NULL AND j.limit_key IS NULL AND j.run_at <= $5
                 ORDER BY j.run_at, j.id LIMIT greatest($4, 1)) AS d
        """,
        ["q", "k", 2, 100, datetime.now(UTC)],
    ),
    "key_heads: the next key": (
        """
        SELECT hashtext(j.ordering_key), j.ordering_key::text FROM awa.jobs AS j
         WHERE j.queue = $1 AND j.kind = $2
           AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
           AND j.ordering_key IS NOT NULL AND (hashtext(j.ordering_key), j.ordering_key) > ($3, $4)
         ORDER BY hashtext(j.ordering_key), j.ordering_key LIMIT 1
        """,
        ["q", "k", 0, "o"],
    ),
    "limited_heads: the next key": (
        """
        SELECT hashtext(j.limit_key), j.limit_key::text FROM awa.jobs AS j
         WHERE j.queue = $1 AND j.kind = $2
           AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
           AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
           AND (hashtext(j.limit_key), j.limit_key) > ($3, $4)
         ORDER BY hashtext(j.limit_key), j.limit_key, j.priority, j.run_at, j.id LIMIT 1
        """,
        ["q", "k", 0, "o"],
    ),
    "key_room: what is under way": (
        """
        SELECT FROM awa.jobs AS j
         WHERE j.queue = $1 AND j.limit_key = $2 AND j.worker_id IS NOT NULL LIMIT $3
        """,
        ["q", "o", 5],
    ),
    "key_heads: the head of a key": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.queue = $1 AND j.ordering_key = $2
           AND j.state IN ('available', 'scheduled', 'retryable')
         ORDER BY j.run_at, j.id LIMIT 1
        """,
        ["q", "o"],
    ),
    "key_heads: whether a key is taken": (
        """
        SELECT t.id FROM awa.jobs AS t
         WHERE t.queue = $1 AND t.ordering_key = $2
           AND t.state IN ('running', 'waiting_external')
        """,
        ["q", "o"],
    ),
    "note_due: what is due": (
        """
        SELECT d.id FROM awa.jobs AS d
         WHERE d.queue = $1 AND d.state IN ('available', 'scheduled', 'retryable')
           AND d.ordering_key IS NOT NULL AND NOT d.known_due AND d.run_at <= $2
         ORDER BY d.run_at LIMIT 250 FOR UPDATE SKIP LOCKED
        """,
        ["q", "2999-01-01"],
    ),
    "running: of a worker": (
        "SELECT j.id FROM awa.jobs AS j WHERE j.state = 'running' AND j.worker_id = $1",
        [1],
    ),
    "answered: of a worker": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.state = 'waiting_external' AND j.worker_id = $1 AND j.callback_until IS NULL
        """,
        [1],
    ),
    "rescue: callbacks that timed out": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.state = 'waiting_external' AND j.callback_until < clock_timestamp() LIMIT $1
        """,
        [100],
    ),
    "find_callback": ("SELECT j.id FROM awa.jobs AS j WHERE j.callback_token = $1", ["t"]),
}


@pytest.mark.parametrize("name", HOT)
def test_hot_statements_use_an_index_and_never_scan(name: str, migrated: str) -> None:
    statement, parameters = HOT[name]
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args) SELECT 'k', 'q', '{}' FROM generate_series(1, 2000)"
        )
        connection.execute("ANALYZE awa.jobs")
        for setting in (
            "enable_seqscan = off",
            "enable_bitmapscan = off",
            "plan_cache_mode = force_generic_plan",
        ):
            connection.execute(f"SET {setting}".encode())
        cursor = psycopg.RawCursor(connection)
        cursor.execute(f"EXPLAIN {statement}".encode(), parameters)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan" not in plan, plan
    assert "Sort" not in plan or "Incremental" in plan, plan
    assert "Index" in plan
    if "$5" in statement:
        # Rows that are locked are checked again against the predicate, but not for this.
        assert re.search(r"Index Cond: .*run_at <=", plan), plan


def test_settling_moves_rows_in_the_order_of_their_ids(migrated: str) -> None:
    """The plan that gives the global lock order: sorted input drives an index lookup."""
    body = (FOLDER / "functions" / "settle.sql").read_text()
    found = re.search(r"UPDATE awa\.jobs AS j\b.*?AND j\.state <> 'completed'", body, re.DOTALL)
    assert found
    statement = found[0]
    types = [
        "bigint[]",
        "bigint[]",
        "awa.job_state[]",
        "awa.job_state[]",
        "int[]",
        "float8[]",
        "text[]",
        "text[]",
        "json[]",
        "json[]",
        "json[]",
        "text[]",
    ]
    names = [
        "job_ids",
        "run_leases",
        "from_states",
        "to_states",
        "attempts",
        "delays",
        "new_errors",
        "tokens",
        "answers",
        "progress",
        "outputs",
        "dead_letters",
    ]
    arrays = ", ".join(f"${n}::{of}" for n, of in enumerate(types, 1))
    given = r"unnest\(" + r",\s*".join(names) + r"\)"
    statement, replaced = re.subn(given, f"unnest({arrays})", statement)
    assert replaced == 1
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args) SELECT 'k', 'q', '{}' FROM generate_series(1, 2000)"
        )
        connection.execute("ANALYZE awa.jobs")
        for setting in (
            "enable_seqscan = off",
            "enable_bitmapscan = off",
            "enable_mergejoin = off",
            "plan_cache_mode = force_generic_plan",
        ):
            connection.execute(f"SET {setting}".encode())
        cursor = psycopg.RawCursor(connection)
        cursor.execute(f"EXPLAIN {statement}".encode(), [None] * len(names))
        plan = "\n".join(row[0] for row in cursor.fetchall())
    loop = plan.index("Nested Loop")
    assert plan.index("Sort") > loop, plan
    assert re.search(r"Index Scan using jobs_pkey", plan), plan
    assert "Hash" not in plan, plan


def test_progress_is_written_in_the_order_of_the_ids(migrated: str) -> None:
    """As settling does, and for the same reason."""
    body = (FOLDER / "functions" / "record_progress.sql").read_text()
    found = re.search(r"UPDATE awa\.jobs AS j\b.*?RETURNING j\.id", body, re.DOTALL)
    assert found
    statement = found[0].replace("= worker", "= $4")
    given = r"unnest\(job_ids, run_leases, record_progress.progress\)"
    arrays = "unnest($1::bigint[], $2::bigint[], $3::json[])"
    statement, replaced = re.subn(given, arrays, statement)
    assert replaced == 1
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args) SELECT 'k', 'q', '{}' FROM generate_series(1, 2000)"
        )
        connection.execute("ANALYZE awa.jobs")
        for setting in re.findall(r"SET ((?:enable|plan)_\w+) = (\w+)", body):
            connection.execute(" = ".join(("SET " + setting[0], setting[1])).encode())
        cursor = psycopg.RawCursor(connection)
        cursor.execute(f"EXPLAIN {statement}".encode(), [None, None, None, 1])
        plan = "\n".join(row[0] for row in cursor.fetchall())
    loop = plan.index("Nested Loop")
    assert plan.index("Sort") > loop, plan
    assert re.search(r"Index Scan using jobs_(pkey|running)", plan), plan
    assert "Hash" not in plan, plan


#: Statements about dead letters, and the index that each is for.
DEAD_LETTERS: dict[str, tuple[str, str]] = {
    "prune: others": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.state = 'failed' AND j.state IN ('completed', 'failed', 'cancelled')
           AND j.dead_letter IS NULL AND j.finalized_at < now()
         ORDER BY j.finalized_at LIMIT 500 FOR UPDATE SKIP LOCKED
        """,
        "jobs_settled",
    ),
    "prune: dead letters": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.dead_letter IS NOT NULL AND j.finalized_at < now()
         ORDER BY j.finalized_at LIMIT 500 FOR UPDATE SKIP LOCKED
        """,
        "jobs_dead_letters_settled",
    ),
    "a batch": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.dead_letter IS NOT NULL AND j.id > 7 AND j.kind = 'k'
         ORDER BY j.id LIMIT 1000 FOR UPDATE
        """,
        "jobs_dead_letters",
    ),
    "one": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.dead_letter IS NOT NULL AND j.id > 0 AND j.id = ANY ('{5}')
         ORDER BY j.id LIMIT 1 FOR UPDATE
        """,
        "jobs_",
    ),
    "a page": (
        """
        SELECT j.id FROM awa.jobs AS j
         WHERE j.dead_letter IS NOT NULL AND j.queue = 'q' ORDER BY j.id DESC LIMIT 100
        """,
        "jobs_dead_letters",
    ),
}


@pytest.mark.parametrize("name", DEAD_LETTERS)
def test_dead_letters_are_found_among_themselves(name: str, migrated: str) -> None:
    """Neither retention nor a list reads the one kind of settled job to find the other."""
    statement, index = DEAD_LETTERS[name]
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args, state, finalized_at, dead_letter)"
            " SELECT 'k', 'q', '{}', 'failed', now() - make_interval(secs => n),"
            "        CASE WHEN n % 10 = 0 THEN 'rescued' END FROM generate_series(1, 3000) AS n"
        )
        connection.execute("ANALYZE awa.jobs")
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        plan = "\n".join(r[0] for r in connection.execute(f"EXPLAIN {statement}".encode()))
    assert f"using {index}" in plan, plan
    assert "Sort" not in plan, plan


def pages_of_jobs(connection: psycopg.Connection[Any]) -> int:
    """Pages of the table and its indexes that have been read so far."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_stat_clear_snapshot()")
    found = connection.execute(
        "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int"
        " FROM pg_statio_user_tables WHERE schemaname = 'awa' AND relname = 'jobs'"
    ).fetchone()
    assert found is not None
    return int(found[0])


def test_a_backlog_costs_no_more_however_long_it_is(migrated: str) -> None:
    """A gauge is read every few seconds: it counts so many and no more."""
    with psycopg.connect(migrated, autocommit=True) as connection:

        def insert(jobs: int, run_at: str, priority: int) -> None:
            connection.execute(
                "INSERT INTO awa.jobs (kind, queue, args, priority, run_at)"
                " SELECT 'k', 'q', '{}', %s, now() + %s::interval FROM generate_series(1, %s)",
                [priority, run_at, jobs],
            )

        def ask() -> tuple[int, int]:
            before = pages_of_jobs(connection)
            row = connection.execute("SELECT due FROM awa.backlogs('{q}', 100)").fetchone()
            assert row is not None
            return row[0], pages_of_jobs(connection) - before

        insert(200, "-1 hour", 1)
        insert(200, "1 hour", 2)
        few, cost_of_few = ask()
        insert(20_000, "-1 hour", 1)
        insert(20_000, "1 hour", 2)
        many, cost_of_many = ask()
    assert few == many == 100
    assert cost_of_many < cost_of_few + 150, (cost_of_few, cost_of_many)


async def test_a_million_jobs_of_an_unknown_kind_are_one_step(migrated: str) -> None:
    """The short form: pages read by a claim do not grow with what is at the head of the queue."""
    with psycopg.connect(migrated, autocommit=True) as connection:
        row = connection.execute("SELECT awa.register('w', 3600)").fetchone()
        assert row is not None
        worker = row[0]

        def pages_of_a_claim() -> int:
            before = pages_of_jobs(connection)
            connection.execute(
                "SELECT count(*) FROM awa.claim(%s, '{q}', '{10}', '{0}', '{60}', '{known}', '{NULL}')",
                [worker],
            )
            return pages_of_jobs(connection) - before

        def insert(kind: str, jobs: int) -> None:
            connection.execute(
                "INSERT INTO awa.jobs (kind, queue, args, priority)"
                " SELECT %s, 'q', '{}', 1 FROM generate_series(1, %s)",
                [kind, jobs],
            )

        insert("a stranger", 10)
        insert("known", 10)
        few = pages_of_a_claim()
        insert("a stranger", 50_000)
        insert("known", 10)
        many = pages_of_a_claim()
    assert many < few + 100, (few, many)


@pytest.mark.parametrize("database", ["canonical", "segmented"])
@pytest.mark.parametrize(
    "listing",
    [
        "awa.list_jobs(NULL, NULL, NULL, NULL, NULL, 30)",
        "awa.list_dead_letters(NULL, NULL, NULL, NULL, NULL, 30)",
    ],
)
def test_a_page_of_jobs_is_read_at_once(
    database: str, listing: str, request: pytest.FixtureRequest
) -> None:
    """A function is planned anew at every call: a page cost a hundred times as much job by job."""
    with psycopg.connect(request.getfixturevalue(database), autocommit=True) as connection:
        for n in range(40):
            awa_trio.enqueue(connection, {"n": n}, kind="k")
        if "dead" in listing:
            connection.execute(
                "INSERT INTO awa.jobs (kind, args, state, finalized_at, dead_letter)"
                " SELECT 'k', '{}', 'failed', now(), 'terminal' FROM generate_series(1, 40)"
            )
        with connection.transaction():
            connection.execute("SET LOCAL track_functions = 'all'")
            rows = connection.execute(f"SELECT id FROM {listing}".encode()).fetchall()
            calls = connection.execute(
                "SELECT calls FROM pg_stat_xact_user_functions WHERE schemaname = 'awa'"
                " AND funcname = 'get_jobs'"
            ).fetchall()
    assert len(rows) == 30
    assert rows == sorted(rows, reverse=True)
    # Segmented looks for rows and for jobs in lanes.
    assert calls in ([(1,)], [(2,)])


def test_every_advisory_lock_is_named() -> None:
    for path in FUNCTIONS:
        body = re.sub(r"--.*", "", path.read_text())
        for argument in re.findall(r"\bpg\w*_advisory\w*\(([^)]*)", body):
            assert re.fullmatch(r"awa\.\w+\(", argument), f"{path.stem}: {argument}"


@pytest.mark.parametrize("database", ["canonical", "segmented"])
def test_a_claim_does_not_call_what_only_names_a_number(
    database: str, request: pytest.FixtureRequest
) -> None:
    """It is put into the plan, of which a session makes one."""
    with psycopg.connect(request.getfixturevalue(database)) as connection:
        connection.execute("SET LOCAL track_functions = 'all'")
        [worker] = connection.execute("SELECT awa.register('w', 3600)").fetchone() or [None]
        for _ in range(5):
            connection.execute(
                "SELECT FROM awa.claim(%s, '{q}', '{10}', '{0}', '{60}', '{k}', '{NULL}')",
                [worker],
            )
        held = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
            " AND ((classid::int8 << 32) | objid::int8) = awa.queues_lock() AND mode = 'ShareLock'"
        ).fetchone()
        calls: dict[str, int] = dict(
            connection.execute(
                "SELECT funcname, calls FROM pg_stat_xact_user_functions WHERE schemaname = 'awa'"
            ).fetchall()
        )
    assert held == (1,)
    assert calls["claim"] == 5
    # Once for a plan of a claim, once for what this test asks above.
    assert calls.get("queues_lock", 0) <= 2


KEYED = {
    "enqueue": "SELECT * FROM awa.enqueue('k', '{}', unique_key => %s, unique_states => NULL)",
    "enqueue_many": (
        "SELECT * FROM awa.enqueue_many('{k}', '{q}', ARRAY['{}'::json], '{2}', '{25}', NULL, NULL,"
        " NULL, ARRAY[%s::bytea], NULL, NULL, NULL, NULL, true)"
    ),
}


@pytest.mark.parametrize("engine", ["canonical", "segmented"])
@pytest.mark.parametrize("statement", KEYED.values(), ids=KEYED)
def test_a_unique_key_without_a_mask_is_refused_and_no_job_is_lost(
    request: pytest.FixtureRequest, engine: str, statement: str
) -> None:
    with psycopg.connect(request.getfixturevalue(engine)) as connection:
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(statement.encode(), [b"k" * 16])

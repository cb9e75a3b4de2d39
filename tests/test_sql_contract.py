"""awa.enqueue as other languages and triggers call it: what docs/reference/sql.md promises."""

from __future__ import annotations

import json
import math
import random
import re
import struct
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import awa_trio as awa
from awa_trio._core.jsontext import canonical, compact
from awa_trio._core.unique import unique_key

from .bridge.test_bridge import producing, stored

DOCS = Path(__file__).parents[1] / "docs" / "reference"


def vectors() -> list[dict[str, Any]]:
    text = (DOCS / "unique-keys.md").read_text()
    [block] = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found: list[dict[str, Any]] = json.loads(block)
    return found


KEY = "SELECT awa.unique_key(%s, %s::json, queue => %s, by_args => %s, by_period => %s)"


def test_keys_computed_in_sql_are_those_of_the_vectors(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        assert len(vectors()) >= 13
        for vector in vectors():
            args = json.dumps(vector["args"], indent=2)  # spelled otherwise than ours
            [key] = connection.execute(
                KEY,
                [
                    vector["kind"],
                    args,
                    vector["queue"] if vector["by_queue"] else None,
                    vector["by_args"],
                    vector["by_period"],
                ],
            ).fetchone() or [b""]
            assert key.hex() == vector["key"], vector["name"]
            [spelled] = connection.execute(
                "SELECT awa.canonical_json(%s::json)", [args]
            ).fetchone() or [""]
            assert spelled == vector["canonical"], vector["name"]


def doubles(seed: int, many: int) -> list[float]:
    """Numbers of every size, and near those where the spelling changes."""
    chance = random.Random(seed)
    found = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(many)]
    found += [
        chance.randrange(-(10**6), 10**6) / 10 ** chance.randrange(12) for _ in range(many)
    ]
    for power in range(-320, 309):
        found += [float(f"{digits}e{power}") for digits in ("1", "9.999999999999999", "1.5")]
    found += [2.0**power for power in range(-1074, 1024)]
    found += [math.nextafter(2.0**power, math.inf) for power in range(-1074, 1023)]
    return [number for number in found if math.isfinite(number)]


def test_numbers_are_spelled_in_sql_as_in_python(migrated: str) -> None:
    numbers = doubles(1, 3000)
    with psycopg.connect(migrated) as connection:
        [spelled] = connection.execute(
            "SELECT awa.canonical_json(%s::json)", [json.dumps(numbers)]
        ).fetchone() or [""]
    wrong = {
        (theirs, ours)
        for theirs, ours in zip(spelled[1:-1].split(","), map(repr, numbers), strict=True)
        if theirs != ours
    }
    assert wrong == set()


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXTS, inside, max_size=4),
    max_leaves=12,
)


def test_any_arguments_are_keyed_in_sql_as_in_python(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:

        @settings(max_examples=150, deadline=None)
        @given(
            st.dictionaries(TEXTS, PLAIN, max_size=5),
            st.booleans(),
            st.booleans(),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        )
        def same(args: Any, by_queue: bool, by_args: bool, by_period: int | None) -> None:
            opts = awa.UniqueOpts(by_queue=by_queue, by_args=by_args, by_period=by_period)
            parameters = ["k🎉", compact(args), "q é" if by_queue else None, by_args, by_period]
            [key] = connection.execute(KEY, parameters).fetchone() or [b""]
            assert key == unique_key("k🎉", "q é", args, opts), canonical(args)

        same()


def test_of_a_key_given_twice_the_last_counts(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        text = ' { "a" : 1 , "b":-0, "a" : [ 2.50, null ] , "c": 1E2 } '
        [spelled] = connection.execute(
            "SELECT awa.canonical_json(%s::json)", [text]
        ).fetchone() or [""]
        assert spelled == canonical(json.loads(text)).decode()
        with pytest.raises(psycopg.errors.NumericValueOutOfRange):
            connection.execute("SELECT awa.canonical_json('1e999')")


# ---- the page: its SQL is run, by a role that may enqueue and no more


def blocks() -> list[str]:
    text = (DOCS / "sql.md").read_text()
    return re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("database", ["migrated", "segmented"])
def test_the_pages_sql_does_what_it_says(request: pytest.FixtureRequest, database: str) -> None:
    dsn: str = request.getfixturevalue(database)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE TABLE orders (id bigint PRIMARY KEY, email text NOT NULL)")
        with producing(dsn) as producer:
            owner.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
            owner.execute("GRANT SELECT, INSERT, UPDATE, TRIGGER ON orders TO PUBLIC")
            with psycopg.connect(producer, autocommit=True) as connection:
                for block in blocks():
                    connection.execute(block.encode())
                # The trigger of the page: the order and its job, or neither.
                connection.execute("INSERT INTO orders VALUES (70, 'a@example.com')")
                with pytest.raises(ZeroDivisionError), connection.transaction():
                    connection.execute("INSERT INTO orders VALUES (71, 'b@example.com')")
                    raise ZeroDivisionError
                connection.execute(
                    "INSERT INTO orders SELECT n, 'c' FROM generate_series(80, 82) n"
                )
            owner.execute("DROP TABLE orders")
    jobs = stored(dsn)[-4:]
    assert [job.args_json["order_id"] for job in jobs] == [70, 80, 81, 82]
    assert {job.kind for job in jobs} == {"send_receipt"}
    opts = awa.UniqueOpts()
    for job in jobs:
        assert job.unique_key == unique_key(job.kind, job.queue, job.args_json, opts)


def test_its_table_of_parameters_is_that_of_the_function(migrated: str) -> None:
    page = (DOCS / "sql.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|([^|]*)\|", page, re.MULTILINE)
    with psycopg.connect(migrated) as connection:
        [arguments] = connection.execute(
            "SELECT pg_get_function_arguments('awa.enqueue'::regproc)"
        ).fetchone() or [""]
    theirs = []
    for argument in arguments.split(", "):
        declared, _, default = argument.partition(" DEFAULT ")
        name, _, type_ = declared.partition(" ")
        theirs.append((name, type_, default.split("::")[0].strip("'")))
    ours = [(name, type_, default.strip(" `")) for name, type_, default in rows]
    assert [(n, t, d.replace("NULL", "")) for n, t, d in theirs] == ours


#: What the page says is refused, and with which SQLSTATE.
REFUSED = [
    ("''", "'{}'", "", "23514"),
    ("repeat('k', 201)", "'{}'", "", "23514"),
    ("'k'", "'{'", "", "22P02"),
    ("NULL", "'{}'", "", "23502"),
    ("'k'", "NULL", "", "23502"),
    ("'k'", "'{}'", "priority => 5", "23514"),
    ("'k'", "'{}'", "max_attempts => 0", "23514"),
    ("'k'", "'{}'", "metadata => '[]'", "23514"),
    ("'k'", "'{}'", "tags => array_fill('t'::text, ARRAY[21])", "23514"),
    ("'k'", "'{}'", "run_at => '-infinity'", "23514"),
    ("'k'", "'{}'", "unique_key => '\\x00'", "23514"),
    ("'k'", "'{}'", "deadline => -1", "23514"),
    ("'k'", "'{}'", "ordering_key => ''", "23514"),
]


@pytest.mark.parametrize("database", ["migrated", "segmented"])
def test_what_is_refused_has_the_sqlstate_that_the_page_says(
    request: pytest.FixtureRequest, database: str
) -> None:
    page = (DOCS / "sql.md").read_text()
    with psycopg.connect(request.getfixturevalue(database), autocommit=True) as connection:
        for kind, args, more, state in REFUSED:
            assert f"`{state}`" in page
            call = f"SELECT awa.enqueue({kind}, {args}{', ' + more if more else ''})"
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(call.encode())
            assert caught.value.sqlstate == state, call

"""No function reads a column where its author meant a parameter of the same name.

Under ``#variable_conflict use_column`` PostgreSQL reads the column, and tells nobody: ``kinds`` in a
query of ``awa.workers`` is what each worker runs, whatever the function was called with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from awa_trio._app.schema import Engine, schema

#: A parameter of a function that stands as what comes first in a FROM, where no column is known yet
#: and no query is around it.
FIRST = "is unnested first of all, where there is no column yet"

#: Such names that stand alone in a statement which names such a table, and why they may.
MEANT = {
    "declare_queues": ({"settings"}, FIRST),
    "insert_jobs": (
        {"args", "max_attempts", "metadata", "run_at", "tags", "unique_states"},
        FIRST,
    ),
    "insert_rows": (
        {"args", "max_attempts", "metadata", "run_at", "tags", "unique_states"},
        FIRST,
    ),
    "job_facts": ({"job_id"}, "is looked up first of all; u.job_id is the column"),
    "settle": ({"progress"}, FIRST),
}


@attrs.frozen
class Function:
    """A function of ours, as its file has it."""

    name: str
    own: frozenset[str]
    """The names of its parameters and variables, but for the columns that it returns."""
    body: str = attrs.field(repr=False)

    @classmethod
    def read(cls, text: str) -> Function:
        text = re.sub(r"--.*", "", text)
        head = re.search(
            r"FUNCTION awa\.(\w+)\s*\((.*?)\)\s*(?:RETURNS|LANGUAGE)", text, re.DOTALL
        )
        assert head is not None, text
        body = text.partition("$$")[2]
        declared = re.search(r"\bDECLARE\b(.*?)\bBEGIN\b", body, re.DOTALL)
        lines = head[2].split(",") + (declared[1].split(";") if declared else [])
        words = [re.sub(r"^\s*(IN|OUT|INOUT)\s", "", line).split() for line in lines]
        return cls(head[1], frozenset(of[0] for of in words if of), body)


def columns_of(ddl: str) -> dict[str, set[str]]:
    """The columns of each table that migrations make."""
    found: dict[str, set[str]] = {}
    made = r"CREATE (?:UNLOGGED )?TABLE awa\.(\w+) \((.*?)\n\)"
    for table, inside in re.findall(made, ddl, re.DOTALL):
        found[table] = set(re.findall(r"^    ([a-z_]+)\s+\S", inside, re.MULTILINE))
    for table, inside in re.findall(r"ALTER TABLE awa\.(\w+)(.*?);", ddl, re.DOTALL):
        found[table] |= set(re.findall(r"ADD COLUMN (\w+)", inside))
    return found


#: Where a name can only be a column's, or a variable's, or nobody's.
_UNMISTAKABLE = re.compile(
    r"INSERT INTO awa\.\w+(?:\s+AS \w+)?\s*\([^()]*\)"
    r"|\bAS \w+\s*\([^()]*\)"
    r"|\bAS \w+"
    r"|ON CONFLICT\s*\([^()]*\)"
    r"|(?:\bSET|,)\s+\w+ ="
    r"|\w+ :="
    r"|'(?:[^']|'')*'"
)


def hidden(function: Function, columns: Mapping[str, set[str]]) -> Iterator[str]:
    """Names of a function's own that stand alone in a statement one of whose tables has them, too."""
    for statement in re.split(r";|\bLOOP\b", function.body):
        named = re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+awa\.(\w+)\b", statement)
        there = set().union(*[columns.get(table, set()) for table in named])
        rest = _UNMISTAKABLE.sub(" ", statement)
        for name in function.own & there:
            if re.search(rf"(?<![.\w]){name}\b(?!\s*[.(])", rest):
                yield name


def functions_of(engine: Engine) -> list[Function]:
    return [
        Function.read(text)
        for text in schema(engine).functions
        if "#variable_conflict use_column" in text
    ]


def tables_of(engine: Engine) -> dict[str, set[str]]:
    known = schema(engine)
    return columns_of("\n".join(one.sql for one in (*known.migrations, *known.own_migrations)))


def test_no_column_is_read_where_a_parameter_is_meant() -> None:
    found: dict[str, set[str]] = {}
    for engine in Engine:
        columns, functions = tables_of(engine), functions_of(engine)
        assert {"id", "kind", "limit_key", "callback_until"} <= columns["jobs"]
        assert "kinds" in columns["workers"]
        assert len(functions) > 30
        for one in functions:
            found.setdefault(one.name, set()).update(hidden(one, columns))
    assert {name: names for name, names in found.items() if names} == {
        name: names for name, (names, _) in MEANT.items()
    }


def test_what_this_looks_for_is_found() -> None:
    """It was in awa.rescue, which asked whether each worker's own kinds were its own."""
    text = """
CREATE OR REPLACE FUNCTION awa.rescue(most int, kinds text[], OUT lost bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known text[] := kinds;
    beat_at timestamptz;
BEGIN
    SELECT j.id FROM awa.jobs AS j JOIN awa.workers AS w ON w.id = j.worker_id
     WHERE j.kind = ANY (%s) LIMIT most;
    UPDATE awa.workers AS w SET beat_at = %s;
END
$$;"""
    columns = tables_of(Engine.CANONICAL)
    for one, other, found in (
        ("kinds", "rescue.beat_at", {"kinds"}),
        ("known", "beat_at", {"beat_at"}),
        ("rescue.kinds", "clock_timestamp()", set()),
    ):
        assert set(hidden(Function.read(text % (one, other)), columns)) == found

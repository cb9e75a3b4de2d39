"""No SQL is made of strings, but where it says here what they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[2] / "awa_trio"

#: What sends its first argument to the database.
SENDS = {"execute", "executemany", "stream", "copy", "send_query", "exec_", "_rows", "_value"}

#: Where that is not a constant, and what it is. A name of a module's own, in capitals, is one.
STATEMENTS = {
    "_app/blocking.py:BlockingTransaction.execute.run": "the user's own statement",
    "_app/bridging.py:_django.run": "one of two constants, places spelled: `insertion_in_texts`",
    "_app/bridging.py:_on_sqlalchemy": "likewise",
    "_app/joining.py:enqueue_on": "one of two constants, and its parameters: `insertion`",
    "_app/joining.py:enqueue_many_prepared": "likewise",
    "_pg/listener.py:Listener._listen": "LISTEN takes no parameters: sql.Identifier",
    "_pg/migrate.py:Schema.status": "the name of a schema, ours: `schema`",
    "_pg/migrate.py:Schema.engine_of": "likewise",
    "_pg/migrate.py:Schema.migrate": "the files of migrations and functions; a number of ours",
    "_pg/server.py:DevServer.create_database": "CREATE takes no parameters: sql.Identifier",
    "_pg/server.py:DevServer.drop_database": "likewise",
    "_store/sql/calls.py:Calls._rows": "what its callers give it, who are listed themselves",
    "_store/sql/calls.py:Calls._value": "likewise",
    "_store/sql/producing.py:SqlProducing.enqueue": "one of two constants, and its parameters: `insertion`",
    "testing/fixtures.py:create_database": "CREATE takes no parameters: sql.Identifier",
    "testing/fixtures.py:drop_database": "likewise",
    "testing/fixtures.py:awa_template": "the files of migrations and functions",
    "demo/_run.py:_all": "what its callers give it, all of them constants",
}

#: Where a string that looks like SQL is put together, and of what.
MADE = {
    "_pg/migrate.py:Schema._statements": "the name of a schema, ours, and a number of ours",
    "_pg/migrate.py:Schema.engine_of": "likewise",
    "_pg/migrate.py:Schema.migrate": "likewise",
    "_store/sql/calls.py:call": "the name of a function, ours, and numbers",
    "_store/texts.py:_pieces": "the names of a function and of its parameters, ours, and types",
    "_pg/migrate.py:Schema.varied": "a pattern, which is looked for in files of ours",
    "_app/schema.py:read_status": "a message",
    "_runtime/worker.py:_ending": "a message",
}

_SQL = re.compile(
    r"\b(SELECT\s|INSERT INTO|UPDATE \w|DELETE FROM|CREATE (OR|TABLE|SCHEMA|ROLE|DATABASE)|DROP \w"
    r"|ALTER \w|GRANT \w|LISTEN\b|NOTIFY\b|TRUNCATE|SET LOCAL|LOCK TABLE|COPY \w)"
)


def functions(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a file, with the name of the function it is in."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = f"{name}.{child.name}" if name else child.name
            yield inner, child
            yield from visit(child, inner)

    yield from visit(ast.parse(path.read_text()), "")


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, (ast.Name, ast.Attribute))
        and (node.id if isinstance(node, ast.Name) else node.attr).lstrip("_").isupper()
    )


def sent(path: Path) -> Iterator[str]:
    """The functions in which something that is no constant is sent to the database."""
    for name, node in functions(path):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in SENDS
            and node.args
            and not is_constant(node.args[0])
        ):
            yield name


def made(path: Path) -> Iterator[str]:
    """The functions in which SQL is put together: by f"", +, % or format()."""
    for name, node in functions(path):
        parts: list[ast.AST] = []
        if isinstance(node, ast.JoinedStr):
            parts = list(node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
            parts = [node.left, node.right]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("format", "replace", "join")
            and not (
                isinstance(node.func.value, ast.Call) and "SQL" in ast.dump(node.func.value)
            )
        ):
            parts = [node.func.value, *node.args]
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)):
                value = part.value if isinstance(part.value, str) else part.value.decode()
                if _SQL.search(value):
                    yield name


def found(what: object) -> set[str]:
    assert callable(what)
    return {
        f"{path.relative_to(ROOT)}:{name}"
        for path in ROOT.rglob("*.py")
        if "memory"
        not in path.relative_to(ROOT).parts  # Its methods have the names; it has no database.
        for name in what(path)
    }


def test_only_constants_are_sent_to_the_database() -> None:
    assert found(sent) == set(STATEMENTS)


def test_sql_is_made_of_names_of_ours_only() -> None:
    assert found(made) == set(MADE)


def test_what_this_looks_for_is_found(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "async def a(c, x):\n    await c.execute('SELECT ' + x)\n"
        "async def b(c, x):\n    await c.execute(f'SELECT {x}')\n"
        "async def d(c, x):\n    await c.execute('DELETE FROM %s' % x)\n"
        "class E:\n    def f(self, c, x):\n        c.execute('INSERT INTO {}'.format(x))\n"
        "def g(c, x):\n    c.execute('SELECT %s', [x])\n"
    )
    assert sorted(sent(file)) == ["E.f", "a", "b", "d"]
    assert sorted(made(file)) == ["E.f", "a", "b", "d"]


def test_functions_put_nothing_but_numbers_of_segments_into_statements() -> None:
    """EXECUTE in PL/pgSQL, where a function must name a table by its number."""
    folder = files("awa_trio").joinpath("_store")
    executes: dict[str, list[str]] = {}
    for engine in ("canonical", "segmented"):
        for file in folder.joinpath(engine, "functions").iterdir():
            text = re.sub(r"--.*$", "", file.read_text("utf-8"), flags=re.MULTILINE)
            for statement in re.findall(r"\bEXECUTE\b(?! FUNCTION)[^;]*;", text):
                executes.setdefault(file.name, []).append(statement)
    assert set(executes) == {"turn.sql", "truncate_segment.sql"}
    for statements in executes.values():
        for statement in statements:
            assert re.search(r"format\('(LOCK TABLE|TRUNCATE) ", statement)
            # A smallint, whatever it is: a column of awa.segments, or a parameter of that type.
            assert re.search(r", (place\.segment|wanted)\)", statement)
    # Both of them are of that type.
    text = folder.joinpath("segmented", "functions", "truncate_segment.sql").read_text("utf-8")
    assert "awa.truncate_segment(wanted smallint)" in text

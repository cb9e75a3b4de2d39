"""Who may import whom. This table is the architecture; docs/explanation/layers.md prints it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "awa_trio"

#: Each layer, and everything that it may import of what is watched.
LAYERS: dict[str, set[str]] = {
    "_core": {"attrs", "cattrs", "cronsim"},
    "_seam": {"_core", "attrs"},
    "_pg": {
        "_core",
        "attrs",
        "anyio",
        "trio",
        "psycopg",
        "asyncio",
        "threading",
        "time",
        "socket",
        "random",
    },
    "_store": {"_core", "_seam", "_pg", "attrs", "anyio", "psycopg"},
    "_runtime": {
        "_core",
        "_seam",
        "attrs",
        "trio",
        "threading",
        "time",
        "socket",
        "random",
        "secrets",
        "asyncio",
        "trio_asyncio",
    },
    "_app": {
        "_core",
        "_seam",
        "_pg",
        "_store",
        "_runtime",
        "attrs",
        "anyio",
        "trio",
        "psycopg",
        "sniffio",
        "random",
        "threading",
    },
    # Surfaces: public names only, but that testing may look inside.
    "pg": {"_pg"},
    "aio": {"_runtime"},
    "bridge": {"_app"},
    "events": {"_core"},
    "telemetry": {"events", "attrs", "time", "opentelemetry"},
    "testing": {
        "_core",
        "_seam",
        "_store",
        "_runtime",
        "_app",
        "pg",
        "anyio",
        "attrs",
        "trio",
        "psycopg",
        "random",
        "pytest",
    },
    "callbacks": {"anyio", "time"},
    "health": {"attrs", "trio", "socket", "h11"},
    "web": {
        "attrs",
        "anyio",
        "trio",
        "socket",
        "secrets",
        "time",
        "starlette",
        "jinja2",
    },
    "cli": {
        "pg",
        "callbacks",
        "demo",
        "health",
        "telemetry",
        "attrs",
        "trio",
        "cyclopts",
        "rich",
        "psycopg",
    },
    "demo": {"pg", "attrs", "trio", "random"},
}

#: Of the standard library only chance, clocks and what runs are watched: in the core
#: they come in as arguments. `threading.Lock` is all a buffer needs to be whole
#: when a thread stages, or reports progress, while the loop seals.
WATCHED = {
    *LAYERS, "awa_trio", "attrs", "cattrs", "trio", "psycopg", "anyio", "trio_asyncio", "sniffio", "cronsim",
    "cyclopts", "rich", "starlette", "jinja2", "pytest", "h11", "opentelemetry", "asyncio", "random", "secrets", "socket", "threading", "time",
}  # fmt: skip
EXCEPTIONS = {("_core/staging.py", "threading"), ("_core/progress.py", "threading")}


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports: a layer's name if it is ours, else a package's."""
    depth = len(path.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _named(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield from _named(node.module)
        elif isinstance(node, ast.ImportFrom) and node.level >= depth:
            if node.module is None:
                yield from (alias.name for alias in node.names)
            else:
                yield node.module.split(".")[0]


def _named(module: str) -> Iterator[str]:
    parts = module.split(".")
    if parts[0] == "awa_trio" and len(parts) > 1:
        yield parts[1]
    else:
        yield parts[0]


FILES = [(layer, path) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


@pytest.mark.parametrize(
    ("layer", "path"), FILES, ids=[str(p.relative_to(ROOT)) for _, p in FILES]
)
def test_a_layer_imports_only_what_it_may(layer: str, path: Path) -> None:
    for name in imports(path):
        if name in WATCHED and (str(path.relative_to(ROOT)), name) not in EXCEPTIONS:
            assert name in LAYERS[layer] | {layer}, f"{path.name} imports {name}"


def test_every_package_is_a_layer() -> None:
    packages = {
        path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert packages == set(LAYERS)


def test_the_table_is_not_wider_than_need_be() -> None:
    for layer, allowed in LAYERS.items():
        used = {name for path in (ROOT / layer).rglob("*.py") for name in imports(path)}
        assert allowed <= used | {"attrs"}, f"{layer} may import {allowed - used}, and does not"


def test_psycopgs_private_names_are_used_in_one_place() -> None:
    """They move inside a patch series; `selfcheck` knows them all."""
    offenders = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("psycopg._"):
                offenders.append(str(path.relative_to(ROOT)))
    assert set(offenders) <= {"_pg/connection_seam.py", "_pg/selfcheck.py"}


#: What neither enqueues nor works: programs that do only that must not pay for it.
SELDOM = {
    *("awa_trio._app.blocking", "awa_trio._app.maintenance", "awa_trio._app.rights"),
    *("awa_trio._app.checking", "awa_trio._core.checking", "awa_trio._store.memory"),
    *(f"awa_trio.{surface}" for surface in LAYERS if not surface.startswith("_")),
    *("anyio.from_thread", "cronsim", "difflib", "pytest", "trio.testing", "unittest"),
    *("cyclopts", "rich", "jinja2", "starlette", "h11", "hypercorn", "opentelemetry"),
    *("asyncpg", "django", "psycopg_pool", "sqlalchemy", "trio_asyncio"),
}


def test_importing_awa_trio_imports_what_enqueues_and_works_and_no_more() -> None:
    # What these bring is theirs: some releases of anyio bring anyio.from_thread.
    program = (
        "import anyio, attrs, cattrs, psycopg, sys, trio; theirs = {*sys.modules}; import awa_trio;"
        "print(*({*sys.modules} - theirs))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert {"awa_trio._app.joining", "awa_trio._runtime.worker"} <= imported
    assert not imported & SELDOM

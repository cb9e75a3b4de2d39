"""The plain computation: what the files of the standard library import, and how large that is."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from functools import cache
from pathlib import Path


@cache
def root() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def source_files() -> list[str]:
    """The library's source files, without its tests, as paths below `root`."""
    return sorted(
        str(path.relative_to(root()))
        for path in root().rglob("*.py")
        if not {"site-packages", "test", "tests", "idle_test"}
        & set(path.relative_to(root()).parts)
    )


def imported_modules(file: str) -> list[str]:
    """The modules that a source file imports, by name; none if it is not Python of this version."""
    source = (root() / file).read_bytes()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return sorted(found)


def module_size(name: str) -> int:
    """The bytes of a module's source in the library; 0 if it has none there."""
    below = root().joinpath(*name.split("."))
    for path in (below.with_suffix(".py"), below / "__init__.py"):
        if path.is_file():
            return path.stat().st_size
    return 0


def plain_result() -> dict[str, int]:
    """Every module that any file imports, with its size: what the jobs must find too."""
    names = {name for file in source_files() for name in imported_modules(file)}
    return {name: module_size(name) for name in sorted(names)}

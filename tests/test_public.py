"""Every public name is typed, documented, and says where it is public."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

import awa_trio
import awa_trio.aio
import awa_trio.bridge
import awa_trio.callbacks
import awa_trio.events
import awa_trio.health
import awa_trio.pg
import awa_trio.telemetry
import awa_trio.testing
import awa_trio.testing.chaos

MODULES = [
    awa_trio,
    awa_trio.aio,
    awa_trio.bridge,
    awa_trio.callbacks,
    awa_trio.events,
    awa_trio.health,
    awa_trio.pg,
    awa_trio.telemetry,
    awa_trio.testing,
    awa_trio.testing.chaos,
]
NAMES = [(m, n) for m in MODULES for n in sorted(dir(m)) if not n.startswith("_") and not isinstance(getattr(m, n), ModuleType)]  # fmt: skip
IDS = [f"{m.__name__}.{n}" for m, n in NAMES]


def members(value: Any) -> list[tuple[str, Any]]:
    """What users see of a class: its public methods and properties, our own."""
    return [
        (name, member)
        for cls in value.__mro__
        if cls.__module__.startswith("awa_trio")
        for name, member in vars(cls).items()
        if not name.startswith("_")
        and (
            inspect.isroutine(member)
            or isinstance(member, (property, classmethod, staticmethod))
        )
    ]


def test_what_is_imported_later_is_what_type_checkers_see() -> None:
    assert awa_trio.__file__ is not None
    [later] = [
        node for node in ast.parse(Path(awa_trio.__file__).read_text()).body
        if isinstance(node, ast.If)
    ]  # fmt: skip
    seen: dict[str, tuple[str, ...]] = {}
    for statement in later.body:
        assert isinstance(statement, ast.ImportFrom)
        place = f".{statement.module}"
        seen[place] = (*seen.get(place, ()), *(alias.name for alias in statement.names))
    assert seen == awa_trio._SELDOM


def test_what_is_imported_later_is_found_and_nothing_else_is() -> None:
    """In a process of its own: this one has it all."""
    program = (
        "import awa_trio, sys\n"
        "before = set(vars(awa_trio))\n"
        "assert 'BlockingClient' in set(dir(awa_trio)) - before\n"
        "for none in ('BlockingClients', '_app.blocking', '__path_'):\n"
        "    assert not hasattr(awa_trio, none)\n"
        "assert 'awa_trio._app.blocking' not in sys.modules\n"
        "from awa_trio import check\n"
        "assert awa_trio.Finding.__module__ == awa_trio.BlockingJobs.__module__ == 'awa_trio'\n"
        "assert awa_trio.check is check\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=IDS)
def test_it_says_where_it_is_public(module: ModuleType, name: str) -> None:
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == module.__name__


@pytest.mark.parametrize(("module", "name"), NAMES, ids=IDS)
def test_it_is_documented(module: ModuleType, name: str) -> None:
    value = getattr(module, name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    assert value.__doc__, f"{name} has no docstring"
    assert len(value.__doc__.strip().splitlines()[0]) > 15
    if inspect.isclass(value):
        for member_name, member in members(value):
            target = (
                member.fget
                if isinstance(member, property)
                else getattr(member, "__func__", member)
            )
            assert inspect.getdoc(target), f"{name}.{member_name} has no docstring"


@pytest.mark.parametrize(("module", "name"), NAMES, ids=IDS)
def test_it_is_typed(module: ModuleType, name: str) -> None:
    value = getattr(module, name)
    functions = []
    if inspect.isfunction(value):
        functions.append((name, value))
    elif inspect.isclass(value):
        for member_name, member in members(value):
            target = (
                member.fget
                if isinstance(member, property)
                else getattr(member, "__func__", member)
            )
            target = inspect.unwrap(cast("Any", target))
            if inspect.isfunction(target):
                functions.append((f"{name}.{member_name}", target))
    for where, function in functions:
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, where
        for parameter in list(signature.parameters.values()):
            if parameter.name not in ("self", "cls"):
                assert parameter.annotation is not inspect.Parameter.empty, (
                    f"{where}({parameter.name})"
                )


@pytest.mark.parametrize(("module", "name"), NAMES, ids=IDS)
def test_nothing_asks_for_a_timeout(module: ModuleType, name: str) -> None:
    """Callers use scopes; only durations that are stored are numbers (Pool's is its setting, a
    callback's is in its row)."""
    value = getattr(module, name)
    if inspect.isfunction(value):
        assert "timeout" not in inspect.signature(value).parameters
    elif inspect.isclass(value) and not issubclass(value, BaseException):
        for member_name, member in members(value):
            target = inspect.unwrap(getattr(member, "__func__", member))
            if (value.__name__, member_name) in STORED_TIMEOUTS:
                continue
            if inspect.isfunction(target) and not inherited_from_psycopg(value, member_name):
                assert "timeout" not in inspect.signature(target).parameters, member_name


STORED_TIMEOUTS = {
    ("Job", "register_callback"),
    ("HandlerJob", "register_callback"),
    ("BlockingCallbacks", "heartbeat"),
    ("Callbacks", "heartbeat"),
}


def inherited_from_psycopg(cls: type, name: str) -> bool:
    return any(
        name in vars(base) for base in cls.__mro__ if base.__module__.startswith("psycopg")
    )


def test_every_error_tells_what_to_do() -> None:
    for _, name in NAMES:
        value = getattr(awa_trio, name, None)
        if inspect.isclass(value) and issubclass(value, Exception):
            assert value.__doc__, name


def test_fields_of_values_are_documented() -> None:
    """A string under each field that its name does not explain by itself."""
    for path in (Path(awa_trio.__file__).parent).rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ClassDef)
                and ast.get_docstring(node) is None
                and not node.name.startswith("_")
            ):
                raise AssertionError(f"{path.name}: class {node.name} has no docstring")


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(awa_trio.__file__).parent / "py.typed").exists()


def test_every_module_can_be_imported_by_itself() -> None:
    for found in pkgutil.walk_packages(awa_trio.__path__, "awa_trio."):
        if ".__main__" not in found.name:
            importlib.import_module(found.name)

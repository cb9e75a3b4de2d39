"""The reference: one page for each public module, made from what ``help`` shows.

Names are those that a public module defines, or re-exports as ``X as X``. Classes and
functions are looked at where they run, so that a signature is the one that holds; fields,
and the strings under them, only the source has.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

import awa_trio

from .docstrings import markdown

#: Programs, which the command line's own page describes.
PROGRAMS = {"awa_trio.cli", "awa_trio.demo"}


def public_modules() -> list[str]:
    """Return every module that users may import: no part of its name begins with ``_``."""
    found = [awa_trio.__name__]
    for module in pkgutil.walk_packages(awa_trio.__path__, "awa_trio."):
        inner = module.name.split(".")[1:]
        program = ".".join(module.name.split(".")[:2]) in PROGRAMS
        if not program and not any(part.startswith("_") for part in inner):
            found.append(module.name)
    return sorted(found)


@attrs.frozen(slots=False)
class Reference:
    """The public names of all public modules, and the pages that describe them."""

    modules: tuple[str, ...] = attrs.field(factory=lambda: tuple(public_modules()))
    unresolved: list[str] = attrs.field(factory=list)
    """References of docstrings that lead to no public name, as ``where: name``."""

    @cached_property
    def names(self) -> dict[str, dict[str, Any]]:
        """The public names of each module, in its order."""
        return {name: dict(_public_names(name)) for name in self.modules}

    @cached_property
    def anchors(self) -> dict[str, str]:
        """The module of every public name and member, each by its whole name."""
        found = {name: name for name in self.modules}
        for module, names in self.names.items():
            for name, value in names.items():
                found[f"{module}.{name}"] = module
                if inspect.isclass(value):
                    members = [member for member, _ in methods(value)]
                    members += [field.name for field in fields(value)]
                    found |= {f"{module}.{name}.{member}": module for member in members}
        return found

    def resolve(self, reference: str, module: str, owner: str = "") -> str | None:
        """Return the whole name that a docstring means, or None."""
        tries = [f"{module}.{owner}.{reference}"] if owner else []
        tries += [f"{module}.{reference}", reference, f"awa_trio.{reference}"]
        tries += [f"{other}.{reference}" for other in self.modules]
        return next((name for name in tries if name in self.anchors), None)

    def page(self, module: str) -> str:
        """Return the page of a module, as Markdown."""
        errors: list[tuple[str, Any]] = []
        others: list[tuple[str, Any]] = []
        for name, value in self.names[module].items():
            is_error = inspect.isclass(value) and issubclass(value, BaseException)
            (errors if is_error else others).append((name, value))
        lines = [f"# {module} {{ #{module} }}", self._doc(_docstring_of(module), module)]
        for title, group in (("", others), ("Errors", errors)):
            if title and group and others:
                lines.append(f"## {title}")
            for name, value in sorted(group, key=lambda item: item[0].lower()):
                lines += self._entry(module, name, value, level=3 if title and others else 2)
        return "\n\n".join(filter(None, lines)) + "\n"

    def _entry(self, module: str, name: str, value: Any, level: int) -> Iterator[str]:
        yield f"{'#' * level} {name} {{ #{module}.{name} }}"
        if inspect.isclass(value):
            yield from self._class(module, name, value, level)
        elif inspect.isroutine(value):
            yield _code(_signature(name, value))
            yield self._doc(inspect.getdoc(value), module)
        else:
            found = _definition(module, name)
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
                yield self._doc(ast.get_docstring(found), module)
            else:
                yield _code(f"{name} = {value!r}".replace(" | ", "\n    | "))

    def _class(self, module: str, name: str, cls: type, level: int) -> Iterator[str]:
        yield _code(_class_line(name, cls))
        yield self._doc(inspect.getdoc(cls), module, name)
        for field in fields(cls):
            anchor = f"{{ #{module}.{name}.{field.name} }}"
            yield f"{'#' * (level + 1)} {name}.{field.name} {anchor}"
            yield _code(field.line)
            yield self._doc(field.doc, module, name)
        for member, target in methods(cls):
            yield f"{'#' * (level + 1)} {name}.{member} {{ #{module}.{name}.{member} }}"
            yield _code(_signature(member, target))
            yield self._doc(inspect.getdoc(_getter(target) or target), module, name)

    def _doc(self, docstring: str | None, module: str, owner: str = "") -> str:
        return markdown(docstring or "", self._linker(module, owner))

    def _linker(self, module: str, owner: str) -> Callable[[str], str | None]:
        def link(reference: str) -> str | None:
            name = self.resolve(reference, module, owner)
            if name is None:
                self.unresolved.append(f"{module}.{owner}: {reference}".replace(".:", ":"))
                return None
            return f"{self.anchors[name]}.md#{name}"

        return link


# ---- Members ----------------------------------------------------------------


@attrs.frozen
class Field:
    """One annotated name, or one member of an enumeration, of a class."""

    name: str
    line: str
    doc: str | None


def fields(cls: type) -> list[Field]:
    """Return what a class's body declares without ``def``, with the string under each."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        node = _class_node(base) if base.__module__.startswith("awa_trio") else None
        body = node.body if node else []
        for statement, below in zip_longest(body, body[1:]):
            name = _declared(statement, base)
            if name is None or name.startswith("_"):
                continue
            doc = None
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                doc = inspect.cleandoc(str(below.value.value))
            found[name] = Field(name, ast.unparse(statement), doc)
    return list(found.values())


def _declared(statement: ast.stmt, cls: type) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) if name in getattr(cls, "__members__", ()):
            return name
    return None


def methods(cls: type) -> list[tuple[str, Any]]:
    """Return a class's own public methods and properties, each as it may be called."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("awa_trio"):
            continue
        for name, member in vars(base).items():
            target = getattr(member, "__func__", member)
            if not name.startswith("_") and (inspect.isroutine(target) or _getter(target)):
                found[name] = target
    return list(found.items())


def _getter(member: Any) -> Callable[..., Any] | None:
    match member:
        case property(fget=getter):
            return getter
        case cached_property(func=getter):
            return getter
    return None


# ---- Where things are written -----------------------------------------------


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text())


def _file(module: str) -> str:
    return str(importlib.import_module(module).__file__)


def _docstring_of(module: str) -> str | None:
    return ast.get_docstring(_tree(_file(module)))


def _public_names(module: str) -> Iterator[tuple[str, Any]]:
    loaded = importlib.import_module(module)
    for statement in _statements(_file(module)):
        for name in _names_of(statement):
            value = getattr(loaded, name, None)
            if not name.startswith("_") and not isinstance(value, ModuleType):
                yield name, value


def _statements(file: str) -> Iterator[ast.stmt]:
    """Those of a module, and what it shows to type checkers because it imports it later."""
    for statement in _tree(file).body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from statement.body
        else:
            yield statement


def _names_of(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.ImportFrom(names=names):
            yield from (a.asname for a in names if a.asname is not None and a.asname == a.name)
        case (
            ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
        ):
            yield name


def _definition(module: str, name: str) -> ast.stmt | None:
    for statement in _tree(_file(module)).body:
        if getattr(statement, "name", None) == name:
            return statement
    return None


@cache
def _private_home(module: str) -> dict[str, str]:
    """The module that each re-exported name comes from."""
    package = importlib.import_module(module)
    homes: dict[str, str] = {}
    for statement in _statements(str(package.__file__)):
        if isinstance(statement, ast.ImportFrom):
            relative = "." * statement.level + (statement.module or "")
            home = importlib.util.resolve_name(relative, package.__package__)
            homes |= {alias.name: home for alias in statement.names}
    return homes


def _class_node(cls: type) -> ast.ClassDef | None:
    """A published class says that it is of the public module, which re-exports it."""
    module = cls.__module__
    while True:
        found = _definition(module, cls.__name__)
        if isinstance(found, ast.ClassDef):
            return found
        home = _private_home(module).get(cls.__name__)
        if home is None:
            return None
        module = home


# ---- Signatures ---------------------------------------------------------------


def _signature(name: str, target: Any) -> str:
    getter = _getter(target)
    if getter is not None:
        return f"{name}: {_plain(inspect.signature(getter).return_annotation)}"
    # What a decorator made of an async generator is entered, not awaited.
    inner = inspect.unwrap(target)
    word = "async with " if inner is not target and inspect.isasyncgenfunction(inner) else ""
    word = "async def " if inspect.iscoroutinefunction(target) else word or "def "
    return f"{word}{name}{_parameters(inspect.signature(target))}"


def _class_line(name: str, cls: type) -> str:
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    constructed = attrs.has(cls) or "Args:" in (inspect.getdoc(cls) or "")
    if constructed and not issubclass(cls, BaseException):
        signature = inspect.signature(cls).replace(return_annotation=inspect.Signature.empty)
        return f"class {name}{_parameters(signature)}"
    return f"class {name}({', '.join(bases)})" if bases else f"class {name}"


def _parameters(signature: inspect.Signature) -> str:
    """On one line if it fits, else one parameter on each."""
    parts = list(_parts(signature))
    returns = signature.return_annotation
    after = "" if returns is inspect.Signature.empty else f" -> {_plain(returns)}"
    line = f"({', '.join(parts)}){after}"
    if len(line) <= 80 or not parts:
        return line
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){after}"


def _parts(signature: inspect.Signature) -> Iterator[str]:
    """Parameters as they are written, with the marks that say how each is given."""
    before = None
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind
        if before == kind.POSITIONAL_ONLY != kind:
            yield "/"
        if kind == kind.KEYWORD_ONLY and before not in (kind.KEYWORD_ONLY, kind.VAR_POSITIONAL):
            yield "*"
        before = kind
        stars = {kind.VAR_POSITIONAL: "*", kind.VAR_KEYWORD: "**"}.get(kind, "")
        part = f"{stars}{parameter.name}"
        if parameter.annotation is not parameter.empty:
            part += f": {_plain(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            part += f" = {_default(parameter.default)}"
        yield part
    if before == inspect.Parameter.POSITIONAL_ONLY:
        yield "/"


def _plain(annotation: object) -> str:
    """Annotations are strings here, for the most part: as they are written."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("typing.", "").replace("NoneType", "None")


def _default(value: object) -> str:
    return "..." if " at 0x" in repr(value) or value is attrs.NOTHING else repr(value)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"

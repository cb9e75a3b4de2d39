"""Objects with fields: classes, named tuples and typed dicts as plain JSON.

Keys nobody knows are ignored, and a missing field takes its default: during a
deploy, old workers meet new producers, and new workers old jobs.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .jsontext import Misfit
from .shapes import (
    NONE,
    UNBOUNDED,
    Part,
    Scalar,
    Shape,
    Unsupported,
    found,
    shortened,
    step_to,
    unlike,
)


class Field(NamedTuple):
    """A part of a record."""

    name: str
    shape: Shape
    required: bool
    """Whether decoding needs it."""
    always: bool
    """Whether encoding writes it, whatever the value."""


class Record(Shape):
    """A class with fields."""

    json = frozenset({dict})
    # Until its fields are known: whoever looks at it then is one of them.
    depth = UNBOUNDED

    fields: tuple[Field, ...] = ()
    _write: Callable[[Any], dict[str, Any]]
    _read: Callable[[dict[str, Any]], Any]

    def __init__(self, cls: type, name: str) -> None:
        self.name = name
        self.classes = frozenset({cls})
        self._cls = cls

    def complete(
        self,
        fields: Iterable[Field],
        write: Callable[[Any], dict[str, Any]],
        read: Callable[[dict[str, Any]], Any],
    ) -> None:
        """Say what the fields are; the shapes may contain this one."""
        self.fields = tuple(fields)
        self.inner = tuple(field.shape for field in self.fields)
        self.depth = 1 + max((shape.depth for shape in self.inner), default=0)
        self._write = write
        self._read = read

    def dump(self, value: Any) -> Any:
        if type(value) is not self._cls:
            raise unlike(self.name, value)
        return self._write(value)

    def load(self, plain: Any, _: object = None) -> Any:
        if type(plain) is not dict:
            raise found(f"an object for {self.name}", plain)
        return self._read(plain)

    def dump_parts(self, value: Any, /) -> Iterator[Part]:
        if type(value) is self._cls:
            for field in self.fields:
                if hasattr(value, field.name):
                    yield f".{field.name}", getattr(value, field.name), field.shape

    def load_parts(self, plain: Any, /) -> Iterator[Part]:
        if type(plain) is dict:
            for field in self.fields:
                if field.name in plain:
                    yield f".{field.name}", plain[field.name], field.shape
                elif field.required:
                    yield f".{field.name}", None, _MISSING


def _missing(_: Any, __: object = None) -> Any:
    raise Misfit("missing")


_MISSING = Scalar(NONE, NONE, _missing, _missing)


class TypedDict(Record):
    """A dict whose keys are known."""

    def __init__(self, cls: type) -> None:
        super().__init__(dict, cls.__name__)

    def complete_keys(self, fields: Iterable[Field]) -> None:
        """Say what the keys are; the shapes may contain this one."""
        fields = tuple(fields)
        shapes = {field.name: field.shape for field in fields}
        required = frozenset(field.name for field in fields if field.required)

        def write(value: dict[str, Any]) -> dict[str, Any]:
            if not shapes.keys() >= value.keys() >= required:
                unknown = [shortened(key) for key in value if key not in shapes]
                lacking = [shortened(key) for key in shapes if key in required - value.keys()]
                raise Misfit(
                    f"{self.name} has no key {', '.join(unknown)}"
                    if unknown
                    else f"{self.name} needs the key {', '.join(lacking)}"
                )
            return {key: shapes[key].dump(item) for key, item in value.items()}

        def read(plain: dict[str, Any]) -> dict[str, Any]:
            if not plain.keys() >= required:
                raise Misfit("missing keys")
            return {key: shapes[key].load(item) for key, item in plain.items() if key in shapes}

        self.complete(fields, write, read)

    def dump_parts(self, value: Any, /) -> Iterator[Part]:
        if type(value) is dict:
            for field in self.fields:
                if field.name in value:
                    yield step_to(field.name), value[field.name], field.shape


class Records(Shape):
    """Finds out which of several records an object is. A value tells by its class."""

    json = frozenset({dict})

    def __init__(self, records: list[Record]) -> None:
        self.name = " or ".join(record.name for record in records)
        self.inner = tuple(records)
        self._records = records
        self._tag: str | None = None
        self._by_tag: dict[tuple[type, object], Record] = {}
        self._by_mark: dict[str, Record] = {}

    def settle(self) -> None:
        """Decide what tells the records apart, once all their fields are known."""
        by_name = [
            {field.name: field for field in record.fields if field.always}
            for record in self._records
        ]
        for name in by_name[0]:
            tags: list[tuple[tuple[type, object], Record]] = []
            for record, fields in zip(self._records, by_name, strict=True):
                constants = fields[name].shape.constants if name in fields else None
                if not constants:
                    break
                tags += ((constant, record) for constant in constants)
            else:
                if len(dict(tags)) == len(tags):
                    self._tag, self._by_tag = name, dict(tags)
                    return
        every = collections.Counter(
            field.name for record in self._records for field in record.fields
        )
        for record, fields in zip(self._records, by_name, strict=True):
            mark = next((name for name in fields if every[name] == 1), None)
            if mark is None:
                raise Unsupported(
                    f"in a union, {self.name} are all stored as objects, and nothing tells"
                    f" {record.name} apart; give each a field such as kind:"
                    f" Literal[{record.name.lower()!r}] = {record.name.lower()!r}"
                )
            self._by_mark[mark] = record

    def _of(self, plain: dict[str, Any]) -> Record:
        if self._tag is not None:
            if self._tag not in plain:
                raise Misfit(f"{self._tag} is missing, which tells {self.name}")
            tag = plain[self._tag]
            try:
                return self._by_tag[type(tag), tag]
            except (KeyError, TypeError):
                raise Misfit(f"{self._tag} does not tell {self.name}") from None
        fits = [record for mark, record in self._by_mark.items() if mark in plain]
        if len(fits) != 1:
            raise Misfit(f"its fields do not tell {self.name}")
        return fits[0]

    def load(self, plain: Any, _: object = None) -> Any:
        return self._of(plain).load(plain)

    def load_parts(self, plain: Any, /) -> Iterable[Part]:
        try:
            return (("", plain, self._of(plain)),)
        except Misfit:
            return ()

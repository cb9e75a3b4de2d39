"""How values become plain JSON and back: one class here, or in `records`, for each way.

A shape converts as fast as it can, and on anything unexpected just raises. Only
then are its parts asked for, to find out where the trouble is.

Elsewhere: values without parts, `scalars`; classes, `records`; which annotation
gets which shape, `annotations`.
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, get_args

import cattrs

from .jsontext import (
    Misfit,
    canonical,
    check_int,
    check_key,
    check_plain,
    compact,
    name_of,
    read,
)

NONE = type(None)
UNBOUNDED = float("inf")


class Unsupported(Exception):
    """A type that cannot be given back exactly; says what to do, not where it was met."""


Part: TypeAlias = "tuple[str, Any, Shape]"
"""The step to a part of a value, the part, and its shape."""


def reason(error: BaseException) -> str:
    """Say in a few words why something failed."""
    if isinstance(error, Misfit):
        return str(error)
    if isinstance(error, cattrs.BaseValidationError):
        return ", ".join(cattrs.transform_error(error, "$", lambda one, _: reason(one)))
    said = error.args[0] if error.args and isinstance(error.args[0], str) else ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def unlike(expected: str, value: object) -> Misfit:
    """Complain about a value to dump."""
    return Misfit(f"expected {expected}, not {name_of(value)}")


#: How messages call what JSON holds.
JSON_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number with a fraction",
    bool: "true or false",
    NONE: "null",
    list: "an array",
    dict: "an object",
}


def found(expected: str, plain: object) -> Misfit:
    """Complain about what is to be loaded."""
    return Misfit(f"expected {expected}, found {JSON_NAMES.get(type(plain), name_of(plain))}")


def step_to(key: object) -> str:
    """Spell the step from a mapping to one of its values."""
    if isinstance(key, str) and key.isidentifier() and len(key) <= 40:
        return f".{key}"
    return f"[{shortened(key)}]"


def shortened(key: object) -> str:
    """Spell a key, or the beginning of a long one."""
    text = ascii(key)
    return text if len(text) <= 40 else f"{text[:37]}..."


def spell(type_: Any) -> str:
    """Spell a type as a person would write it."""
    if type_ is None or type_ is NONE:
        return "None"
    if isinstance(type_, type) and not get_args(type_):
        return type_.__name__
    return re.sub(r"(?:[\w<>]+\.)+(?=\w)", "", repr(type_))


class Shape:
    """How the values of one type are stored."""

    name: str
    """How messages name the type."""
    classes: frozenset[type] | None = None
    """The exact classes of its values; None if unknown."""
    json: frozenset[type] | None = None
    """The classes of what it is stored as; None if unknown."""
    constants: frozenset[tuple[type, object]] | None = None
    """What it is stored as, if that is one of a few values."""
    depth: float = 0
    """How deep what it is stored as can nest."""
    inner: tuple[Shape, ...] = ()
    """The shapes of its parts."""
    alters: bool = False
    """Whether code of users runs when it, or a part of it, is loaded."""
    yields: frozenset[type] = frozenset()
    """Classes that are another's in a union with it."""

    dump: Callable[[Any], Any]
    """Turns a value into plain JSON; raises anything at all if it cannot."""
    load: Callable[..., Any]
    """The reverse. Takes, and ignores, a second argument, as cattrs wants it."""

    def dump_parts(self, value: Any, /) -> Iterable[Part]:
        """List the parts of a value that was not dumped; never raises."""
        return ()

    def load_parts(self, plain: Any, /) -> Iterable[Part]:
        """List the parts of something that was not loaded; never raises."""
        return ()


class Scalar(Shape):
    """A value without parts."""

    def __init__(
        self, cls: type, json: type, dump: Callable[[Any], Any], load: Callable[..., Any]
    ) -> None:
        self.name = spell(cls)
        self.classes = frozenset({cls})
        self.json = frozenset({json})
        self.dump = dump
        self.load = load


class Untyped(Shape):
    """Plain JSON that no annotation describes."""

    depth = UNBOUNDED

    def __init__(self, cls: type | None = None) -> None:
        self._cls = cls
        self.name = "JSON" if cls is None else cls.__name__
        self.classes = None if cls is None else frozenset({cls})
        self.json = frozenset(JSON_NAMES) if cls is None else self.classes

    def dump(self, value: Any) -> Any:
        if self._cls is not None and type(value) is not self._cls:
            raise unlike(self.name, value)
        check_plain(value)
        return value

    def load(self, plain: Any, _: object = None) -> Any:
        if self._cls is not None and type(plain) is not self._cls:
            raise found(JSON_NAMES[self._cls], plain)
        check_plain(plain)
        return plain

    def dump_parts(self, value: Any, /) -> Iterator[Part]:
        if type(value) is dict:
            for key, item in value.items():
                yield f" (key {shortened(key)})", key, _KEY
                yield step_to(key), item, UNTYPED
        elif type(value) is list:
            for index, item in enumerate(value):
                yield f"[{index}]", item, UNTYPED

    load_parts = dump_parts


def _dump_key(value: Any, _: object = None) -> Any:
    check_key(value)
    return value


UNTYPED = Untyped()
_KEY = Scalar(str, str, _dump_key, _dump_key)


class Enum(Shape):
    """An enum, stored by value."""

    def __init__(self, cls: type[enum.Enum]) -> None:
        self._cls = cls
        self.name = cls.__name__
        self.classes = frozenset({cls})
        self._flag = issubclass(cls, enum.Flag)
        values = [member._value_ for member in cls]
        if not values:
            raise Unsupported(f"{cls.__name__} has no members; name the enum that has")
        for value in values:
            _check_constant(value, f"{cls.__name__} has a member whose value")
        self.json = frozenset(type(value) for value in values)
        self._members = {(type(value), value): cls(value) for value in values}

    def dump(self, value: Any) -> Any:
        if type(value) is not self._cls:
            raise unlike(self.name, value)
        if self._flag:
            check_int(value._value_)
        return value._value_

    def load(self, plain: Any, _: object = None) -> Any:
        try:
            return self._members[type(plain), plain]
        except (KeyError, TypeError):
            if self._flag and type(plain) is int:
                return self._flags(plain)
            raise Misfit(f"this is no value of {self.name}") from None

    def _flags(self, plain: int) -> enum.Enum:
        # Depending on its boundary, a Flag refuses bits it does not know, drops them,
        # or becomes an int.
        with contextlib.suppress(ValueError):
            flags = self._cls(plain)
            if type(flags) is self._cls and flags._value_ == plain:
                return flags
        raise Misfit(f"{self.name} does not know all of these flags")


def _check_constant(value: object, what: str) -> None:
    try:
        if type(value) in (list, dict):
            raise Misfit("use a str, int, float, bool or None")
        check_plain(value)
    except Misfit as misfit:
        raise Unsupported(f"{what} cannot be stored: {misfit}") from None


class Literal(Shape):
    """One of a few values."""

    def __init__(self, values: Iterable[object]) -> None:
        self._dumps: dict[tuple[type, object], object] = {}
        self._loads: dict[tuple[type, object], object] = {}
        for value in values:
            plain = value._value_ if isinstance(value, enum.Enum) else value
            _check_constant(plain, f"{value!r} in a Literal")
            self._dumps[type(value), value] = plain
            self._loads[type(plain), plain] = value
        if len(self._loads) != len(self._dumps):
            raise Unsupported(
                f"two of {', '.join(repr(v) for _, v in self._dumps)} would be stored as the same"
            )
        self.name = f"one of {', '.join(repr(value) for _, value in self._dumps)}"
        self.classes = frozenset(cls for cls, _ in self._dumps)
        self.json = frozenset(cls for cls, _ in self._loads)
        self.constants = frozenset(self._loads)

    def dump(self, value: Any) -> Any:
        try:
            return self._dumps[type(value), value]
        except (KeyError, TypeError):
            raise Misfit(f"expected {self.name}, not another {name_of(value)}") from None

    def load(self, plain: Any, _: object = None) -> Any:
        try:
            return self._loads[type(plain), plain]
        except (KeyError, TypeError):
            raise Misfit(f"expected {self.name}") from None


class Array(Shape):
    """A list, or a tuple of any length."""

    json = frozenset({list})

    def __init__(self, cls: type[Any], item: Shape) -> None:
        self.name = f"{cls.__name__} of {item.name}"
        self.classes = frozenset({cls})
        self.depth = 1 + item.depth
        self.inner = (item,)
        self._cls = cls
        self._item = item

    def dump(self, value: Any) -> Any:
        if type(value) is not self._cls:
            raise unlike(self._cls.__name__, value)
        dump = self._item.dump
        return [dump(item) for item in value]

    def load(self, plain: Any, _: object = None) -> Any:
        if type(plain) is not list:
            raise found("an array", plain)
        load = self._item.load
        items = [load(item) for item in plain]
        return items if self._cls is list else self._cls(items)

    def dump_parts(self, value: Any, /) -> Iterable[Part]:
        return self._parts(value) if type(value) is self._cls else ()

    def load_parts(self, plain: Any, /) -> Iterable[Part]:
        return self._parts(plain) if type(plain) is list else ()

    def _parts(self, items: Iterable[Any]) -> Iterable[Part]:
        return ((f"[{index}]", item, self._item) for index, item in enumerate(items))


class Set(Array):
    """A set or a frozenset, stored in order, so that equal sets are equal JSON.

    Numbers are in ascending order, strings in that of their code points, and
    anything else, or a mixture, in that of its canonical JSON.
    """

    def __init__(self, cls: type[Any], item: Shape) -> None:
        super().__init__(cls, item)
        sortable = item.json is not None and any(
            item.json <= alike for alike in ({str}, {bool}, {int, float})
        )
        self._key = None if sortable else canonical

    def dump(self, value: Any) -> Any:
        return sorted(super().dump(value), key=self._key)

    def load(self, plain: Any, _: object = None) -> Any:
        members = super().load(plain)
        if len(members) != len(plain):
            raise Misfit("a member is there twice")
        return members


class Tuple(Shape):
    """A tuple of fixed length."""

    json = frozenset({list})
    classes = frozenset({tuple})

    def __init__(self, items: tuple[Shape, ...]) -> None:
        self.name = f"tuple of ({', '.join(item.name for item in items)})"
        self.depth = 1 + max((item.depth for item in items), default=0)
        self.inner = items

    def dump(self, value: Any) -> Any:
        if type(value) is not tuple:
            raise unlike("tuple", value)
        if len(value) != len(self.inner):
            raise Misfit(f"expected {len(self.inner)} items, not {len(value)}")
        return [shape.dump(item) for shape, item in zip(self.inner, value, strict=True)]

    def load(self, plain: Any, _: object = None) -> Any:
        if type(plain) is not list:
            raise found("an array", plain)
        if len(plain) != len(self.inner):
            raise Misfit(f"expected {len(self.inner)} items, found {len(plain)}")
        return tuple([shape.load(item) for shape, item in zip(self.inner, plain, strict=True)])

    def dump_parts(self, value: Any, /) -> Iterable[Part]:
        return self._parts(value) if type(value) is tuple else ()

    def load_parts(self, plain: Any, /) -> Iterable[Part]:
        return self._parts(plain) if type(plain) is list else ()

    def _parts(self, items: Iterable[Any]) -> Iterable[Part]:
        return (
            (f"[{index}]", item, shape)
            for index, (item, shape) in enumerate(zip(items, self.inner, strict=False))
        )


class IntKey(Shape):
    """Something stored as a whole number, where JSON wants a string: as a key."""

    json = frozenset({str})

    def __init__(self, number: Shape) -> None:
        self.name = number.name
        self.classes = number.classes
        self.inner = (number,)
        self._number = number

    def dump(self, value: Any) -> Any:
        return str(self._number.dump(value))

    def load(self, plain: Any, _: object = None) -> Any:
        try:
            number = int(plain)
        except ValueError:
            raise Misfit("expected a whole number as a key") from None
        if str(number) != plain:
            raise Misfit("expected a whole number as a key, in its usual spelling")
        return self._number.load(number)


class Dict(Shape):
    """A dict whose keys are stored as strings."""

    json = classes = frozenset({dict})

    def __init__(self, key: Shape, item: Shape) -> None:
        self.name = f"dict of {item.name} by {key.name}"
        self.depth = 1 + item.depth
        self.inner = (key, item)
        self._key = key
        self._item = item

    def dump(self, value: Any) -> Any:
        if type(value) is not dict:
            raise unlike("dict", value)
        key, item = self._key.dump, self._item.dump
        return {key(k): item(v) for k, v in value.items()}

    def load(self, plain: Any, _: object = None) -> Any:
        if type(plain) is not dict:
            raise found("an object", plain)
        key, item = self._key.load, self._item.load
        loaded = {key(k): item(v) for k, v in plain.items()}
        if len(loaded) != len(plain):
            raise Misfit("a key is there twice, in two spellings")
        return loaded

    def dump_parts(self, value: Any, /) -> Iterator[Part]:
        if type(value) is dict:
            for key, item in value.items():
                yield f" (key {shortened(key)})", key, self._key
                yield f"[{shortened(key)}]", item, self._item

    load_parts = dump_parts


class Optional(Shape):
    """Something, or None."""

    def __init__(self, some: Shape) -> None:
        self.name = f"{some.name} or None"
        self.classes = None if some.classes is None else some.classes | {NONE}
        self.json = None if some.json is None else some.json | {NONE}
        self.depth = some.depth
        self.inner = (some,)
        self._some = some

    def dump(self, value: Any) -> Any:
        if value is None:
            return None
        plain = self._some.dump(value)
        if plain is None:
            raise Misfit("its hook stores it as null, which here means None")
        return plain

    def load(self, plain: Any, _: object = None) -> Any:
        return None if plain is None else self._some.load(plain)

    def dump_parts(self, value: Any, /) -> Iterable[Part]:
        return () if value is None else (("", value, self._some),)

    load_parts = dump_parts


class Union(Shape):
    """One of several types, told apart by class, and by what they are stored as."""

    def __init__(self, members: list[Shape], records: Shape | None) -> None:
        """Tell the members apart.

        Args:
          members: two or more.
          records: finds out which one an object is, if several are stored as objects.

        Raises:
          Unsupported: some cannot be told apart.
        """
        self.name = " or ".join(member.name for member in members)
        self.depth = max(member.depth for member in members)
        self.inner = tuple(members)
        self._by_class: dict[type, Shape] = {}
        self._by_json: dict[type, Shape] = {}
        for member in sorted(members, key=lambda member: bool(member.yields)):
            if member.classes is None or member.json is None:
                raise Unsupported(
                    f"in a union, {member.name} cannot be told from the rest;"
                    " give the codec hooks for the whole union"
                )
            for cls in member.classes - (member.yields & self._by_class.keys()):
                other = self._by_class.setdefault(cls, member)
                if other is not member:
                    raise _apart(other, member, f"can both be {spell(cls)}")
            told = records if records and member in records.inner else member
            for cls in member.json - (member.yields & self._by_json.keys()):
                other = self._by_json.setdefault(cls, told)
                if other is not told:
                    raise _apart(other, member, f"are both stored as {JSON_NAMES[cls]}")
        self.classes = frozenset(self._by_class)
        self.json = frozenset(self._by_json)

    def dump(self, value: Any) -> Any:
        try:
            shape = self._by_class[type(value)]
        except KeyError:
            raise unlike(self.name, value) from None
        return shape.dump(value)

    def load(self, plain: Any, _: object = None) -> Any:
        try:
            shape = self._by_json[type(plain)]
        except KeyError:
            raise found(self.name, plain) from None
        return shape.load(plain)

    def dump_parts(self, value: Any, /) -> Iterable[Part]:
        shape = self._by_class.get(type(value))
        return () if shape is None else (("", value, shape),)

    def load_parts(self, plain: Any, /) -> Iterable[Part]:
        shape = self._by_json.get(type(plain))
        return () if shape is None else (("", plain, shape),)


def _apart(one: Shape, other: Shape, why: str) -> Unsupported:
    return Unsupported(
        f"in a union, {one.name} and {other.name} {why}, so they could not be told apart;"
        " use a class with a field for each, or give the codec hooks for the union"
    )


def _has_value(value: object) -> bool:
    """Whether a value is equal to others, or only to itself."""
    return type(value).__eq__ is not object.__eq__


class Hooked(Shape):
    """A type that users have registered hooks for."""

    depth = UNBOUNDED

    def __init__(
        self, type_: Any, dump: Callable[[Any], Any], load: Callable[[Any, Any], Any]
    ) -> None:
        self.name = spell(type_)
        self.classes = frozenset({type_}) if isinstance(type_, type) else None
        self._type = type_
        self._dump = dump
        self._load = load

    def dump(self, value: Any) -> Any:
        plain = self._dump(value)
        check_plain(plain)
        # From its text, so that a hook that changes what it is given spoils nothing.
        back = self.load(read(compact(plain)))
        if _has_value(value):
            same = back == value
        else:
            same = repr(self._dump(back)) == repr(plain)
        if same and type(back) is type(value):
            return plain
        raise Misfit(f"the hooks of {self.name} do not give it back as it was")

    def load(self, plain: Any, _: object = None) -> Any:
        return self._load(plain, self._type)

"""Job arguments as JSON: exactly as they were given, or not at all.

Whatever `Codec.encode` accepts, `Codec.decode` gives back equal and with the same
types. What would come back altered is refused with the path to it, and a type
that cannot promise this is refused when it is first seen.

Elsewhere: which annotation is stored in which way, `annotations`; the ways,
`shapes`, `scalars` and `records`; what plain JSON is, `jsontext`. cattrs generates
the code for classes, and holds the hooks of users.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cattrs

from .annotations import Compiler, is_union
from .errors import ConfigurationError, InvalidRequest, UndecodableArgs
from .jsontext import MAX_DEPTH, TOO_DEEP, Misfit, compact, depth, read
from .shapes import UNBOUNDED, Shape, reason, spell

#: A sentence that lists more problems than this helps nobody.
_MOST_PROBLEMS = 10


class Codec:
    """Turns arguments into JSON by their type, and back, exactly.

    Classes of attrs, dataclasses, named tuples and typed dicts are stored as
    objects. In their fields: ``str``, ``bool``, ``None``, ``int`` of 64 bits, finite
    ``float``; `uuid.UUID`, aware `datetime.datetime`, ``date``, ``time``,
    ``timedelta``, finite `decimal.Decimal` and ``bytes``, all as strings; enums and
    ``Literal`` by value; ``list``, ``tuple``, ``set``, ``frozenset`` as arrays;
    ``dict``; and unions whose members can be told apart. ``Any``, ``object``, bare
    ``list`` and bare ``dict`` hold plain JSON.

    - An ``int`` in a ``float`` field stays one: type checkers allow it there.
    - A zone of `zoneinfo` is stored by name (RFC 9557). Any other zone must be a
      fixed offset, and comes back as a `datetime.timezone` without a name.
    - A set is stored in a fixed order, so that equal sets are equal JSON.
    - When decoding, unknown keys are ignored and missing ones take the field's
      default: during a deploy, old workers meet new producers and the reverse.
    - A class that runs code of its own when it is made (a converter, a validator,
      ``__post_init__``) is decoded once more by `encode`, to see that nothing changes.

    May be used from any thread.

    Args:
      configure: gets the `cattrs.Converter` to register hooks of your own in, always
          both ways. They come before all of the above, and what they encode is
          decoded once more too.
    """

    def __init__(self, configure: Callable[[cattrs.Converter], object] | None = None) -> None:
        self._shapes: dict[Any, Shape] = {}
        converter = self._converter = cattrs.Converter()
        for cls in _DISPATCHED_BY_CLASS:
            converter.register_structure_hook(cls, self._load_as)
            converter.register_unstructure_hook(cls, _DumpAs(self, None))
        converter.register_structure_hook_func(self._loads, self._load_as)
        converter.register_unstructure_hook_factory(
            lambda _: True, functools.partial(_DumpAs, self)
        )
        if configure is not None:
            configure(converter)

    def check(self, type_: Any, *, names: Mapping[str, object] | None = None) -> None:
        """Refuse a type that could not be given back exactly.

        Done once, when a task is registered, so that it is not the millionth job
        that finds out.

        Args:
          type_: a class or any other annotation.
          names: what annotations written as strings may name besides their module's
              globals, such as the locals of the function that defines the class.

        Raises:
          ConfigurationError: names the field, and says what to do.
        """
        if UNBOUNDED > self._shape(type_, names).depth > MAX_DEPTH:
            raise ConfigurationError(f"{spell(type_)}: {TOO_DEEP}")

    def classes(self, type_: Any) -> frozenset[type]:
        """Return the exact classes of values of a type; none, if only its hooks know.

        Raises:
          ConfigurationError: as `check`.
        """
        return self._shape(type_).classes or frozenset()

    def encode(self, value: object, type_: Any, *, root: str = "args") -> bytes:
        """Encode a value of the given type as compact JSON, in ASCII.

        Args:
          value: what to encode; not kept.
          type_: its type, as the annotation that `decode` will be given.
          root: what error messages call ``value``.

        Raises:
          InvalidRequest: it would not come back as it is. Names the path to each
              part that would not. No values, which may be secret, except what the
              exceptions of your own classes and hooks say.
          ConfigurationError: as `check`.
        """
        shape = self._shape(type_)
        try:
            plain = shape.dump(value)
            text = compact(plain)
            # Counting brackets, even those inside strings, is a cheap upper bound.
            if (
                shape.depth > MAX_DEPTH
                and text.count("[") + text.count("{") > MAX_DEPTH
                and depth(plain) > MAX_DEPTH
            ):
                raise Misfit(TOO_DEEP)
            if shape.alters:
                _check_back(shape, text)
        except RecursionError:
            raise InvalidRequest(f"{root}: {TOO_DEEP}, or contains itself") from None
        except Exception as error:
            problem, cause = _explain(shape, value, _dump, "dump_parts", root, error)
            raise InvalidRequest(problem) from cause
        return text.encode("ascii")

    def decode(self, data: bytes | str, type_: Any, *, root: str = "args") -> Any:
        """Decode JSON into a value of the given type.

        Args:
          data: JSON; bytes are UTF-8.
          type_: a class or any other annotation.
          root: what error messages call the value.

        Raises:
          UndecodableArgs: it is not JSON, or does not fit. Names the path to each
              part that does not, as `encode` does; chained from the first cause.
          ConfigurationError: as `check`.
        """
        shape = self._shape(type_)
        try:
            plain = read(data)
        except (ValueError, RecursionError) as error:
            raise UndecodableArgs(f"{root}: this is not JSON: {reason(error)}") from error
        try:
            return shape.load(plain)
        except RecursionError:
            raise UndecodableArgs(f"{root}: {TOO_DEEP}") from None
        except Exception as error:
            problem, cause = _explain(shape, plain, _load, "load_parts", root, error)
            raise UndecodableArgs(f"this does not fit {shape.name}: {problem}") from cause

    def _shape(self, type_: Any, names: Mapping[str, object] | None = None) -> Shape:
        try:
            shape = self._shapes.get(type_)
        except TypeError:
            raise ConfigurationError(f"{spell(type_)}: an unhashable annotation") from None
        if shape is None:
            # Two threads may do this at once; the second to finish wins, and both are right.
            self._shapes.update(Compiler(self._shapes, self._hooks, names).compile(type_))
            shape = self._shapes[type_]
        return shape

    def _hooks(self, type_: Any) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
        """Return the hooks that users have registered for a type: to dump, to load."""
        dump = self._converter.get_unstructure_hook(type_, cache_result=False)
        load = self._converter.get_structure_hook(type_, cache_result=False)
        return (
            None if isinstance(dump, _DumpAs) else dump,
            None if load == self._load_as else load,
        )

    # ---- What the hooks of users see of us, through the converter ----

    def _load_as(self, plain: Any, type_: Any) -> Any:
        return self._shape(type_).load(plain)

    def _loads(self, type_: Any) -> bool:
        # cattrs keeps structure hooks for unions behind all predicates, hence behind ours.
        hooked = getattr(self._converter, "_union_struct_registry", ())
        return not (is_union(type_) and type_ in hooked)


class _DumpAs:
    """The unstructure hook of a type that no user has hooked."""

    __slots__ = ("_codec", "_type")

    def __init__(self, codec: Codec, type_: Any) -> None:
        self._codec = codec
        self._type = type_

    def __call__(self, value: Any) -> Any:
        type_ = type(value) if self._type is None else self._type
        return self._codec._shape(type_).dump(value)


#: The classes that a fresh converter has hooks for, which go before any predicate.
_DISPATCHED_BY_CLASS = (str, bytes, int, float, Path)


# ---- Finding out what is wrong ------------------------------------------------


def _load(shape: Shape, plain: Any) -> None:
    shape.load(plain)


def _dump(shape: Shape, value: Any) -> None:
    text = compact(shape.dump(value))
    if shape.alters:
        _check_back(shape, text)


def _check_back(shape: Shape, text: str) -> None:
    """Refuse what does not come back as it was."""
    try:
        back = shape.load(read(text))
    except Exception as error:
        raise Misfit(f"{shape.name} would refuse it when decoded: {reason(error)}") from error
    if compact(shape.dump(back)) != text:
        raise Misfit(f"{shape.name} would alter it when decoded")


def _explain(
    shape: Shape,
    value: Any,
    act: Callable[[Shape, Any], None],
    parts: str,
    root: str,
    error: Exception,
) -> tuple[str, Exception]:
    """Describe in one sentence why ``act`` failed, and name the first cause."""
    problems = _problems(shape, value, act, parts, root)
    try:
        found = list(itertools.islice(problems, _MOST_PROBLEMS + 1))
    except RecursionError:
        found = []
    found = found or [(root, error)]
    text = "; ".join(f"{path}: {reason(cause)}" for path, cause in found[:_MOST_PROBLEMS])
    return text + ("; and more" if len(found) > _MOST_PROBLEMS else ""), found[0][1]


def _problems(
    shape: Shape, value: Any, act: Callable[[Shape, Any], None], parts: str, path: str
) -> Iterator[tuple[str, Exception]]:
    """Find the innermost parts on which ``act`` fails."""
    try:
        act(shape, value)
    except Exception as error:
        inner = itertools.chain.from_iterable(
            _problems(part_shape, part, act, parts, path + step)
            for step, part, part_shape in getattr(shape, parts)(value)
        )
        first = next(inner, None)
        if first is None:
            yield path, error
        else:
            yield first
            yield from inner

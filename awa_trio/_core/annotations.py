"""Which annotation is stored in which way; and which cannot be, because it would not come back.

Elsewhere: the ways, `shapes`, `scalars` and `records`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn_from_attrs, make_dict_unstructure_fn_from_attrs

from . import shapes
from .errors import ConfigurationError
from .jsontext import Misfit, check_text
from .records import Field, Record, Records, TypedDict
from .scalars import SCALARS, STR
from .shapes import NONE, UNTYPED, Shape, Unsupported, spell, step_to

#: Generates the code of classes. A shape is a type to it, hooked to itself.
_generator = cattrs.Converter(detailed_validation=False)
_generator.register_unstructure_hook_factory(
    lambda type_: isinstance(type_, Shape), lambda shape: shape.dump
)
_generator.register_structure_hook_factory(
    lambda type_: isinstance(type_, Shape), lambda shape: shape.load
)

#: Annotations that say something about a type without changing its values.
_TRANSPARENT = {
    typing.Annotated,
    typing.Final,
    typing.Required,
    typing.NotRequired,
    getattr(typing, "ReadOnly", typing.Required),  # Python 3.13
}

#: What to write instead of an annotation that does not say what to give back.
_INSTEAD: dict[Any, str] = {
    abc.Sequence: "list[...] or tuple[..., ...]",
    abc.Collection: "list[...], tuple[..., ...] or frozenset[...]",
    abc.Iterable: "list[...] or tuple[..., ...]",
    abc.Set: "frozenset[...] or set[...]",
    abc.MutableSet: "set[...]",
    collections.deque: "list[...]",
    collections.OrderedDict: "dict[..., ...]",
    collections.defaultdict: "dict[..., ...]",
    collections.Counter: "dict[..., int]",
    bytearray: "bytes",
    Path: "str",
}


def is_union(type_: Any) -> bool:
    return get_origin(type_) in (typing.Union, types.UnionType)


class Compiler:
    """Makes the shapes of one annotation and of everything it mentions."""

    def __init__(
        self,
        known: Mapping[Any, Shape],
        hooks: Callable[[Any], tuple[Callable[..., Any] | None, Callable[..., Any] | None]],
        names: Mapping[str, object] | None,
    ) -> None:
        self._known = known
        self._hooks = hooks
        self._names = names or {}
        self._made: dict[Any, Shape] = {}
        self._aliases: set[Any] = set()
        # Left as it is when something raises: then it says where.
        self._path: list[str] = []
        self._later: list[tuple[list[str], Records]] = []

    def compile(self, type_: Any) -> dict[Any, Shape]:
        """Return the shape of a type, and those of the types inside it."""
        try:
            self._at(spell(type_), type_)
            for path, records in self._later:
                self._path = path
                records.settle()
        except Unsupported as error:
            raise ConfigurationError(f"{''.join(self._path)}: {error}") from None
        _spread_alters(self._made.values())
        return self._made

    def _at(self, step: str, type_: Any) -> Shape:
        self._path.append(step)
        shape = self._of(type_)
        self._path.pop()
        return shape

    def _of(self, type_: Any) -> Shape:
        try:
            known = self._known.get(type_) or self._made.get(type_)
        except TypeError:  # such as Annotated[int, []], which nobody can have hooked
            return self._built(type_)
        if known is None:
            known = self._hooked(type_) or SCALARS.get(type_) or self._built(type_)
            self._made[type_] = known
        return known

    def _hooked(self, type_: Any) -> Shape | None:
        dump, load = self._hooks(type_)
        if dump is not None and load is not None:
            return shapes.Hooked(type_, dump, load)
        if dump is not None or load is not None:
            way = "unstructure" if dump is None else "structure"
            raise Unsupported(f"it has a hook for one way only; register its {way} hook too")
        return None

    def _built(self, type_: Any) -> Shape:
        origin, args = get_origin(type_), get_args(type_)
        if type_ is Any or type_ is object:
            return UNTYPED
        if origin in _TRANSPARENT:
            return self._of(args[0])
        if isinstance(type_, typing.NewType):
            return self._of(type_.__supertype__)
        if hasattr(origin or type_, "__value__"):  # type X = ..., from Python 3.12
            return self._alias(type_)
        if origin is Literal:
            return shapes.Literal(args)
        if is_union(type_):
            return self._union(args)
        cls = origin or type_
        return self._container(type_, cls, args) or self._class(type_, cls)

    def _alias(self, type_: Any) -> Shape:
        if type_ in self._aliases:
            raise Unsupported("it is defined by itself; use a class instead")
        self._aliases.add(type_)
        origin = get_origin(type_)
        value = type_.__value__ if origin is None else origin.__value__[get_args(type_)]
        shape = self._of(value)
        self._aliases.remove(type_)
        return shape

    # ---- Containers ----

    def _container(self, type_: Any, cls: Any, args: tuple[Any, ...]) -> Shape | None:
        if cls is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return shapes.Array(tuple, self._at("[]", args[0]))
            if type_ in (tuple, typing.Tuple):  # noqa: UP006
                return shapes.Array(tuple, UNTYPED)
            return shapes.Tuple(tuple(self._at(f"[{n}]", arg) for n, arg in enumerate(args)))
        if cls in (list, abc.MutableSequence):
            item = self._at("[]", args[0]) if args else UNTYPED
            return shapes.Untyped(list) if item is UNTYPED else shapes.Array(list, item)
        if cls in (set, frozenset):
            item = self._at("[]", args[0]) if args else UNTYPED
            if any(member.__hash__ is None for member in item.classes or ()):
                raise Unsupported(f"a set cannot hold {item.name}; use a list or a tuple")
            return shapes.Set(cls, item)
        if cls in (dict, abc.Mapping, abc.MutableMapping):
            key = self._key(args[0] if args else str)
            item = self._at("[]", args[1]) if args else UNTYPED
            return (
                shapes.Untyped(dict)
                if key is STR and item is UNTYPED
                else shapes.Dict(key, item)
            )
        return None

    def _key(self, type_: Any) -> Shape:
        key = self._at(" (a key)", type_)
        if key.json == frozenset[type]({str}):
            return key
        if key.json == frozenset[type]({int}):
            return shapes.IntKey(key)
        raise Unsupported(
            f"keys of JSON objects are strings, and {key.name} is not always stored as one,"
            " nor as a whole number; use a list of pairs"
        )

    def _union(self, members: tuple[Any, ...]) -> Shape:
        constants = [
            constant
            for member in members
            if get_origin(member) is Literal
            for constant in get_args(member)
        ]
        optional = NONE in members or None in constants
        some = [
            self._of(member)
            for member in members
            if member is not NONE and get_origin(member) is not Literal
        ]
        if constants := [constant for constant in constants if constant is not None]:
            some.append(shapes.Literal(constants))
        union = some[0] if len(some) == 1 else self._several(some)
        if not optional or union is UNTYPED or NONE in (union.classes or ()):
            return union
        if NONE in (union.json or ()):
            raise Unsupported(f"None and a member of {union.name} are both stored as null")
        return shapes.Optional(union)

    def _several(self, members: list[Shape]) -> Shape:
        records = [member for member in members if isinstance(member, Record)]
        if len(records) < 2:
            return shapes.Union(members, None)
        which = Records(records)
        # Some of their fields may not be known yet: a tree is a union of its nodes.
        self._later.append((list(self._path), which))
        return shapes.Union(members, which)

    # ---- Classes ----

    def _class(self, type_: Any, cls: Any) -> Shape:
        if isinstance(cls, type):
            if issubclass(cls, enum.Enum):
                return shapes.Enum(cls)
            if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
                return self._typed_dict(type_, cls)
            if attrs.has(cls) or dataclasses.is_dataclass(cls) or _is_named_tuple(cls):
                return self._record(type_, cls)
        if isinstance(type_, TypeVar):
            raise Unsupported(
                f"{type_.__name__} stands for no type here; say which, as in Page[int]"
            )
        if isinstance(type_, (str, typing.ForwardRef)):
            raise Unsupported("this annotation is a string nobody has evaluated")
        instead = _INSTEAD.get(cls)
        if instead is None and isinstance(cls, type):
            base = next((base.__name__ for base in cls.__mro__[1:] if base in SCALARS), None)
            instead = f"{base}, or a NewType of it" if base else None
        raise Unsupported(
            f"{spell(type_)} cannot be stored as JSON and given back;"
            + (f" write {instead}," if instead else " make it an attrs class or a dataclass,")
            + " or give the codec hooks for it"
        )

    def _typed_dict(self, type_: Any, cls: Any) -> Shape:
        shape = TypedDict(cls)
        self._remember(type_, shape)
        fields = []
        for name, annotation in self._annotations(
            type_, cls, inspect.get_annotations(cls)
        ).items():
            try:
                check_text(name)
            except Misfit as misfit:
                raise Unsupported(f"the key {name!r}: {misfit}") from None
            # Under `from __future__ import annotations` the class itself has not seen these.
            marks = _marks(annotation)
            required = typing.Required in marks or (
                name in cls.__required_keys__ and typing.NotRequired not in marks
            )
            fields.append(
                Field(name, self._at(step_to(name), annotation), required, always=required)
            )
        shape.complete_keys(fields)
        return shape

    def _record(self, type_: Any, cls: Any) -> Shape:
        shape = Record(cls, spell(type_))
        self._remember(type_, shape)
        described = _attributes(cls)
        annotations = self._annotations(type_, cls, {field.name for field in described})
        attributes = []
        fields = []
        for attribute in described:
            name = attribute.name
            self._path.append(f".{name}")
            if not attribute.init:
                if attribute.eq:
                    raise Unsupported(
                        "with init=False it cannot be given back; leave it out of comparisons"
                        " (eq=False or compare=False), or make it a property"
                    )
            else:
                annotation = annotations.get(name, attribute.type)
                if annotation is None:
                    raise Unsupported("without an annotation nobody knows what it is")
                inner = self._of(annotation)
                attributes.append(attribute.evolve(type=inner))
                required = attribute.default is attrs.NOTHING
                fields.append(Field(name, inner, required, always=True))
            self._path.pop()
        shape.alters = _runs_code(cls)
        # cattrs wants the parameters of a generic class known, though nothing uses them here.
        known = {parameter.__name__: object for parameter in getattr(cls, "__parameters__", ())}
        shape.complete(
            fields,
            make_dict_unstructure_fn_from_attrs(attributes, cls, _generator, known),
            make_dict_structure_fn_from_attrs(
                # In the order of a call: what is given by name comes last.
                sorted(attributes, key=lambda attribute: bool(attribute.kw_only)),
                cls,
                _generator,
                known,
            ),
        )
        return shape

    def _remember(self, type_: Any, shape: Shape) -> None:
        """Let the fields of a class find its shape, which they complete."""
        with contextlib.suppress(TypeError):  # such as Page[Annotated[int, []]]
            self._made[type_] = shape

    def _annotations(self, type_: Any, cls: Any, fields: Container[str]) -> dict[str, Any]:
        """Evaluate the annotations of fields, with the type variables replaced."""
        bound = _bindings(type_, cls)
        evaluated = {}
        for base in reversed(cls.__mro__):
            names = {
                **{p.__name__: p for p in getattr(base, "__type_params__", ())},
                **{
                    name: inner for name, inner in vars(base).items() if isinstance(inner, type)
                },
                **self._names,
                base.__name__: base,
            }
            try:
                # A stub for each, so that names are looked up where the base was written.
                own = {k: v for k, v in inspect.get_annotations(base).items() if k in fields}
                stub = type(base.__name__, (), {"__module__": base.__module__})
                stub.__annotations__ = own
                hints = typing.get_type_hints(stub, localns=names, include_extras=True)
                for name, hint in hints.items():
                    evaluated[name] = _substitute(hint, bound.get(base, {}))
            except NameError as error:
                raise Unsupported(
                    f"an annotation of {base.__name__} names {error.name}, which is not known in"
                    f" {base.__module__}; define both at the top of a module, or give names="
                ) from None
            except Exception as error:
                raise Unsupported(
                    f"the annotations of {base.__name__} cannot be evaluated:"
                    f" {shapes.reason(error)}"
                ) from error
        return evaluated


def _marks(annotation: Any) -> set[Any]:
    """Return what wraps an annotation."""
    marks = set()
    while (origin := get_origin(annotation)) in _TRANSPARENT:
        marks.add(origin)
        annotation = get_args(annotation)[0]
    return marks


def _is_named_tuple(cls: type) -> bool:
    return (
        tuple in cls.__bases__ and hasattr(cls, "_fields") and hasattr(cls, "_field_defaults")
    )


def _attributes(cls: Any) -> tuple[attrs.Attribute[Any], ...]:
    """Describe the fields of a class as attrs does."""
    if attrs.has(cls):
        return tuple(attrs.fields(cls))
    fields: dict[str, Any] = {}
    if dataclasses.is_dataclass(cls):
        for name, pseudo in cls.__dataclass_fields__.items():
            if getattr(pseudo, "_field_type", None) is getattr(
                dataclasses, "_FIELD_INITVAR", ...
            ):
                raise Unsupported(
                    f"{name} is an InitVar: it is not kept, so it cannot be given back"
                )
        for field in dataclasses.fields(cls):
            default: Any = attrs.NOTHING
            if field.default is not dataclasses.MISSING:
                default = field.default
            elif field.default_factory is not dataclasses.MISSING:
                default = attrs.Factory(field.default_factory)
            fields[field.name] = attrs.field(
                alias=field.name,
                default=default,
                init=field.init,
                kw_only=bool(field.kw_only),
                eq=field.compare,
            )
    else:
        for name in cls._fields:
            fields[name] = attrs.field(
                alias=name, default=cls._field_defaults.get(name, attrs.NOTHING)
            )
    made = attrs.make_class("Fields", fields, init=False, repr=False, eq=False)
    return tuple(attrs.fields(made))


def _runs_code(cls: Any) -> bool:
    """Whether making an instance runs code that may change or refuse the fields."""
    if _is_named_tuple(cls):
        return False
    hooks = ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__")
    if cls.__new__ is not object.__new__ or any(hasattr(cls, hook) for hook in hooks):
        return True
    if attrs.has(cls) and any(
        field.converter or field.validator for field in attrs.fields(cls)
    ):
        return True
    # What attrs and dataclasses generate comes from no file.
    file = getattr(getattr(cls.__init__, "__code__", None), "co_filename", "")
    return not (file == "<string>" or file.startswith("<attrs generated"))


def _bindings(type_: Any, cls: Any) -> dict[Any, dict[Any, Any]]:
    """Say what the type variables of a class and of its bases stand for, class by class."""
    bound: dict[Any, dict[Any, Any]] = {
        cls: dict(zip(getattr(cls, "__parameters__", ()), get_args(type_), strict=False))
    }
    for child in cls.__mro__:
        for base in vars(child).get("__orig_bases__", ()):
            parent = get_origin(base)
            if parent is not None and parent not in bound:
                args = [_substitute(arg, bound.get(child, {})) for arg in get_args(base)]
                parameters = getattr(parent, "__parameters__", ())
                bound[parent] = dict(zip(parameters, args, strict=False))
    return bound


def _substitute(annotation: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type) or not bound:
        return annotation
    return annotation[tuple(bound.get(parameter, parameter) for parameter in parameters)]


def _spread_alters(shapes: Iterable[Shape]) -> None:
    """Mark every shape that has a marked one somewhere inside."""
    pending = list(shapes)
    users: dict[Shape, list[Shape]] = {}
    while pending:
        shape = pending.pop()
        for inner in shape.inner:
            if inner not in users:
                pending.append(inner)
            users.setdefault(inner, []).append(shape)
    pending = [shape for shape in users if shape.alters]
    while pending:
        for user in users.get(pending.pop(), ()):
            if not user.alters:
                user.alters = True
                pending.append(user)

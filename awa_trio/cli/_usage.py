"""What is wrong with a command line, in one sentence: what, and how to mend it."""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterable
from datetime import datetime

from cyclopts import (
    Argument,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    Token,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)
from cyclopts.validators import Number

from .._slips import nearest

PROGRAM = "awa-trio"

#: What is to be given in place of what cannot be read.
_SORTS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "no value, or yes or no",
    datetime: "a time, as in 2030-01-31T09:00+02:00",
}


def usage_problem(error: CycloptsError) -> str:
    """Return what is wrong with a command line, and how to mend it."""
    path = " ".join(error.command_chain or ())
    match error:
        case MissingArgumentError(argument=Argument() as argument):
            return _missing(error, argument)
        case UnknownOptionError():
            given = error.token.keyword or error.token.value
            known = [
                name for one in error.argument_collection if one.parse for name in one.names
            ]
            return (
                f"{given} is no option of {path}; {_hint(path, given.partition('=')[0], known)}"
            )
        case CoercionError(argument=Argument() as argument, token=Token() as token):
            return f"{_given(argument, token)}: give {_wanted(argument)}"
        case ValidationError(argument=Argument(tokens=[token, *_]) as argument):
            wanted = _range(argument)
            said = f"give {wanted}" if wanted else error.exception_message
            return f"{_given(argument, token)}: {said}"
        case UnknownCommandError(unused_tokens=[given, *_]):
            names = [name for name in error.app or () if not name.startswith("-")]
            what = "option" if given.startswith("-") else "command"
            return f"{f'{path} {given}'.strip()} is no {what}; {_hint(path, given, names)}"
        case UnusedCliTokensError(unused_tokens=[*tokens]):
            return f"{' '.join(tokens)}: this is more than {path} takes; give {_example(error)}"
        case RepeatArgumentError():
            return f"{error.token.keyword} is given twice; give it once"
        case _:
            return str(error)


def place(argument: Argument) -> str:
    """Return how an argument without an option's name is written in the usage of a command."""
    several = typing.get_origin(argument.hint) is tuple
    name = f"{_name(argument)}..." if several else _name(argument)
    return name if argument.required else f"[{name}]"


def _name(argument: Argument) -> str:
    """The name of an option; or of one of what stands in a place."""
    several = typing.get_origin(argument.hint) is tuple and not argument.name.startswith("-")
    return argument.name.removesuffix("S") if several else argument.name


def _missing(error: MissingArgumentError, missing: Argument) -> str:
    # That of the error does not know what the docstring says of it.
    argument = next((one for one in _arguments(error) if one.name == missing.name), missing)
    what = f" ({_meaning(argument)})" if argument.parameter.help else ""
    keyword = error.keyword or next((t.keyword for t in missing.tokens if t.keyword), None)
    if keyword is not None:
        return f"{keyword} has no value; give {keyword} VALUE{what}"
    variables = argument.parameter.env_var or ()
    way_out = f", or set {' or '.join(variables)}" if variables else ""
    return f"{_name(argument)} is missing{what}; give {_example(error)}{way_out}"


def _meaning(argument: Argument) -> str:
    """What an argument is, from its help: its first sentence, to stand inside another."""
    first = " ".join((argument.parameter.help or "").split()).partition(". ")[0].rstrip(".")
    return first if first[1:2].isupper() else first[:1].lower() + first[1:]


def _example(error: CycloptsError) -> str:
    """How the command is given, with what it cannot do without."""
    every = _arguments(error)
    places = [place(one) for one in every if not one.name.startswith("-")]
    options = [f"{a.name} VALUE" for a in every if a.required and a.name.startswith("-")]
    return " ".join([PROGRAM, *(error.command_chain or ()), *places, *options])


def _arguments(error: CycloptsError) -> list[Argument]:
    if error.app is None:
        return []
    every = error.app.assemble_argument_collection(parse_docstring=True)
    return [argument for argument in every if argument.show]


def _hint(path: str, given: str, known: Iterable[str]) -> str:
    close = nearest(given, known)
    every = " ".join(filter(None, [PROGRAM, path, "--help"]))
    return f"did you mean {close[0]}?" if close else f"{every} has all"


def _given(argument: Argument, token: Token) -> str:
    """An argument as it was given: ``--limit x``, or what stands for itself."""
    value = repr(token.value) if not token.value.strip() else token.value
    return f"{token.keyword or _name(argument)} {value}"


def _wanted(argument: Argument) -> str:
    """What is to be given for an argument, whatever was."""
    one = _sort(argument.hint)
    if isinstance(one, type) and issubclass(one, enum.Enum):
        return f"one of {', '.join(str(choice.value) for choice in one)}"
    return _SORTS.get(one, "something else")


def _range(argument: Argument) -> str | None:
    """What a number must be, if it is a number that is wrong."""
    validators = argument.parameter.validator
    asked = validators if isinstance(validators, tuple) else (validators,)
    number = next((one for one in asked if isinstance(one, Number)), None)
    value = argument.value
    if number is None or not isinstance(value, (int, float)):
        return None
    sort = _SORTS.get(_sort(argument.hint), "a number")
    if number.lte is not None and value > number.lte:
        return f"{sort}, {number.lte:,} at most"
    return f"{sort}, {number.gte:,} at least"


def _sort(hint: object) -> object:
    """The type of one value: of ``int | None`` and ``tuple[int, ...]`` too."""
    inner = [one for one in typing.get_args(hint) if one not in (type(None), ...)]
    return _sort(inner[0]) if inner else hint

"""JSON as a job stores it: what may be in it, and its two spellings.

*Plain* values are exactly ``str, int, float, bool, None, list, dict``, and only
those among them that come back from JSON, and from PostgreSQL, as they went in.
`check_plain` is that rule. A subclass is not plain: a tuple would come back as
a list, an `enum.IntEnum` as a number.

`compact` is how plain values are stored: ASCII, so that bytes are the same in
every client encoding. `canonical` is how they are compared: keys sorted, UTF-8.

Elsewhere: values that are more than plain, `codec`; what is computed from the
canonical spelling, `unique`.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

#: JSON has no bound, but most of its readers keep whole numbers in 64 bits, and
#: PostgreSQL's ``bigint`` does.
MIN_INT = -(2**63)
MAX_INT = 2**63 - 1

#: Containers inside containers. Far beyond any hand-written type, and far below
#: where recursive readers (Python's, PostgreSQL's, a browser's) give up.
MAX_DEPTH = 64


class Misfit(Exception):
    """A value that cannot be stored or given back. Says what is wrong; not where, nor the value.

    Messages name types, never values: arguments may be secret, and messages
    reach logs.
    """


def name_of(value: object) -> str:
    """Name the type of a value, as error messages do."""
    return "None" if value is None else type(value).__name__


def shown(value: object) -> str:
    """A setting or a number as messages quote it; never what a user stores."""
    if type(value) is int:
        # Python does not print numbers of thousands of digits; nor would anybody read them.
        return f"{value:,}" if abs(value) < 10**30 else "a number as large as that"
    return repr(value)


def check_text(value: str) -> None:
    """Refuse characters that cannot be stored.

    Raises:
      Misfit: U+0000, which PostgreSQL's text cannot hold, or half of a
          surrogate pair, which is no character and has no UTF-8.
    """
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit("a lone surrogate cannot be stored") from None
    if "\0" in value:
        raise Misfit("U+0000 cannot be stored")


def check_int(value: int) -> None:
    """Refuse an integer that needs more than 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise Misfit("an integer outside 64 bits cannot be stored exactly everywhere")


def check_float(value: float) -> None:
    """Refuse a number that JSON has no spelling for."""
    if not math.isfinite(value):
        raise Misfit(f"{'NaN' if value != value else 'infinity'} is not JSON")


def check_plain(value: object, room: int = MAX_DEPTH) -> None:
    """Refuse a value unless it is plain through and through.

    Args:
      value: anything.
      room: how many containers deep it may be.

    Raises:
      Misfit: without saying where inside ``value``; look into its parts for that.
    """
    kind = type(value)
    if kind is str:
        check_text(value)  # type: ignore[arg-type]
    elif kind is int:
        check_int(value)  # type: ignore[arg-type]
    elif kind is float:
        check_float(value)  # type: ignore[arg-type]
    elif kind is dict:
        if not room:
            raise Misfit(TOO_DEEP)
        for key, item in value.items():  # type: ignore[attr-defined]
            check_key(key)
            check_plain(item, room - 1)
    elif kind is list:
        if not room:
            raise Misfit(TOO_DEEP)
        for item in value:  # type: ignore[attr-defined]
            check_plain(item, room - 1)
    elif value is not None and kind is not bool:
        raise Misfit(
            f"{name_of(value)} is not plain JSON, and no annotation here says how to give it"
            " back; use str, int, float, bool, None, list or dict, or annotate it"
        )


TOO_DEEP = f"nested more than {MAX_DEPTH} deep"


def check_key(key: object) -> None:
    """Refuse an object's key that is not a storable string."""
    if type(key) is not str:
        raise Misfit(f"a JSON object has str keys, not {name_of(key)}")
    check_text(key)


def depth(value: object) -> int:
    """Count how many containers deep a plain value is: 0 for a number, 1 for ``[]``."""
    deepest = 0
    level = [value]
    while level := [item for item in level if type(item) in (list, dict)]:
        deepest += 1
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)  # type: ignore[attr-defined]
        ]
    return deepest


_compact = json.JSONEncoder(
    ensure_ascii=True,
    allow_nan=False,
    # What is written is a fresh tree, or has passed `check_plain`, which ends at MAX_DEPTH.
    check_circular=False,
    separators=(",", ":"),
).encode

_unescaped = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode

_sorted = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    separators=(",", ":"),
    sort_keys=True,
).encode


def compact(plain: object) -> str:
    """Spell a plain value as it is stored: no whitespace, ASCII with ``\\u`` escapes."""
    return _compact(plain)


def canonical(plain: object) -> bytes:
    """Spell a plain value as it is compared: keys sorted by code point, no whitespace, UTF-8.

    The same as ``json.dumps(plain, sort_keys=True, separators=(",", ":"),
    ensure_ascii=False).encode()``.
    """
    return _sorted(plain).encode()


def utf8_size(text: bytes) -> int:
    """Count the bytes compact JSON would take as UTF-8, given it as ASCII.

    Only ``\\u`` escapes differ between the two, so that most of the time this is
    the length.
    """
    if b"\\u" not in text:
        return len(text)
    return len(_unescaped(_read(text.decode())).encode())


def _finite(digits: str) -> float:
    """Read a number with a fraction or an exponent; Python would read 1e999 as infinity."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_not_json)


def _read(text: str) -> Any:
    # What the database gives back has no whitespace around it; looking for some takes
    # half as long as reading a small object.
    if text[:1] == "{":
        value, end = _decoder.raw_decode(text)
        if end == len(text):
            return value
    return _decoder.decode(text)


def read(text: bytes | str) -> Any:
    """Read JSON as plain values, or nearly: depth and strings are left to be checked.

    Raises:
      ValueError: it is not JSON, not UTF-8, or holds a number no float is near.
      RecursionError: it is nested very deep.
    """
    return _read(text.decode() if isinstance(text, bytes) else text)

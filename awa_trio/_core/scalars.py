"""Values without parts as plain JSON: numbers, strings, and what is spelled as a string.

Every spelling is exact, and only that spelling, or one that says the same without
loss, is read: `datetime.fromisoformat` and its kin drop digits they cannot keep.
"""

from __future__ import annotations

import base64
import binascii
import re
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from .jsontext import Misfit, check_float, check_int, check_text, name_of
from .shapes import NONE, Scalar, Shape, found, unlike


def _dump_str(value: Any) -> str:
    if type(value) is not str:
        raise unlike("str", value)
    check_text(value)
    return value


def _load_str(plain: Any, _: object = None) -> str:
    if type(plain) is not str:
        raise found("a string", plain)
    check_text(plain)
    return plain


def _dump_int(value: Any) -> int:
    if type(value) is not int:
        raise unlike("int", value)
    check_int(value)
    return value


def _load_int(plain: Any, _: object = None) -> int:
    if type(plain) is not int:
        raise found("a whole number", plain)
    check_int(plain)
    return plain


def _dump_float(value: Any) -> float:
    if type(value) is float:
        check_float(value)
        return value
    # An int is a float to type checkers (PEP 484), so it is one here; and stays an int.
    if type(value) is int:
        return _dump_int(value)
    raise unlike("float", value)


def _load_float(plain: Any, _: object = None) -> float:
    if type(plain) is float:
        return plain
    if type(plain) is int:
        return _load_int(plain)
    raise found("a number", plain)


def _dump_bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise unlike("bool", value)


def _load_bool(plain: Any, _: object = None) -> bool:
    if plain is True or plain is False:
        return plain
    raise found("true or false", plain)


def _dump_none(value: Any) -> None:
    if value is not None:
        raise unlike("None", value)


def _load_none(plain: Any, _: object = None) -> None:
    if plain is not None:
        raise found("null", plain)


def _spelled(
    cls: type, what: str, write: Callable[[Any], str], parse: Callable[[str], Any]
) -> Scalar:
    """Make the shape of a class that is stored as a string."""

    def dump(value: Any) -> str:
        if type(value) is not cls:
            raise unlike(cls.__name__, value)
        return write(value)

    def load(plain: Any, _: object = None) -> Any:
        if type(plain) is not str:
            raise found(what, plain)
        try:
            return parse(plain)
        except (ValueError, ArithmeticError):
            raise Misfit(f"expected {what}, and this string is not one") from None

    return Scalar(cls, str, dump, load)


def _parse_uuid(text: str) -> UUID:
    value = UUID(text)
    if str(value) != text.lower():  # braces, urn:, hyphens left out
        raise ValueError
    return value


_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
#: No fractions: `fromisoformat` loses those of an offset of less than a second.
_OFFSET = r"(?:Z|[+-]\d\d:\d\d(?::\d\d)?)"
_DATETIME = re.compile(rf"(\d{{4}}-\d\d-\d\dT{_CLOCK}{_OFFSET})(?:\[([^\]]+)\])?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(rf"{_CLOCK}{_OFFSET}?", re.ASCII)
_TIMEDELTA = re.compile(r"PT(-?)(\d+)(?:\.(\d{1,6}))?S", re.ASCII)
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?(?:E[+-]?\d+)?", re.ASCII)


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError
    return match


def _is_fixed(zone: Any) -> bool:
    """Whether a zone is one offset all year round, for all years."""
    if type(zone) is timezone:
        return True
    try:
        return zone.utcoffset(None) is not None
    except Exception:  # zones of other libraries that know no answer
        return False


def _check_offset(offset: timedelta) -> None:
    if offset.microseconds:
        raise Misfit("an offset of a fraction of a second cannot be given back")


def _write_datetime(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is None:
        raise Misfit("a datetime without a time zone is an instant nobody knows")
    _check_offset(offset)
    if _is_fixed(value.tzinfo):
        return value.isoformat()
    key = value.tzinfo.key if type(value.tzinfo) is ZoneInfo else None
    if key is None:
        raise Misfit(f"the zone {name_of(value.tzinfo)} cannot be given back; use zoneinfo")
    text = f"{value.isoformat()}[{key}]"
    _parse_datetime(text)  # complains about a zone that is not what its name says
    return text


def _zone(key: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):
        return None


def _parse_datetime(text: str) -> datetime:
    instant, key = _match(_DATETIME, text).groups()
    value = datetime.fromisoformat(instant)
    if key is None:
        return value
    zone = _zone(key)
    if zone is None:
        raise Misfit(f"no data for time zone {key} here; pip install tzdata may help")
    for fold in (0, 1):
        zoned = value.replace(tzinfo=zone, fold=fold)
        if zoned.utcoffset() == value.utcoffset():
            return zoned
    raise Misfit(f"the rules of time zone {key} differ from where this was encoded")


def _parse_date(text: str) -> date:
    return date.fromisoformat(_match(_DATE, text).group())


def _write_time(value: time) -> str:
    if value.tzinfo is not None:
        offset = value.utcoffset()
        if offset is None:
            raise Misfit("a time of day in a zone has no offset of its own; use a datetime")
        _check_offset(offset)
    if value.fold:
        raise Misfit("a time of day with fold=1 cannot be given back")
    return value.isoformat()


def _parse_time(text: str) -> time:
    return time.fromisoformat(_match(_TIME, text).group())


def _write_timedelta(value: timedelta) -> str:
    # Seconds only, with the sign where both PostgreSQL and ISO 8601-2 read it.
    sign = "-" if value < timedelta(0) else ""
    seconds, micros = divmod(abs(value // timedelta(microseconds=1)), 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"PT{sign}{seconds}{fraction}S"


def _parse_timedelta(text: str) -> timedelta:
    sign, seconds, fraction = _match(_TIMEDELTA, text).groups()
    micros = int(seconds) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return timedelta(microseconds=-micros if sign else micros)


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Misfit("a Decimal that is not finite is not JSON")
    return str(value)


def _parse_decimal(text: str) -> Decimal:
    return Decimal(_match(_DECIMAL, text).group())


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _parse_bytes(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


STR = Scalar(str, str, _dump_str, _load_str)
_INT = Scalar(int, int, _dump_int, _load_int)
_FLOAT = Scalar(float, float, _dump_float, _load_float)
_FLOAT.classes = _FLOAT.json = frozenset({float, int})
_FLOAT.yields = frozenset({int})
_NULL = Scalar(NONE, NONE, _dump_none, _load_none)

SCALARS: dict[Any, Shape] = {
    str: STR,
    typing.LiteralString: STR,
    int: _INT,
    float: _FLOAT,
    bool: Scalar(bool, bool, _dump_bool, _load_bool),
    None: _NULL,
    NONE: _NULL,
    UUID: _spelled(UUID, "a UUID", str, _parse_uuid),
    datetime: _spelled(
        datetime, "a date and time with an offset", _write_datetime, _parse_datetime
    ),
    date: _spelled(date, "a date", date.isoformat, _parse_date),
    time: _spelled(time, "a time of day", _write_time, _parse_time),
    timedelta: _spelled(
        timedelta, "a number of seconds PT…S", _write_timedelta, _parse_timedelta
    ),
    Decimal: _spelled(Decimal, "a decimal number in a string", _write_decimal, _parse_decimal),
    bytes: _spelled(bytes, "base64", _write_bytes, _parse_bytes),
}

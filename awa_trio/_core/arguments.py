"""Whether a value is what a parameter takes, in one sentence if it is not.

Without these checks a slip shows up as an error of the driver's or of Python's own,
somewhere below, which names neither the parameter nor what it takes. A value of another
type is a `TypeError`; one that is out of range is a `ValueError`, or what the caller says.

Elsewhere: what is enqueued, `request`; settings, `settings`.
"""

from __future__ import annotations

from .jsontext import MAX_INT, Misfit, check_text, name_of, shown

#: What PostgreSQL's ``int`` holds.
MAX_INT4 = 2**31 - 1


def check_type(parameter: str, value: object, expected: type, article: str = "a") -> None:
    """Refuse a value that is no instance of a class; True and False are not numbers.

    Raises:
      TypeError: it is of another type.
    """
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise TypeError(
            f"{parameter}: give {article} {expected.__name__}, not {name_of(value)}"
        )


def check_whole(
    parameter: str,
    value: object,
    least: int = 1,
    most: int = MAX_INT,
    error: type[Exception] = ValueError,
) -> None:
    """Refuse what is not a whole number in a range.

    Raises:
      TypeError: it is no int.
      ValueError: it is out of the range; or ``error``.
    """
    check_type(parameter, value, int, "an")
    assert isinstance(value, int)
    if not least <= value <= most:
        raise error(
            f"{parameter}: give a whole number from {least:,} to {most:,}, not {shown(value)}"
        )


def check_seconds(parameter: str, value: object, error: type[Exception] = ValueError) -> None:
    """Refuse what is not a number of seconds, from 0 to infinity.

    Raises:
      TypeError: it is no number.
      ValueError: it is negative, or not a number after all; or ``error``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{parameter}: give seconds, as a number, not {name_of(value)}")
    if not value >= 0:
        raise error(f"{parameter}: give at least 0 seconds, not {shown(value)}")
    try:
        float(value)
    except OverflowError:
        raise error(f"{parameter}: so many seconds are for ever; give math.inf") from None


def check_string(
    parameter: str,
    value: object,
    *,
    most: int | None = None,
    error: type[Exception] = ValueError,
) -> None:
    """Refuse what is not text that PostgreSQL could hold.

    Args:
      parameter: what the message calls it.
      value: what was given.
      most: characters it may have, at least one; default, any number, or none.
      error: what is raised for a str that will not do.

    Raises:
      TypeError: it is no str.
      ValueError: it has U+0000, half of a surrogate pair, or another length; or ``error``.
    """
    check_type(parameter, value, str)
    assert isinstance(value, str)
    try:
        check_text(value)
    except Misfit as misfit:
        raise error(f"{parameter}: {misfit}") from None
    if most is not None and not 1 <= len(value) <= most:
        raise error(f"{parameter}: give 1 to {most} characters, not {len(value):,}")

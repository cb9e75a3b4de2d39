"""Whether a value is what a parameter takes, in one sentence if it is not.

Without these checks a slip shows up as an error of the driver's or of Python's own,
somewhere below, which names neither the parameter nor what it takes. A value of another
type is a `TypeError`; one that is out of range is a `ValueError`, or what the caller says.

Elsewhere: what is enqueued, `request`; settings, `settings`.
"""

from __future__ import annotations

import math

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
    *,
    instead: str = "",
    error: type[Exception] = ValueError,
    wrong_type: type[Exception] = TypeError,
) -> None:
    """Refuse what is not a whole number in a range.

    Args:
      parameter: what the message calls it.
      value: what was given.
      least: the least it may be.
      most: the most it may be.
      instead: what else may be given, as in ``" or None for no limit"``.
      error: what is raised for an int that will not do.
      wrong_type: what is raised for anything else.

    Raises:
      TypeError: it is no int; or ``wrong_type``.
      ValueError: it is out of the range; or ``error``.
    """
    refused, given = error, shown
    if isinstance(value, bool) or not isinstance(value, int):
        refused, given = wrong_type, name_of
    elif least <= value <= most:
        return
    bounds = f"{least:,} on" if most == MAX_INT else f"{least:,} to {most:,}"
    raise refused(
        f"{parameter}: give a whole number from {bounds}{instead}, not {given(value)}"
    )


def check_seconds(
    parameter: str,
    value: object,
    least: float = 0.0,
    most: float = math.inf,
    *,
    positive: bool = False,
    instead: str = "",
    error: type[Exception] = ValueError,
    wrong_type: type[Exception] = TypeError,
) -> float:
    """Return a number of seconds in a range; refuse what is none.

    Args:
      parameter: what the message calls it.
      value: what was given.
      least: the least it may be.
      most: the most it may be; by default it may be infinite.
      positive: whether it must be more than the least.
      instead: what else may be given, as in ``" or a timedelta"``.
      error: what is raised for a number that will not do.
      wrong_type: what is raised for anything else.

    Raises:
      TypeError: it is no number; or ``wrong_type``.
      ValueError: it is out of the range, or not a number after all; or ``error``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(
            f"{parameter}: give seconds, as a number{instead}, not {name_of(value)}"
        )
    if not least <= value <= most or (positive and value == least):
        if positive:
            bounds = f"more than {least:g} and at most {most:,.0f}"
        else:
            bounds = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:,.0f}"
        raise error(f"{parameter}: give {bounds} seconds{instead}, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise error(f"{parameter}: so many seconds are for ever; give math.inf") from None


def check_string(
    parameter: str,
    value: object,
    *,
    most: int | None = None,
    error: type[Exception] = ValueError,
    wrong_type: type[Exception] = TypeError,
) -> str:
    """Return text, plain; refuse what is none that PostgreSQL could hold.

    Args:
      parameter: what the message calls it.
      value: what was given.
      most: characters it may have, at least one; default, any number, or none.
      error: what is raised for a str that will not do.
      wrong_type: what is raised for anything else.

    Raises:
      TypeError: it is no str; or ``wrong_type``.
      ValueError: it has U+0000, half of a surrogate pair, or another length; or ``error``.
    """
    if not isinstance(value, str):
        raise wrong_type(f"{parameter}: give a str, not {name_of(value)}")
    text = str.__str__(value)  # a plain one, also of a member of an enum
    try:
        check_text(text)
    except Misfit as misfit:
        raise error(f"{parameter}: {misfit}") from None
    if most is not None and not 1 <= len(text) <= most:
        raise error(f"{parameter}: give 1 to {most} characters, not {len(text):,}")
    return text

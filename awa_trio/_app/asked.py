"""What a client is asked for: an ID, a page, a filter; refused before anything is sent.

Elsewhere: whether one value is what a parameter takes, `_core.arguments`; requests to
enqueue, `_core.request`.
"""

from __future__ import annotations

import enum
from typing import TypeVar

from .._core.arguments import MAX_INT4, check_string, check_type, check_whole
from .._core.errors import JobNotFound
from .._core.jsontext import MAX_INT

WordT = TypeVar("WordT", bound=enum.StrEnum)


def check_job_id(job_id: object) -> None:
    """Refuse what no job's ID can be.

    Raises:
      TypeError: it is no int.
      JobNotFound: it is out of the range of IDs.
    """
    check_type("job_id", job_id, int, "an")
    assert isinstance(job_id, int)
    if not 1 <= job_id <= MAX_INT:
        raise JobNotFound(job_id)


def check_page(limit: object, before_id: object) -> None:
    """Refuse a page of a list that there cannot be.

    Raises:
      TypeError: one of them is no int.
      ValueError: one of them is out of its range.
    """
    check_whole("limit", limit, most=MAX_INT4)
    if before_id is not None:
        check_whole("before_id", before_id)


def check_filter(**wanted: object) -> None:
    """Refuse names that no job can have; None is any.

    Raises:
      TypeError: one is no str.
      ValueError: PostgreSQL could not hold it.
    """
    for parameter, value in wanted.items():
        if value is not None:
            check_string(parameter, value)


def word_of(parameter: str, words: type[WordT], given: object) -> WordT:
    """Return which of certain words was given.

    Raises:
      ValueError: it is none of them.
    """
    for word in words:
        if word == given:
            return word
    raise ValueError(
        f"{parameter}: there is no {parameter} {given!r}; there are {', '.join(words)}"
    )

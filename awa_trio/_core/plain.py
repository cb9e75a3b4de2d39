"""Encode what a handler wants kept on its job: plain JSON, or a clear refusal."""

from __future__ import annotations

from functools import cache
from typing import Any

from .codec import Codec
from .errors import InvalidRequest, InvalidValue


@cache
def _codec() -> Codec:
    # Not the application's: whoever reads this back does not have its hooks.
    return Codec()


def encode_plain(value: object, type_: Any, root: str) -> bytes:
    """Encode a value as compact JSON, in ASCII.

    Args:
      value: what to encode; not kept.
      type_: ``object`` for any JSON value, ``dict`` for an object.
      root: what error messages call it.

    Raises:
      InvalidValue: it is not plain JSON. Names the path to each part that is not.
    """
    try:
        return _codec().encode(value, type_, root=root)
    except InvalidRequest as error:
        raise InvalidValue(error.problem) from None

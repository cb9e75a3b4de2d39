"""The kind of a job, from the name of the class of its arguments."""

from __future__ import annotations

import functools
import typing

from .errors import ConfigurationError


def kind_of(cls: object) -> str:
    """Derive a kind: ``SendEmail`` becomes ``send_email``.

    A word begins at a capital after anything but a capital, and at the last
    capital of a run that a small letter follows: ``PDFRenderJob`` becomes
    ``pdf_render_job``, ``OAuthRefresh`` becomes ``o_auth_refresh``, ``HTMLToPDF``
    becomes ``html_to_pdf``. A digit belongs to the word before it:
    ``ProcessV2Import`` becomes ``process_v2_import``. Underscores at either end
    are dropped. Only the class's own name counts, neither its module nor a class
    around it, and of a generic alias such as ``Page[int]`` only ``Page``.

    Raises:
      ConfigurationError: it is not a class, or its name is all underscores.
    """
    origin = typing.get_origin(cls)
    if isinstance(origin, type) and issubclass(origin, typing.Generic):
        cls = origin
    kind = _snake_case(cls.__name__) if isinstance(cls, type) else ""
    if not kind:
        raise ConfigurationError(f"{cls!r} has no name to make a kind of; give kind=...")
    return kind


@functools.lru_cache(maxsize=1024)
def _snake_case(name: str) -> str:
    # The underscores at both ends stand for "nothing there".
    padded = f"_{name.strip('_')}_"
    return "".join(
        f"_{here}" if here.isupper() and _begins_word(before, after) else here
        for before, here, after in zip(padded, padded[1:], padded[2:], strict=False)
    ).lower()


def _begins_word(before: str, after: str) -> bool:
    return before != "_" and (not before.isupper() or after.islower())

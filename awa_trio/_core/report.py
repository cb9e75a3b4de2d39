"""What of an exception is recorded on the job.

The leaves of a group, each with the frames of the user's code that led to it,
innermost last: what whoever looks at the job at night needs first. Frames of
Trio and of this package say nothing about the handler and are left out.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from .outcome import CutShort, leaves

#: Kept of one failure. 25 attempts then fit in about 200 KB of row.
MAX_REPORT_CHARS = 8_000
MAX_LEAVES = 10
MAX_FRAMES = 12

_HIDDEN = (
    *(
        str(Path(spec.origin).parent)
        for name in ("awa_trio", "trio", "outcome", "anyio")
        if (spec := find_spec(name)) is not None and spec.origin is not None
    ),
    # It stands between a resource's frames and those it was opened for.
    contextlib.__file__,
)

#: What jsonb refuses in a string: NUL, and halves of surrogate pairs.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Replace what PostgreSQL cannot store in a string by its escape, as in ``\\x00``."""
    if _UNSTORABLE.search(text) is None:
        return text
    return _UNSTORABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def report(error: BaseException | str) -> str:
    """Return the text to record for ``error``: at most 8,000 characters, always storable.

    Never raises, whatever the exception's own ``__str__`` does.
    """
    if isinstance(error, str):
        return storable(error)[:MAX_REPORT_CHARS]
    try:
        return _report(error)
    except BaseException as broken:
        # Its own code runs when it is looked at: properties, __getattr__, __class__.
        return f"{type(error).__qualname__}: it cannot be read, {type(broken).__name__}"


def _report(error: BaseException) -> str:
    parts = [_one(leaf) for _, leaf in zip(range(MAX_LEAVES), leaves(error), strict=False)]
    if isinstance(error, CutShort) and error.cleanup is not None:
        parts += ["and the handler's cleanup raised:", report(error.cleanup)]
    return storable("\n".join(parts))[:MAX_REPORT_CHARS]


def headline(error: BaseException | str) -> str:
    """Return what may be logged of an error: its type and place, never its message.

    A message may quote the job's arguments; ``ValueError at app.py:12 in charge`` cannot.
    """
    if isinstance(error, str):
        return error
    names = []
    for _, leaf in zip(range(MAX_LEAVES), leaves(error), strict=False):
        frames = _frames(leaf.__traceback__)
        where = ""
        if frames:
            last = frames[-1]
            where = f" at {Path(last.filename).name}:{last.lineno} in {last.name}"
        names.append(f"{type(leaf).__qualname__}{where}")
    return "; ".join(names)


def places(error: BaseException) -> str:
    """Return a traceback without messages: where it was raised, and nothing of what it says."""
    lines = traceback.format_tb(error.__traceback__)
    return "".join([*lines, type(error).__qualname__])


def _one(error: BaseException) -> str:
    message = _message(error)
    lines = [f"{_name(error)}: {message}" if message else _name(error)]
    lines += [
        f"  {frame.filename}:{frame.lineno} in {frame.name}"
        + (f"\n    {frame.line}" if frame.line else "")
        for frame in _frames(error.__traceback__)
    ]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and not isinstance(cause, BaseExceptionGroup):
        lines.append(f"  from {_name(cause)}: {_message(cause)}")
    return "\n".join(lines)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def _name(error: BaseException) -> str:
    kind = type(error)
    # Nobody can import what is private to us, and it may move.
    if kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("awa_trio._"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _frames(tb: TracebackType | None) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(tb)
    return [frame for frame in frames if not hidden(frame.filename)][-MAX_FRAMES:]


def hidden(filename: str) -> bool:
    """Whether a frame of this file says nothing about the user's code."""
    return filename.startswith(_HIDDEN)

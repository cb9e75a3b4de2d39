"""What people read: instants, durations, counts and errors as words."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from .. import Rate, _times

#: What a browser obeys instead of showing, or cannot be sent: controls but for tab and
#: newline, what reverses the direction of text, and halves of surrogate pairs.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\u200b-\u200f]"
)

#: Characters that are shown of one value.
MOST_SHOWN = 100_000

#: As the recorder of errors writes the first line, if it is an exception's, and its frames.
_TYPE = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::|$)")
_FRAME = re.compile(r"  (\S.*:\d+) in (\S+)")

#: How exceptions are called that have no frames of the user's code.
_NAMES = ("Error", "Exception", "Exceeded", "Interrupted", "CallbackInvalid", "UndecodableArgs")

#: What awa_trio itself records, which quotes nothing.
OWN_ERRORS = frozenset(
    {
        "callback timed out",
        "its callback timed out",
        "its deadline passed and its worker did not settle it",
        "its handler waited for a callback in a worker that is presumed dead",
        "the worker stopped beating and is presumed dead",
    }
)


def visible(text: str) -> str:
    r"""Show as escapes, as in ``\x1b``, what a browser would obey or hide."""
    return _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], text)


def ago(instant: datetime | None, now: datetime | None = None) -> str:
    """Return an instant as people say it: how long ago, or in how long."""
    if instant is None:
        return ""
    return _times.ago(((now or datetime.now(UTC)) - instant).total_seconds())


def exact(instant: datetime | None) -> str:
    """Return an instant to the second, in UTC."""
    return "" if instant is None else _times.exact(instant)


def rate(per_second: float) -> str:
    """Return how many a second."""
    if per_second >= 100:
        return f"{per_second:,.0f}"
    return f"{per_second:.3g}" if per_second >= 0.1 or per_second == 0 else f"{per_second:.2f}"


def pretty(raw: bytes | str | None) -> str:
    """Return JSON with a line for each part; as it is, where Python will not read it."""
    if raw is None:
        return ""
    text = raw if isinstance(raw, str) else raw.decode(errors="replace")
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}\n… and {len(text) - MOST_SHOWN:,} characters more"


def plain(value: Any) -> str:
    """Return a value of JSON as its text."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def headline(error: str) -> str:
    """Return of a recorded error what quotes no arguments: its type and its place.

    Empty, if it is not an exception's: then all of it is somebody's words.
    """
    lines = error.split("\n")
    if lines[0] in OWN_ERRORS:
        return lines[0]
    found = _TYPE.match(lines[0])
    frames = [frame for line in lines[1:] if (frame := _FRAME.fullmatch(line))]
    # Somebody's words may begin with a capital too; what has frames was an exception.
    if found is None or not (frames or found[1].endswith(_NAMES)):
        return ""
    if not frames:
        return found[1]
    path, function = frames[-1].groups()
    return f"{found[1]} at {path.rpartition('/')[2]} in {function}"


def first_line(text: str, most: int = 200) -> str:
    """Return the first line, shortened."""
    line = text.partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def sentence(text: str) -> str:
    """Begin with a capital."""
    return text[:1].upper() + text[1:]


#: Settings of queues that are seconds.
_SECONDS = frozenset({"deadline", "priority_ageing"})


def setting(name: str, value: object) -> str:
    """Return the value of a setting as people say it."""
    if value is None:
        return "no limit"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Rate):
        per = "second" if value.per == 1 else f"{value.per:g} s"
        return f"{value.count:g} per {per}, {value.burst} at once"
    if not isinstance(value, (int, float)):
        return str(value)
    if name in _SECONDS:
        return f"{value:,g} s" if value else "none"
    return f"{value:,g}"

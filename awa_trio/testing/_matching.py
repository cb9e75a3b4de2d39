"""Whether a job is what a test wants, and how to say what was there instead.

Decides and words; who asks where the jobs are is `_assertions`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import attrs

#: Jobs that a failure shows.
SHOWN = 10

#: Characters of one value in it.
WIDTH = 300


class Wanted(TypedDict, total=False):
    """What a job is to be like, beside its kind and its arguments."""

    queue: str
    priority: int
    max_attempts: int
    tags: Sequence[str]
    """Tags it must have; it may have others."""
    metadata: Mapping[str, Any]
    """A part of its metadata."""
    run_at: datetime | None
    """Its earliest start; None for at once."""
    ordering_key: str | None
    limit_key: str | None
    deadline: float | None
    unique: bool
    """Whether it counts as a duplicate of others."""


@attrs.frozen
class Seen:
    """A job that is there: staged, or in a store."""

    kind: str
    args: Any
    """As dicts, lists, strings and numbers."""
    options: Mapping[str, Any]
    """By the names of `Wanted`."""
    about: str
    """What else to say of it."""
    found: Any
    """What whoever asked is given."""


def mismatches(seen: Seen, kind: str | None, args: Any, wanted: Wanted) -> list[str]:
    """What about a job is not as wanted, a few words each; empty if it is the one."""
    wrong = []
    if kind is not None and seen.kind != kind:
        wrong.append(f"kind {seen.kind!r}, not {kind!r}")
    wrong += _unlike("args", seen.args, args)
    for name, value in wanted.items():
        have = seen.options[name]
        if name == "tags":
            assert isinstance(value, Sequence)
            missing = [tag for tag in value if tag not in have]
            if missing:
                wrong.append(f"tags {list(have)!r} lack {', '.join(map(repr, missing))}")
        elif name == "metadata":
            wrong += _unlike("metadata", have, value)
        elif have != value:
            wrong.append(f"{name} {_short(have)}, not {_short(value)}")
    return wrong


def _unlike(path: str, have: Any, want: Any) -> list[str]:
    """Where ``have`` lacks something of ``want``: objects may have more, all else is equal."""
    if isinstance(want, Mapping) and isinstance(have, Mapping):
        wrong = []
        for key, value in want.items():
            if key in have:
                wrong += _unlike(f"{path}.{key}", have[key], value)
            else:
                wrong.append(f"{path} has no {key!r}")
        return wrong
    return [] if _same(have, want) else [f"{path} {_short(have)}, not {_short(want)}"]


def _same(have: Any, want: Any) -> bool:
    # In JSON, and so to whoever reads a job, 1 is not true.
    return have == want and isinstance(have, bool) == isinstance(want, bool)


def description(kind: str | None, args: Any, wanted: Wanted) -> str:
    """What was wanted, in a line."""
    parts = [kind or "a job of any kind"]
    if args:
        parts.append(f"args={_short(args)}")
    parts += [f"{name}={_short(value)}" for name, value in wanted.items()]
    return "  ".join(parts)


def there_was(jobs: Sequence[Seen], kind: str | None, args: Any, wanted: Wanted) -> str:
    """What was there, nearest first, with what is wrong about each."""
    if not jobs:
        return "there was none at all"
    ranked = sorted(
        ((mismatches(seen, kind, args, wanted), seen) for seen in jobs),
        # Of the same kind before any other: that is the one that was meant.
        key=lambda one: (kind is not None and one[1].kind != kind, len(one[0])),
    )
    lines = ["there were, nearest first:"]
    for wrong, seen in ranked[:SHOWN]:
        lines.append(f"  {seen.kind}  args={_short(seen.args)}{seen.about}")
        lines.append(f"    {'; '.join(wrong)}" if wrong else "    as wanted")
    if len(ranked) > SHOWN:
        lines.append(f"  and {len(ranked) - SHOWN} more")
    return "\n".join(lines)


def _short(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = repr(value)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}..."

"""Values that break things, drawn from a seeded source of chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

#: Text that means something to a database, a terminal, a format, an encoding or a log.
PIECES = (
    "\0", "\ud800", "\udfff", "\ud83d\ude00", "\U0010ffff", "\u202e", "\u2028", "\ufeff", "\ufffe",
    "'", '"', "\\", "{}", "{", "}", "[", "$1", "$$", "%s", "%(x)s", "{0}", "; DROP SCHEMA awa; --",
    "\n", "\r\n", "\t", "\x1b[2J", "\x7f", "\x85", "\\u0000", "\\x00", "NULL", "null", "NaN", "é",
    "e\u0301", "ß", "İ", "a" * 199, "a" * 201, "日本" * 70, "", " ", "0", "-1", "awa:", "awa:jobs",
    "../../etc/passwd", "<script>", "[bold]", "[/]", "\U0001f6a8",
)  # fmt: skip

#: What is no text, no number, or no number that fits.
NUMBERS = (
    0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400, 10**5000,
    0.0, -0.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 0.1, True, False,
)  # fmt: skip

BIG = 10_000_000


class Recursive(list[Any]):
    """A list that holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self.append(self)


class Rude:
    """Whatever is asked of it, it raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]


class Lying(str):
    """A str that says it is another."""

    def __str__(self) -> str:
        return "lied"


STRANGE: tuple[Callable[[], object], ...] = (
    object, Rude, Recursive, bytes, lambda: b"\xff\0", lambda: bytearray(b"x"), lambda: {1, 2},
    lambda: {1: 2}, lambda: {None: 1}, lambda: {("a",): 1}, lambda: complex(1, 2), lambda: ...,
    lambda: (x for x in "abc"), lambda: Decimal("NaN"), lambda: Decimal("1e999999"), lambda: print,
    lambda: Rude, lambda: Lying("x"), lambda: datetime(1, 1, 1),  # noqa: DTZ001
    lambda: datetime.max.replace(tzinfo=UTC), lambda: datetime.min.replace(tzinfo=UTC),
    lambda: timedelta.max, lambda: UUID(int=0), lambda: memoryview(b"x"), lambda: range(3),
    lambda: "a" * BIG, lambda: ["x"] * 100_000, lambda: deep(200), lambda: deep(100_000),
    lambda: {"k" * BIG: 1}, lambda: RecursionError("x"),
)  # fmt: skip


def deep(levels: int) -> object:
    """A list in a list in a list."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def text(chance: Random) -> str:
    return "".join(chance.choice(PIECES) for _ in range(chance.choice((1, 1, 2, 3, 8))))


def plain(chance: Random, room: int = 4) -> object:
    """What JSON has, and a little more."""
    match chance.randrange(8 if room else 5):
        case 0 | 1:
            return text(chance)
        case 2 | 3:
            return chance.choice(NUMBERS)
        case 4:
            return None
        case 5 | 6:
            return [plain(chance, room - 1) for _ in range(chance.randrange(4))]
        case _:
            return {text(chance): plain(chance, room - 1) for _ in range(chance.randrange(4))}


def anything(chance: Random) -> Any:
    """Any value at all; one in thirty is large."""
    if chance.random() < 0.3:
        return chance.choice(STRANGE)()
    return plain(chance)

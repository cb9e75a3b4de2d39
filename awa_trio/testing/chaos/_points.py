"""Places to break something, and ways to."""

from __future__ import annotations

import enum

import attrs

from ..._core.errors import ConfigurationError


class Moment(enum.StrEnum):
    """When, of a call of the store."""

    BEFORE = "before"
    """Nothing has happened yet."""
    AFTER = "after"
    """It has happened, and nobody has heard of it."""


class Fault(enum.StrEnum):
    """What happens there."""

    KILL = "kill"
    """The worker is gone from one moment to the next, with everything it knew. Others find
    out when its lease is over."""
    FENCE = "fence"
    """The worker stands still for so long that it is presumed dead, and others take over; then
    it goes on as if nothing had been."""
    DISCONNECT = "disconnect"
    """The connection is lost. `Moment.BEFORE` a call it did not happen; `Moment.AFTER` it, the
    answer of a commit is lost. Handlers' own calls raise `awa_trio.DatabaseUnavailable`."""


@attrs.frozen
class Point:
    """One place: ``after settle#1``, or ``after shop.py:41#2``."""

    what: str
    """A call of the store that writes, such as ``claim`` or ``settle``; or the line of a
    handler that waits, as FILE:LINE."""
    number: int
    """Which of those in one run, from 1."""
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.what}#{self.number}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """Return the point that a text names.

        Raises:
          ConfigurationError: it names none.
        """
        moment, _, rest = text.partition(" ")
        what, _, number = rest.rpartition("#")
        if moment not in set(Moment) or not what or not number.isdecimal():
            raise ConfigurationError(
                f"{text!r} is no point; give one as it is printed, such as 'after settle#1'"
            )
        return cls(what, int(number), Moment(moment))

    @property
    def in_handler(self) -> bool:
        """Whether it is a line of a handler."""
        return ":" in self.what

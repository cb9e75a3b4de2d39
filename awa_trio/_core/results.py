"""What a handler can return to say how its attempt ended."""

from __future__ import annotations

from typing import TypeAlias, final

import attrs

from .arguments import check_seconds

#: A century. Longer delays are slips of a unit, and the database's calendar ends.
MAX_DELAY = 100 * 365.25 * 86_400


@final
@attrs.frozen
class Completed:
    """The job is done. Returning ``None`` means the same."""


class ControlFlow(Exception):
    """A handler's answer that is not "done": return it, or raise it from anywhere below.

    Raised in a task of a nursery it arrives in an exception group. A group of
    nothing but these means `Cancel`, or else the longest of its delays.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.args))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


@final
class RetryAfter(ControlFlow):
    """This attempt failed; run again after ``seconds``. Uses up an attempt.

    On the last attempt the job fails.

    Raises:
      TypeError: ``seconds`` is not a number.
      ValueError: it is negative, not finite, or more than a century.
    """

    seconds: float
    """Delay, by the database's clock, from the moment this is settled."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = check_seconds("RetryAfter", seconds, most=MAX_DELAY)


@final
class Snooze(ControlFlow):
    """Not yet; run again after ``seconds``. Does not use up an attempt.

    Raises:
      TypeError: ``seconds`` is not a number.
      ValueError: it is negative, not finite, or more than a century.
    """

    seconds: float
    """Delay, by the database's clock, from the moment this is settled."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = check_seconds("Snooze", seconds, most=MAX_DELAY)


@final
class Cancel(ControlFlow):
    """The job is no longer wanted: it becomes cancelled, with ``reason`` recorded."""

    reason: str
    """Why, for people who look at the job later."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)
        self.reason = str(reason)


@final
class WaitForCallback(ControlFlow):
    """Park the job until an external system resolves ``token``.

    The attempt's context is gone while the job is parked, so what it staged is
    discarded (ADR-046, "When staged follow-ups commit").

    Raises:
      TypeError: ``token`` is not a string.
    """

    token: str
    """What names the callback."""

    def __init__(self, token: str) -> None:
        if not isinstance(token, str):
            raise TypeError(f"WaitForCallback takes a token, not {type(token).__name__}")
        super().__init__(token)
        self.token = token

    def __str__(self) -> str:
        # Whoever has the token can resolve the callback, and messages reach logs.
        return "park the job until its callback is resolved"


Result: TypeAlias = Completed | RetryAfter | Snooze | Cancel | WaitForCallback

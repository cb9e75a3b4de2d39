"""Rates: a token bucket as a value, and what is in it at a moment.

Who keeps the bucket decides whose clock it is: a worker for a rate of its own, the database
for a rate of all workers together, where awa.tokens does the same in SQL.
"""

from __future__ import annotations

import math
from typing import Any

import attrs

from .arguments import check_whole
from .errors import ConfigurationError
from .jsontext import shown

#: Jobs and seconds of a rate: what a double counts to the microsecond.
MOST_COUNT = 1e6
MOST_PER = 366 * 86_400.0

#: So near to a whole token it is one: a bucket is refilled in fractions, which do not add up.
HAIR = 1e-6


@attrs.frozen(init=False)
class Rate:
    """So many starts in so many seconds: ``Rate(10)`` is ten a second, ``Rate(300, per=60)`` five.

    A token bucket. It gets ``count`` tokens in ``per`` seconds, evenly, and holds ``burst`` at
    most; each attempt that starts takes one. So in any stretch of ``t`` seconds no more than
    ``burst + t * count / per`` start.

    Args:
      count: how many, more than 0, at most a million.
      per: in how many seconds, at most a year. Default, one.
      burst: how many may start at once after a pause, a whole number. Default, what comes in
          in a tenth of a second, and at least 1: smooth, and no second has more than a tenth
          too many.

    Raises:
      ConfigurationError: a value is out of its range.
    """

    count: float
    per: float
    burst: int

    def __init__(self, count: float, *, per: float = 1.0, burst: int | None = None) -> None:
        _check("count", count, MOST_COUNT)
        _check("per", per, MOST_PER)
        if not 1 / MOST_PER <= count / per <= MOST_COUNT:
            raise ConfigurationError(
                f"Rate({shown(count)}, per={shown(per)}): give a rate from one a year to"
                f" {MOST_COUNT:,.0f} a second"
            )
        if burst is None:
            burst = max(1, math.floor(count / per / 10 + HAIR))
        check_whole(
            "Rate.burst",
            burst,
            most=int(MOST_COUNT),
            error=ConfigurationError,
            wrong_type=ConfigurationError,
        )
        self.__attrs_init__(float(count), float(per), burst)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def per_second(self) -> float:
        """Tokens a second."""
        return self.count / self.per

    def to_json(self) -> dict[str, float]:
        """Return it as the database keeps it."""
        return {"count": self.count, "per": self.per, "burst": self.burst}

    @classmethod
    def from_json(cls, value: Any) -> Rate:
        """Return what `to_json` gave."""
        return cls(value["count"], per=value["per"], burst=int(value["burst"]))


def _check(name: str, value: object, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise ConfigurationError(
            f"Rate.{name}: give a number above 0, of at most {most:,.0f}, not {shown(value)}"
        )


@attrs.frozen
class Bucket:
    """How many tokens there were, and when."""

    tokens: float
    at: float
    """Seconds, of whatever clock."""


def tokens(rate: Rate, bucket: Bucket | None, now: float) -> float:
    """Return what is in a bucket: full if it is new; nothing is lost by a clock that is set back."""
    if bucket is None:
        return float(rate.burst)
    gained = max(0.0, now - bucket.at) * rate.per_second
    return min(float(rate.burst), bucket.tokens + gained)


def whole(level: float) -> int:
    """Return how many may be taken."""
    return max(0, math.floor(level + HAIR))


def take(rate: Rate, bucket: Bucket | None, count: int, now: float) -> Bucket:
    """Return a bucket after ``count`` were taken; below nothing, if there were not so many."""
    return Bucket(tokens(rate, bucket, now) - count, now)


def seconds_to(rate: Rate, bucket: Bucket | None, now: float) -> float:
    """Return the seconds until one may be taken; 0 if one may now."""
    level = tokens(rate, bucket, now)
    return 0.0 if whole(level) else (1.0 - level) / rate.per_second

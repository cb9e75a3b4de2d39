"""When a schedule fires: pure arithmetic on instants, given the time.

A cron expression speaks of what a clock on a wall shows, and such clocks are set forward and
back. Which of two meanings it has is decided by its text, as in Debian's cron:

- *fixed times*: neither the second, nor the minute, nor the hour has a star. It fires when
  the clock first shows the time, or first jumps past it: once for a time that does not
  exist, at the end of the gap; once for a time that is shown twice, the first time.
- *intervals*: all others. They fire whenever the clock shows such a time: not at all in a
  gap, and again in the hour that is repeated.

The expressions are cronsim's; what it makes of time zones is not used. It only ever counts
on the clock of a zone that never changes, between two changes of the real one.

Elsewhere: what a schedule enqueues, `schedules`; who fires, `_runtime.schedules`.

Source: cron(8) of Debian, "Daylight Saving Time and other time changes".
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

import attrs

from .arguments import check_seconds, check_string
from .errors import ConfigurationError
from .settings import MAX_SECONDS

SECOND = timedelta(seconds=1)

#: Offsets are compared in such steps: no zone has ever changed its clock twice in one.
_STEP = timedelta(hours=12)

#: Some day in whose next decades every expression that ever fires does.
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001, the clock of no zone

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Rule(Protocol):
    """At which instants something is due. All instants are in UTC."""

    @property
    def text(self) -> str:
        """As people write it, and as the database keeps it."""
        ...

    @property
    def timezone(self) -> str | None:
        """The zone whose clock it means; None if it means none."""
        ...

    @property
    def zone(self) -> ZoneInfo | None:
        """The same, as a clock."""
        ...

    def after(self, instant: datetime, since: datetime) -> datetime | None:
        """Return the first instant after this one; None if there is none in 50 years, or ever."""
        ...

    def back_from(self, instant: datetime, since: datetime) -> Iterator[datetime]:
        """Yield the instants up to and with this one, the last first."""
        ...


@attrs.frozen
class Cron:
    """A cron expression, on the clock of a time zone."""

    text: str
    zone: ZoneInfo

    @property
    def timezone(self) -> str:
        """The zone's name."""
        return self.zone.key

    @property
    def fixed(self) -> bool:
        """Whether it means fixed times, and no interval."""
        fields = _ALIASES.get(self.text, self.text).split()
        return not any("*" in field for field in fields[:-3])

    def after(self, instant: datetime, since: datetime) -> datetime | None:
        """See `Rule`."""
        try:
            return self._after(instant)
        except OverflowError:  # the end of all years
            return None

    def _after(self, instant: datetime) -> datetime | None:
        if self.fixed:
            found = (self._first_shown(wall) for wall in self._walls(self._wall(instant)))
            return next((at for at in found if at > instant), None)
        start = self._wall(instant)
        while True:
            wall = next(self._walls(start), None)
            if wall is None:
                return None
            found_at = _utc(wall, self._offset(instant))
            change = self._change(instant, found_at)
            if change is None:
                return found_at
            # What the clock would have shown; but it was set before that.
            instant, start = change, self._wall(change) - SECOND

    def back_from(self, instant: datetime, since: datetime) -> Iterator[datetime]:
        """See `Rule`."""
        instant = instant.replace(microsecond=0)
        if self.fixed:
            yield from self._fixed_back_from(instant)
            return
        while True:
            offset = self._offset(instant)
            for wall in self._walls(self._wall(instant) + SECOND, back=True):
                found = _utc(wall, offset)
                change = self._change_back(instant, found)
                if change is not None:
                    # Before that the clock showed other times.
                    instant = change - SECOND
                    break
                yield found
                instant = found
            else:
                return

    def _fixed_back_from(self, instant: datetime) -> Iterator[datetime]:
        latest = self._wall(instant)
        change = self._change_back(instant, instant - 2 * _STEP)
        if change is not None:
            # Set back within a day: the clock has shown later times than it does now.
            latest += max(self._offset(change - SECOND) - self._offset(change), timedelta())
        before = instant + SECOND
        for wall in self._walls(latest + SECOND, back=True):
            found = self._first_shown(wall)
            if found < before:
                before = found
                yield found

    # ---- the clock on the wall

    def _walls(self, start: datetime, *, back: bool = False) -> Iterator[datetime]:
        """What the clock shows when it fires, after a time or before it, on a day of no change."""
        from cronsim import CronSim  # Of no use to a program without schedules.

        try:
            yield from CronSim(_ALIASES.get(self.text, self.text), start, reverse=back)
        except OverflowError:  # the end of all years, or their beginning
            return

    def _wall(self, instant: datetime) -> datetime:
        return instant.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _offset(self, instant: datetime) -> timedelta:
        offset = instant.astimezone(self.zone).utcoffset()
        assert offset is not None
        return offset

    def _first_shown(self, wall: datetime) -> datetime:
        """When the clock first shows a time, or first jumps past it."""
        before = wall.replace(tzinfo=self.zone, fold=0).utcoffset()
        after = wall.replace(tzinfo=self.zone, fold=1).utcoffset()
        assert before is not None
        assert after is not None
        if before >= after:
            return _utc(wall, before)
        # It jumps from before this time to after it (PEP 495, "Mind the Gap!").
        change = self._change(_utc(wall, after), _utc(wall, before))
        return _utc(wall, before) if change is None else change

    def _change(self, start: datetime, end: datetime) -> datetime | None:
        """The first instant after ``start``, up to ``end``, from which the clock runs otherwise."""
        offset = self._offset(start)
        while start < end:
            step = min(start + _STEP, end)
            if self._offset(step) != offset:
                return self._turn(start, step)
            start = step
        return None

    def _change_back(self, start: datetime, end: datetime) -> datetime | None:
        """The last instant up to ``start``, and after ``end``, since which it runs as at ``start``."""
        offset = self._offset(start)
        while start > end:
            step = max(start - _STEP, end)
            if self._offset(step) != offset:
                return self._turn(step, start)
            start = step
        return None

    def _turn(self, before: datetime, after: datetime) -> datetime:
        """The second at which the clock is set, between two instants."""
        offset = self._offset(before)
        while after - before > SECOND:
            middle = before + (after - before) // 2
            middle = middle.replace(microsecond=0)
            if middle <= before:
                middle = before + SECOND
            if self._offset(middle) == offset:
                before = middle
            else:
                after = middle
        return after.replace(microsecond=0)


@attrs.frozen
class Every:
    """Every so often, counted from when the schedule became known."""

    period: timedelta

    @property
    def timezone(self) -> None:
        """None: a period means no clock on a wall."""
        return

    @property
    def zone(self) -> None:
        """None, likewise."""
        return

    @property
    def text(self) -> str:
        """Its seconds, in words."""
        return f"every {self.period.total_seconds():.15g} s"

    def after(self, instant: datetime, since: datetime) -> datetime | None:
        """See `Rule`."""
        number = max((instant - since) // self.period + 1, 1)
        try:
            return since + number * self.period
        except OverflowError:
            return None

    def back_from(self, instant: datetime, since: datetime) -> Iterator[datetime]:
        """See `Rule`."""
        for number in range((instant - since) // self.period, 0, -1):
            yield since + number * self.period


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


# ---- what is missed


class MissedFires(enum.StrEnum):
    """What becomes of instants at which nobody could fire, such as during an outage."""

    SKIP = "skip"
    """Nothing: a fire that is late by more than the schedule's tolerance does not happen."""
    COALESCE = "coalesce"
    """One fire, for the last of them."""
    CATCH_UP = "catch_up"
    """One fire for each, the oldest first; of many, the last ones."""


@attrs.frozen
class Policy:
    """A schedule's answer to missed fires."""

    missed: MissedFires = MissedFires.COALESCE
    most: int = 100
    """Fires that are caught up with; older ones are left out."""
    tolerance: timedelta = timedelta(seconds=60)
    """How late a fire may be where those missed are skipped."""


@attrs.frozen
class Due:
    """What a schedule is to do now."""

    instants: tuple[datetime, ...]
    """Those to fire for, the oldest first."""
    upto: datetime
    """All instants up to here are dealt with then."""
    left_out: bool
    """Whether nothing fires for some that have passed."""


def due(
    rule: Rule, *, since: datetime, cursor: datetime, now: datetime, policy: Policy
) -> Due | None:
    """Decide what a schedule fires for; None if nothing has passed.

    Costs as much as the fires that it returns, however long the outage.

    Args:
      rule: when.
      since: from when a period counts.
      cursor: all instants up to here have been dealt with.
      now: the database's time.
      policy: what becomes of those that were missed.
    """
    passed = takewhile(lambda at: at > cursor, rule.back_from(now, since))
    latest = next(passed, None)
    if latest is None:
        return None
    instants = [latest]
    if policy.missed is MissedFires.CATCH_UP:
        instants += islice(passed, policy.most - 1)
    elif policy.missed is MissedFires.SKIP and now - latest > policy.tolerance:
        instants = []
    left_out = not instants or next(passed, None) is not None
    return Due(tuple(reversed(instants)), latest, left_out)


# ---- from what a user writes


def cron(expression: object, timezone: object = "UTC") -> Cron:
    """Check a cron expression and the name of a time zone.

    Raises:
      ConfigurationError: one of them is none.
      TypeError: one of them is no str.
    """
    check_string("expression", expression, most=200, error=ConfigurationError)
    assert isinstance(expression, str)
    text = " ".join(expression.split())
    if text.startswith("@"):
        text = text.lower()
        if text not in _ALIASES:
            raise ConfigurationError(
                f"cron {expression!r}: there is no such name; there are {', '.join(_ALIASES)}"
            )
    rule = Cron(text, _zone(timezone))
    try:
        known = next(rule._walls(_SOME_DAY), None)
    except Exception as error:
        raise ConfigurationError(
            f"cron {expression!r}: {str(error).lower() or 'it is none'}; give five fields, minute,"
            " hour, day of the month, month and day of the week, as in '0 9 * * 1-5'; or six,"
            " with the second first"
        ) from error
    if known is None:
        raise ConfigurationError(
            f"cron {expression!r}: there is no such day, so it never fires"
        )
    return rule


#: Names in a machine's folder of zones that are no zone's.
_OF_THE_MACHINE = ("localtime", "posixrules")


def _zone(name: object) -> ZoneInfo:
    check_string("timezone", name, most=200, error=ConfigurationError)
    assert isinstance(name, str)
    if name in _OF_THE_MACHINE:
        raise ConfigurationError(
            f"timezone {name!r}: this is another on each machine, and any worker may fire; give an"
            " IANA name, such as 'Europe/Paris'"
        )
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"timezone {name!r}: this machine knows no such zone; give an IANA name, such as"
            " 'Europe/Paris', and install tzdata if it knows none at all"
        ) from error


def every(period: object) -> Every:
    """Check a period: seconds, or a timedelta.

    Raises:
      ConfigurationError: it is out of its range.
      TypeError: it is neither.
    """
    seconds = period.total_seconds() if isinstance(period, timedelta) else period
    checked = check_seconds(
        "period", seconds, 1, MAX_SECONDS, instead=" or a timedelta", error=ConfigurationError
    )
    return Every(period if isinstance(period, timedelta) else timedelta(seconds=checked))


def read_rule(text: str, timezone: str | None) -> Rule | None:
    """Read a rule as the database keeps it; None if this release, or machine, does not know it."""
    try:
        if timezone is not None:
            return cron(text, timezone)
        if text.startswith("every ") and text.endswith(" s"):
            return every(float(text[6:-2]))
    except (ConfigurationError, ValueError):
        pass
    return None

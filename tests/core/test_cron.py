"""When schedules fire, checked against a clock on a wall that is read once a minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awa_trio._core.cron import (
    Due,
    Every,
    MissedFires,
    Policy,
    Rule,
    cron,
    due,
    every,
    read_rule,
)
from awa_trio._core.errors import ConfigurationError

MINUTE = timedelta(minutes=1)

#: Zones, and days on which their clocks are set: by an hour at night, by half an hour, at
#: midnight forward and back, by a whole day; and zones whose clocks never are.
CHANGES = {
    "Europe/Paris": ["2026-03-29", "2026-10-25"],
    "America/New_York": ["2026-03-08", "2026-11-01"],
    "Pacific/Auckland": ["2026-04-04", "2026-09-26"],
    "Australia/Lord_Howe": ["2026-04-04", "2026-10-03"],
    "America/Havana": ["2026-03-08", "2026-11-01"],
    "Africa/Cairo": ["2026-04-24", "2026-10-29"],
    "Pacific/Apia": ["2011-12-30"],
    "Asia/Kathmandu": ["2026-03-29"],
    "UTC": ["2026-03-29"],
}
PLACES = [(zone, day) for zone, days in CHANGES.items() for day in days]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@cache
def clock(zone: str, day: str) -> list[tuple[datetime, datetime]]:
    """What a clock shows at each minute of three days around a change."""
    start = utc(day) - timedelta(days=1)
    shown = ZoneInfo(zone)
    minutes = (start + n * MINUTE for n in range(3 * 1440))
    return [(at, at.astimezone(shown).replace(tzinfo=None)) for at in minutes]


def values(field: str, first: int, last: int) -> set[int]:
    """What a field of an expression means, of those that are made up here."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        if span == "*":
            low, high = str(first), str(last)
        found |= set(range(int(low), int(high or (last if step else low)) + 1, int(step or 1)))
    return found


def by_hand(expression: str, zone: str, day: str) -> list[datetime]:
    """When it fires in these three days, minute by minute."""
    minute, hour, dom, month, dow = expression.split()
    minutes, hours = values(minute, 0, 59), values(hour, 0, 23)
    doms, months, dows = values(dom, 1, 31), values(month, 1, 12), values(dow, 0, 7)

    def matches(wall: datetime) -> bool:
        in_month = wall.day in doms
        in_week = bool({wall.isoweekday(), wall.isoweekday() % 7} & dows)
        starred = dom.startswith("*") or dow.startswith("*")
        return (
            wall.minute in minutes
            and wall.hour in hours
            and wall.month in months
            and ((in_month and in_week) if starred else (in_month or in_week))
        )

    shown = clock(zone, day)
    if "*" in minute + hour:
        return [at for at, wall in shown if matches(wall)]
    found = []
    latest = shown[0][1] - MINUTE
    for at, wall in shown:
        passed = [latest + n * MINUTE for n in range(1, (wall - latest) // MINUTE + 1)]
        if any(map(matches, passed)):
            found.append(at)
        latest = max(latest, wall)
    return found


def forward(rule: Rule, start: datetime, end: datetime) -> Iterator[datetime]:
    """When it fires after a moment, and before another."""
    at = rule.after(start, start)
    while at is not None and at < end:
        yield at
        at = rule.after(at, start)


def check(expression: str, zone: str, day: str) -> None:
    start, end = clock(zone, day)[0][0], clock(zone, day)[-1][0] + MINUTE
    rule = cron(expression, zone)
    expected = by_hand(expression, zone, day)
    found = list(forward(rule, start - MINUTE / 2, end))
    assert found == expected
    backwards = list(islice(rule.back_from(end - MINUTE / 2, start), len(expected)))
    assert backwards == expected[::-1]
    # From any moment, not only from an instant at which it fires.
    for at, _ in clock(zone, day)[7::611]:
        later = [one for one in expected if one > at]
        if later:
            assert rule.after(at, start) == later[0]
        sooner = [one for one in expected if one <= at]
        if sooner:
            assert next(rule.back_from(at, start)) == sooner[-1]


@pytest.mark.parametrize(("zone", "day"), PLACES, ids=[f"{z} {d}" for z, d in PLACES])
@pytest.mark.parametrize(
    "expression",
    [
        "0 0 * * *",
        "30 2 * * *",
        "0,15,30,45 0-3 * * *",
        "*/30 * * * *",
        "*/10 0-1 * * 0,6",
    ],
)
def test_it_fires_as_the_clock_on_the_wall_has_it(expression: str, zone: str, day: str) -> None:
    check(expression, zone, day)


def field(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last)
    span = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.integers(1, last).map(lambda n: f"*/{n}")
    one = st.one_of(number.map(str), span, step, st.just("*"))
    return st.lists(one, min_size=1, max_size=2).map(",".join)


@settings(max_examples=40, deadline=None)
@given(
    place=st.sampled_from(PLACES),
    minute=field(0, 59).filter(lambda text: text != "*"),
    hour=field(0, 23),
    dom=st.one_of(st.just("*"), field(1, 28)),
    dow=st.one_of(st.just("*"), field(0, 7)),
)
def test_so_does_any_expression_anywhere(
    place: tuple[str, str], minute: str, hour: str, dom: str, dow: str
) -> None:
    zone, day = place
    # Of an interval that is dense the minutes thin out, and what is left is as good.
    expression = f"{minute} {hour} {dom} * {dow}"
    if len(by_hand(expression, zone, day)) > 200:
        expression = f"7 {hour} {dom} * {dow}"
    check(expression, zone, day)


def changes(first: int, last: int) -> Iterator[tuple[str, str]]:
    """Days of these years on which clocks are set, of all zones there are; alike zones once."""
    seen = set()
    for zone in sorted(available_timezones()):
        shown = ZoneInfo(zone)
        days = [
            datetime(first, 1, 1, tzinfo=UTC) + timedelta(days=n)
            for n in range(366 * (last - first))
        ]
        offsets = [day.astimezone(shown).utcoffset() for day in days]
        turned = [
            (days[n], before, after)
            for n, (before, after) in enumerate(pairwise(offsets))
            if before != after
        ]
        for day, before, after in turned:
            if (day, before, after) not in seen:
                seen.add((day, before, after))
                yield zone, day.date().isoformat()


@pytest.mark.slow
def test_it_does_in_every_zone_there_is() -> None:
    checked = 0
    for zone, day in changes(2010, 2028):
        for expression in ("0 0 * * *", "30 1,2 * * *", "*/15 0-3 * * *", "45 * * * *"):
            check(expression, zone, day)
        clock.cache_clear()
        checked += 1
    print(checked)
    assert checked > 100


def local(rule: Any, start: str, count: int) -> list[str]:
    at = utc(start)
    found = []
    for _ in range(count):
        at = rule.after(at, at)
        found.append(at.astimezone(rule.zone).isoformat())
    return found


def test_a_time_that_does_not_exist_fires_once_when_the_gap_ends() -> None:
    assert local(cron("30 2 * * *", "Europe/Paris"), "2026-03-27 12:00", 3) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert local(cron("@daily", "Africa/Cairo"), "2026-04-23 12:00", 2) == [
        "2026-04-24T01:00:00+03:00",
        "2026-04-25T00:00:00+03:00",
    ]


def test_several_in_one_gap_fire_once_together() -> None:
    assert local(cron("0,20,40 2 * * *", "Europe/Paris"), "2026-03-29 00:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:00:00+02:00",
    ]


def test_a_time_that_comes_twice_fires_once() -> None:
    assert local(cron("30 2 * * *", "Europe/Paris"), "2026-10-24 12:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    rule = cron("45 1 * * *", "Australia/Lord_Howe")
    assert local(rule, "2026-04-04 00:00", 2) == [
        "2026-04-05T01:45:00+11:00",
        "2026-04-06T01:45:00+10:30",
    ]


def test_an_interval_fires_in_both_hours_and_not_in_the_gap() -> None:
    assert local(cron("*/30 2 * * *", "Europe/Paris"), "2026-10-24 23:00", 4) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
    ]
    assert local(cron("*/30 2 * * *", "Europe/Paris"), "2026-03-29 00:00", 1) == [
        "2026-03-30T02:00:00+02:00"
    ]


def test_six_fields_have_the_second_first_and_obey_the_same_rules() -> None:
    assert local(cron("15 30 2 * * *", "Europe/Paris"), "2026-10-24 12:00", 2) == [
        "2026-10-25T02:30:15+02:00",
        "2026-10-26T02:30:15+01:00",
    ]
    assert local(cron("*/20 59 1 * * *", "Europe/Paris"), "2026-10-25 01:59", 1) == [
        "2026-10-26T01:59:00+01:00"
    ]
    rule = cron("*/7 * * * * *")
    assert rule.after(utc("2026-01-01 00:00:56"), utc("2026-01-01")) == utc("2026-01-01 00:01")


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_names_stand_for_expressions(alias: str, expression: str) -> None:
    start = utc("2026-03-05 07:07")
    rule, same = cron(alias), cron(expression)
    assert rule.after(start, start) == same.after(start, start)
    assert next(rule.back_from(start, start)) == next(same.back_from(start, start))
    assert rule.fixed == same.fixed


@pytest.mark.parametrize("fraction", [0, 1, 499_999, 999_999])
def test_fractions_of_a_second_are_between_instants(fraction: int) -> None:
    for zone in ("UTC", "Europe/Paris"):
        for expression in ("* * * * *", "0 9 * * *"):
            rule = cron(expression, zone)
            hit = rule.after(utc("2026-03-29 00:30"), utc("2026-01-01"))
            assert hit is not None
            at = hit + timedelta(microseconds=fraction)
            assert next(rule.back_from(at, at)) == hit
            before = at - timedelta(seconds=1)
            assert rule.after(before, before) == hit


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "1 to 200 characters"),
        ("x", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * * *", "five fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("1,,2 * * * *", "bad minute"),
        ("-1 * * * *", "bad minute"),
        ("\u0661 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 31 4,6,9,11 *", "bad day-of-month"),
        ("@reboot", "there are @yearly"),
        ("0 0 * * *\x00", "U\\+0000"),
        ("1," * 120 + "1 * * * *", "1 to 200 characters"),
    ],
)
def test_what_is_no_expression_is_said_in_one_sentence(expression: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        cron(expression)
    assert "\n" not in str(caught.value)


@given(st.text("0123456789*/,-#LW? @", max_size=40))
@settings(max_examples=150, deadline=None)
def test_garbage_is_refused_or_fires(expression: str) -> None:
    try:
        rule = cron(expression)
    except ConfigurationError:
        return
    start = utc("2026-03-05")
    at = rule.after(start, start)
    assert at is not None
    assert at > start
    assert next(rule.back_from(at, start)) == at


def test_a_day_that_is_rare_is_found() -> None:
    assert local(cron("0 0 29 2 *", "Europe/Paris"), "2026-01-01", 1) == [
        "2028-02-29T00:00:00+01:00"
    ]
    assert cron("0 0 * 2 mon#5").after(utc("2026-01-01"), utc("2026-01-01")) == utc(
        "2044-02-29"
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "America",
        "../etc/passwd",
        "/etc/passwd",
        "Mars/Olympus",
        "localtime",
        "Europe/Paris\n",
        "\x00",
        ".",
    ],
)
def test_what_is_no_zone_is_said_in_one_sentence(name: str) -> None:
    with pytest.raises(ConfigurationError, match="timezone") as caught:
        cron("* * * * *", name)
    assert "\n" not in str(caught.value)


def test_values_of_other_types_are_refused() -> None:
    for call in (lambda: cron(5), lambda: cron("* * * * *", None), lambda: every("60")):
        with pytest.raises(TypeError, match="give"):
            call()
    for period in (0, -1, 0.999, float("nan"), float("inf"), timedelta(days=400), True):
        with pytest.raises((ConfigurationError, TypeError), match="period"):
            every(period)


def test_a_rule_is_read_back_from_what_the_database_keeps() -> None:
    for rule in (cron("0  9 * * 1-5", "Pacific/Auckland"), every(90), every(0.1 + 1)):
        assert read_rule(rule.text, rule.timezone) == rule
    for text, zone in [
        ("every x s", None),
        ("soon", None),
        ("0 9 * *", "UTC"),
        ("* * * * *", "X"),
    ]:
        assert read_rule(text, zone) is None


def test_at_the_end_of_all_years_nothing_is_next() -> None:
    """SQL may put any cursor into a row; nobody is to stumble over it."""
    last = datetime.max.replace(tzinfo=UTC)
    for rule in (
        cron("0 9 * * *", "Pacific/Auckland"),
        cron("* * * * *", "Etc/GMT+12"),
        every(60),
    ):
        assert rule.after(last, last) is None
        first = datetime.min.replace(tzinfo=UTC)
        assert rule.after(last, first) is None
        assert decide("2026-01-01", rule, cursor=last) is None


# ---- periods


def test_periods_count_from_when_the_schedule_began() -> None:
    since = utc("2026-01-01 00:00:07")
    rule = Every(timedelta(seconds=90))
    assert rule.after(since, since) == utc("2026-01-01 00:01:37")
    assert rule.after(since - timedelta(days=9), since) == utc("2026-01-01 00:01:37")
    assert rule.after(utc("2026-01-01 00:01:37"), since) == utc("2026-01-01 00:03:07")
    assert list(rule.back_from(utc("2026-01-01 00:03:10"), since)) == [
        utc("2026-01-01 00:03:07"),
        utc("2026-01-01 00:01:37"),
    ]
    assert list(rule.back_from(since, since)) == []


@given(
    period=st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=366)),
    passed=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)),
)
def test_no_period_is_left_out_or_counted_twice(period: timedelta, passed: timedelta) -> None:
    since = utc("2026-01-01")
    now = since + passed
    rule = Every(period)
    later = rule.after(now, since)
    assert later is not None
    sooner = next(rule.back_from(now, since), since)
    assert sooner <= now < later
    assert later - sooner == period


# ---- what is missed

HOURLY = cron("0 * * * *")
CURSOR = utc("2026-01-01 12:00")


def decide(
    now: str, rule: Rule = HOURLY, cursor: datetime = CURSOR, **policy: Any
) -> Due | None:
    return due(rule, since=CURSOR, cursor=cursor, now=utc(now), policy=Policy(**policy))


def hours(found: Due | None) -> list[int]:
    assert found is not None
    return [at.hour for at in found.instants]


@pytest.mark.parametrize("missed", MissedFires)
def test_nothing_is_due_before_the_next_instant(missed: MissedFires) -> None:
    for now in ("2026-01-01 11:00", "2026-01-01 12:00", "2026-01-01 12:59:59.999999"):
        assert decide(now, missed=missed) is None


@pytest.mark.parametrize("missed", MissedFires)
def test_one_that_is_on_time_fires_whatever_the_policy(missed: MissedFires) -> None:
    found = decide("2026-01-01 13:00:00.2", missed=missed)
    assert found == Due((utc("2026-01-01 13:00"),), utc("2026-01-01 13:00"), False)


def test_missed_fires_are_skipped_or_fired_for_once_or_each() -> None:
    now = "2026-01-01 15:30"
    skipped = decide(now, missed=MissedFires.SKIP)
    assert skipped == Due((), utc("2026-01-01 15:00"), True)
    coalesced = decide(now, missed=MissedFires.COALESCE)
    assert coalesced == Due((utc("2026-01-01 15:00"),), utc("2026-01-01 15:00"), True)
    caught_up = decide(now, missed=MissedFires.CATCH_UP)
    assert hours(caught_up) == [13, 14, 15]
    assert caught_up is not None
    assert not caught_up.left_out


def test_of_many_the_last_are_caught_up_with() -> None:
    found = decide("2026-01-01 22:30", missed=MissedFires.CATCH_UP, most=3)
    assert hours(found) == [20, 21, 22]
    assert found is not None
    assert found.left_out


def test_a_fire_within_the_tolerance_is_not_skipped() -> None:
    options: dict[str, Any] = {"missed": MissedFires.SKIP, "tolerance": timedelta(minutes=5)}
    assert hours(decide("2026-01-01 15:05", **options)) == [15]
    assert hours(decide("2026-01-01 15:05:00.000001", **options)) == []


def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    later = utc("2026-01-01 15:00")
    for now in ("2026-01-01 13:30", "2026-01-01 15:00", "2026-01-01 15:59"):
        assert decide(now, cursor=later, missed=MissedFires.CATCH_UP) is None


def test_years_of_seconds_cost_no_more_than_what_fires() -> None:
    """A schedule of every second that nobody fired for a century is decided at once."""
    rule = cron("* * * * * *", "Europe/Paris")
    found = decide("2126-01-01 00:00", rule, missed=MissedFires.CATCH_UP, most=100)
    assert found is not None
    assert len(found.instants) == 100
    assert found.instants[-1] == utc("2126-01-01 00:00")


@given(
    cuts=st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
    missed=st.sampled_from([MissedFires.COALESCE, MissedFires.CATCH_UP]),
    rule=st.sampled_from(
        [cron("*/20 * * * *", "Europe/Paris"), cron("0 2,3 * * *", "Europe/Paris"), every(1234)]
    ),
)
@settings(deadline=None, max_examples=50)
def test_whenever_somebody_looks_no_instant_fires_twice(
    cuts: list[int], missed: MissedFires, rule: Rule
) -> None:
    """And with the policy to catch up none is left out: the looks cut time, not fires."""
    since = utc("2026-03-28 20:00")
    now = cursor = since
    fired: list[datetime] = []
    for seconds in cuts:
        now += timedelta(seconds=seconds)
        policy = Policy(missed, 10_000)
        found = due(rule, since=since, cursor=cursor, now=now, policy=policy)
        if found is not None:
            fired += found.instants
            cursor = found.upto
    assert fired == sorted(set(fired))
    every_one = list(forward(rule, since, now + timedelta(microseconds=1)))
    assert set(fired) <= set(every_one)
    if missed is MissedFires.CATCH_UP:
        assert fired == every_one
    elif every_one:
        assert fired[-1] == every_one[-1]

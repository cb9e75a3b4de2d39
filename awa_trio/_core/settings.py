"""The numbers a user may set: each with its unit, its default and the reason for it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import attrs

from .arguments import check_seconds, check_whole
from .errors import ConfigurationError
from .jsontext import shown
from .rates import Rate

#: A year: far below what PostgreSQL's intervals and Trio's clock can count.
MAX_SECONDS = 366 * 86_400.0

#: Thirty years, in seconds.
MAX_RETENTION = 1e9

#: Attempts that may wait for callbacks in one worker. Each keeps its handler, and whatever
#: that holds, in memory: a few kilobytes at the least.
MAX_WAITING = 10_000

#: Whatever is wrong with a setting, its type or its size, is wrong with the configuration.
_check_whole = partial(check_whole, error=ConfigurationError, wrong_type=ConfigurationError)
_check_seconds = partial(check_seconds, error=ConfigurationError, wrong_type=ConfigurationError)


def _named(instance: object, attribute: attrs.Attribute[Any]) -> str:
    return f"{type(instance).__name__}.{attribute.name}"


def _seconds(
    *,
    default: float,
    least: float = 0.0,
    most: float = MAX_SECONDS,
    allow_infinite: bool = False,
) -> float:  # a field; typed as its value, as attrs does
    def check(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
        if allow_infinite and value == math.inf:
            return
        instead = " or math.inf" if allow_infinite else ""
        _check_seconds(_named(instance, attribute), value, least, most, instead=instead)

    return attrs.field(default=default, validator=check, kw_only=True)


def _count(*, default: int, least: int, most: int) -> int:
    def check(instance: object, attribute: attrs.Attribute[int], value: object) -> None:
        _check_whole(_named(instance, attribute), value, least, most)

    return attrs.field(default=default, validator=check, kw_only=True)


def _count_or_none(*, most: int) -> int | None:
    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None:
            instead = " or None for no limit"
            _check_whole(_named(instance, attribute), value, 1, most, instead=instead)

    return cast("int | None", attrs.field(default=None, validator=check, kw_only=True))


def _to_rate(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return Rate(value) if number else value


def _check_rate(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, Rate):
        raise ConfigurationError(
            f"{_named(instance, attribute)}: give awa.Rate(count, per=seconds), a number of"
            f" starts a second, or None for no limit, not {shown(value)}"
        )


def _check_bool(instance: object, attribute: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(
            f"{_named(instance, attribute)}: give True or False, not {shown(value)}"
        )


@attrs.frozen
class QueueSettings:
    """How one worker serves one queue.

    Raises:
      ConfigurationError: a value is out of its range.
    """

    max_workers: int = _count(default=50, least=1, most=100_000)
    """Attempts of this queue that one worker runs at once. A job is claimed only
    when one of these is free, so nothing waits inside a worker."""

    deadline: float = _seconds(default=300.0)
    """Seconds an attempt may take, unless its task or its job says otherwise; 0 for
    no limit. Five minutes: a handler that hangs is found before anybody is woken."""

    dead_letters: bool = attrs.field(default=True, kw_only=True, validator=_check_bool)
    """Whether its jobs that fail become dead letters: with the reason in a word, in
    ``client.dlq``, and kept ten times as long. A failure is worth looking at unless
    somebody says that it is not."""

    priority_ageing: float = _seconds(default=60.0)
    """Seconds a due job waits to count as one priority higher, down to 1; 0 for never.
    A minute: what is urgent still goes first, and nothing waits for ever behind it."""

    weight: int = _count(default=1, least=1, most=1000)
    """Its share of the worker's ``max_workers``, beside the weights of the other queues that
    have work. Only where the worker has a cap that its queues share."""

    min_workers: int = _count(default=0, least=0, most=100_000)
    """Of the worker's ``max_workers``, so many are kept free for this queue: no other queue's
    jobs ever have them."""

    rate: Rate | None = attrs.field(
        default=None, kw_only=True, converter=_to_rate, validator=_check_rate
    )
    """How fast its attempts may start, on all workers together; None for no limit."""

    worker_rate: Rate | None = attrs.field(
        default=None, kw_only=True, converter=_to_rate, validator=_check_rate
    )
    """How fast its attempts may start on each worker; None for no limit."""

    max_per_key: int | None = _count_or_none(most=100_000)
    """Attempts with one ``limit_key`` that run at once, on all workers together; None for no
    limit. One that waits for a callback in memory counts."""

    rate_per_key: Rate | None = attrs.field(
        default=None, kw_only=True, converter=_to_rate, validator=_check_rate
    )
    """How fast attempts with one ``limit_key`` may start, on all workers together; None for no
    limit."""

    max_depth: int | None = _count_or_none(most=10_000_000)
    """Jobs that are due and not claimed from which on `Client.enqueue` refuses more with
    `QueueFull`, or waits; None for no limit. Counted now and then, not for each job: see
    `Client.enqueue`."""

    def __attrs_post_init__(self) -> None:
        if self.min_workers > self.max_workers:
            raise ConfigurationError(
                f"QueueSettings(min_workers={self.min_workers}, max_workers={self.max_workers}):"
                " a queue cannot be kept more workers than it may have"
            )


@attrs.frozen
class Timings:
    """How often a worker does what nobody asks it to do.

    Raises:
      ConfigurationError: a value is out of its range, or two contradict each other.
    """

    poll_interval: float = _seconds(default=1.0, least=0.001)
    """Seconds between looks at an idle queue; two and a half times that while notifications
    are heard, which make the usual start much faster. Polling is what keeps every guarantee
    without them."""

    heartbeat: float = _seconds(default=5.0, least=0.01)
    """Seconds between beats of a worker, and between its reports of progress."""

    lease: float = _seconds(default=30.0, least=0.05)
    """Seconds without a beat after which a worker is presumed dead and its jobs are
    rescued, by the database's clock. At least three heartbeats, so that one lost
    beat means nothing."""

    blocked_after: float = _seconds(default=1.0, least=0.01)
    """Seconds without a turn of the event loop before the task that blocks it is named."""

    give_up_blocked_after: float = _seconds(default=60.0, least=0.05)
    """Seconds without a turn of the event loop after which beats stop: a worker that
    does nothing else must not keep its jobs."""

    abandon_after: float = _seconds(default=5.0)
    """Seconds a cut attempt may take to end before it is settled without waiting for it."""

    rescue_interval: float = _seconds(default=5.0, least=0.01)
    """Seconds between looks for dead workers, by the one worker that leads."""

    reconcile_interval: float = _seconds(default=15.0, least=0.01)
    """Seconds between comparisons of the rows marked as a worker's own with what it holds."""

    prune_interval: float = _seconds(default=60.0, least=0.01)
    """Seconds between removals of jobs whose retention has passed."""

    schedule_interval: float = _seconds(default=10.0, least=0.01)
    """Seconds between looks at schedules of which none is due, so that one that is resumed is
    noticed; each costs one query of a small table."""

    sample_interval: float = _seconds(default=15.0, least=0.01)
    """Seconds between `events.Sampled`, if there is an observer: each costs one query, of a
    few index entries for an idle queue and 10,000 at most for a busy one."""

    finalize_deadline: float = _seconds(default=20.0, least=0.05)
    """Seconds in which a settlement must commit. Below the lease, so that a worker
    that cannot settle a job leaves it to rescue rather than fight over it."""

    call_timeout: float = _seconds(default=10.0, least=0.05)
    """Seconds any one call of the database may take before its connection is given up."""

    close_timeout: float = _seconds(default=5.0)
    """Seconds each resource of the worker may take to close before it is cancelled. No
    attempt runs any more by then: only whoever stopped the worker waits for it."""

    def __attrs_post_init__(self) -> None:
        if self.lease < 3 * self.heartbeat:
            raise ConfigurationError(
                f"Timings(lease={self.lease:g}, heartbeat={self.heartbeat:g}):"
                " the lease must last at least three heartbeats"
            )
        if self.finalize_deadline >= self.lease:
            raise ConfigurationError(
                f"Timings(lease={self.lease:g}, finalize_deadline={self.finalize_deadline:g}):"
                " the finalize deadline must be shorter than the lease"
            )
        if self.give_up_blocked_after <= self.blocked_after:
            raise ConfigurationError(
                "Timings: give_up_blocked_after must be longer than blocked_after"
            )


@attrs.frozen
class Retention:
    """How long settled jobs are kept.

    A job and its hold on its unique key go in one transaction, so this is also how
    long a finished job blocks its duplicates.

    Raises:
      ConfigurationError: a value is out of its range.
    """

    completed: float = _seconds(default=24 * 3600.0, most=MAX_RETENTION, allow_infinite=True)
    """Seconds a completed job is kept; ``math.inf`` for ever."""

    failed: float = _seconds(default=72 * 3600.0, most=MAX_RETENTION, allow_infinite=True)
    """Seconds a failed or cancelled job is kept, unless it is a dead letter; ``math.inf``
    for ever."""

    dead_letters: float = _seconds(
        default=30 * 24 * 3600.0, most=MAX_RETENTION, allow_infinite=True
    )
    """Seconds a dead letter is kept; ``math.inf`` for ever. A month: long enough for a
    person to come back from holiday and find what needs them."""

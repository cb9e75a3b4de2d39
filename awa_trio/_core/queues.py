"""Queues as people see and steer them: what of their settings can be changed while they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypedDict

import attrs

from .errors import ConfigurationError
from .job import JobState
from .rates import Rate
from .settings import QueueSettings

#: The states in which a job is alive.
LIVE = (
    JobState.SCHEDULED,
    JobState.AVAILABLE,
    JobState.RETRYABLE,
    JobState.RUNNING,
    JobState.WAITING_EXTERNAL,
)


class QueueOverrides(TypedDict, total=False):
    """Settings of a queue that hold on every worker, in place of what the app says."""

    max_workers: int
    deadline: float
    priority_ageing: float
    weight: int
    min_workers: int
    rate: Rate | float | None
    worker_rate: Rate | float | None
    max_per_key: int | None
    rate_per_key: Rate | float | None
    max_depth: int | None


OVERRIDABLE = tuple(QueueOverrides.__annotations__)

#: Settings that all workers share: those of the one that started last hold.
SHARED = ("rate", "max_per_key", "rate_per_key")

_RATES = frozenset({"rate", "worker_rate", "rate_per_key"})


@attrs.frozen
class QueueStatus:
    """A queue, as it was at one moment."""

    name: str
    counts: Mapping[JobState, int]
    """Its live jobs, in each of the states that are not final: ``scheduled``, ``available``,
    ``retryable``, ``running``, ``waiting_external``. Counted up to 10,000 of those that wait,
    and of those that do not; then it means at least so many."""
    oldest: float | None
    """Seconds since the first of its jobs was due that is not claimed; None if none is."""
    paused_at: datetime | None
    """Since when nothing of it is claimed; None if it is not paused."""
    draining_since: datetime | None
    """Since when nothing is enqueued in it; None if it is not drained."""
    settings: QueueSettings | None
    """As the worker that started last has them from its app; None if none has said."""
    overrides: Mapping[str, Any] = attrs.field(factory=dict)
    """Settings that hold in their place, see `QueueOverrides`."""

    @property
    def paused(self) -> bool:
        """Whether nothing of it is claimed."""
        return self.paused_at is not None

    @property
    def draining(self) -> bool:
        """Whether nothing is enqueued in it."""
        return self.draining_since is not None

    @property
    def effective(self) -> QueueSettings:
        """The settings, with the overrides."""
        return overridden(self.settings or QueueSettings(), self.overrides)


def check_overridable(names: Iterable[str]) -> None:
    """Refuse names of settings that cannot be overridden.

    Raises:
      ConfigurationError: there is no such setting.
    """
    for name in names:
        if name not in OVERRIDABLE:
            raise ConfigurationError(
                f"{name}: this cannot be overridden; what can: {', '.join(OVERRIDABLE)}"
            )


def check_overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides as they are kept in JSON.

    Raises:
      ConfigurationError: there is no such setting, or a value is out of its range.
    """
    check_overridable(given)
    checked = {name: _checked(name, value) for name, value in given.items()}
    return {name: _to_json(value) for name, value in checked.items()}


def settings_to_json(settings: QueueSettings) -> dict[str, Any]:
    """Return settings as the database keeps them."""
    return {
        name: _to_json(value) for name, value in attrs.asdict(settings, recurse=False).items()
    }


def read_settings(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings or overrides from JSON.

    Left out is what this release does not know, or no queue can have: whoever put it there by hand
    must not bring a worker down.
    """
    known = {attribute.name for attribute in attrs.fields(QueueSettings)}
    found = {}
    for name, value in kept.items():
        if name in known:
            with suppress(ConfigurationError, TypeError, KeyError, ValueError):
                rate = name in _RATES and value is not None
                found[name] = _checked(name, Rate.from_json(value) if rate else value)
    return found


def settings_from_json(kept: Mapping[str, Any]) -> QueueSettings:
    """Return a queue's settings from JSON, with defaults for what `read_settings` leaves out."""
    return overridden(QueueSettings(), read_settings(kept))


def _checked(name: str, value: Any) -> Any:
    """Return one setting as settings have it.

    Raises:
      ConfigurationError: no queue can have it.
    """
    # A minimum alone may be above what the default allows.
    others = {"max_workers": 100_000} if name == "min_workers" else {}
    return getattr(QueueSettings(**{**others, name: value}), name)


def overridden(settings: QueueSettings, overrides: Mapping[str, Any]) -> QueueSettings:
    """Return settings in which some have been overridden."""
    if not overrides:
        return settings
    changed = {**attrs.asdict(settings, recurse=False), **overrides}
    # Of two that contradict each other the cap holds: it was put there to protect something.
    changed["min_workers"] = min(changed["min_workers"], changed["max_workers"])
    return QueueSettings(**changed)


def _to_json(value: Any) -> Any:
    return value.to_json() if isinstance(value, Rate) else value

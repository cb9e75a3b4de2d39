"""What the store in memory knows of queues: pauses, overrides, and what is left of their rates.

As the tables awa.queues and awa.buckets, and the functions that read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import attrs

from ..._core.job import HELD, JobDetails
from ..._core.queues import LIVE, QueueStatus, overridden, read_settings, settings_from_json
from ..._core.rates import Bucket, seconds_to, take, tokens, whole
from ..._core.settings import QueueSettings


@attrs.define
class _Queue:
    paused_at: datetime | None = None
    draining_since: datetime | None = None
    settings: dict[str, Any] | None = None
    overrides: dict[str, Any] = attrs.field(factory=dict)

    @property
    def effective(self) -> QueueSettings:
        """Those of the app that were declared, with the overrides."""
        return overridden(
            settings_from_json(self.settings or {}), read_settings(self.overrides)
        )


class QueueBook:
    """What is known of queues besides their jobs."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._buckets: dict[tuple[str, str], Bucket] = {}

    @property
    def names(self) -> Iterable[str]:
        """The queues that something was said about."""
        return self._queues

    def _limits(self, queue: str) -> QueueSettings:
        found = self._queues.get(queue)
        return QueueSettings() if found is None else found.effective

    def paused(self, queue: str) -> bool:
        """Whether nothing of it is claimed."""
        return queue in self._queues and self._queues[queue].paused_at is not None

    def draining(self, queue: str) -> bool:
        """Whether nothing is enqueued in it."""
        return queue in self._queues and self._queues[queue].draining_since is not None

    def set(
        self, queue: str, *, paused: bool | None, draining: bool | None, now: datetime
    ) -> bool:
        """Pause, drain, or end that; whether it changed anything."""
        found = self._queues.setdefault(queue, _Queue())
        before = (found.paused_at, found.draining_since)
        if paused is not None:
            found.paused_at = (found.paused_at or now) if paused else None
        if draining is not None:
            found.draining_since = (found.draining_since or now) if draining else None
        return (found.paused_at, found.draining_since) != before

    def override(
        self, queue: str, changes: Mapping[str, object], forgotten: Iterable[str]
    ) -> bool:
        """Set overrides and forget others; whether any changed."""
        found = self._queues.setdefault(queue, _Queue())
        kept = {n: v for n, v in found.overrides.items() if n not in set(forgotten)}
        before, found.overrides = found.overrides, {**kept, **changes}
        return found.overrides != before

    def declare(self, queue: str, settings: Mapping[str, object]) -> None:
        """Keep the settings of its app."""
        self._queues.setdefault(queue, _Queue()).settings = dict(settings)

    def overrides(self, queue: str) -> dict[str, Any]:
        """Its overrides, in JSON."""
        found = self._queues.get(queue)
        return {} if found is None else dict(found.overrides)

    def status(
        self, queue: str, rows: Iterable[JobDetails], most: int, now: datetime
    ) -> QueueStatus:
        """How it is, given its live jobs."""
        found = self._queues.get(queue) or _Queue()
        rows = list(rows)
        counts = Counter(row.state for row in rows)
        due = [row.run_at for row in rows if row.state not in HELD and row.run_at <= now]
        return QueueStatus(
            name=queue,
            counts={state: min(counts[state], most) for state in LIVE},
            oldest=(now - min(due)).total_seconds() if due else None,
            paused_at=found.paused_at,
            draining_since=found.draining_since,
            settings=None if found.settings is None else settings_from_json(found.settings),
            overrides=read_settings(found.overrides),
        )

    # ---- claiming

    def room(self, queue: str, now: float) -> int | None:
        """How many may start by the queue's own limits; None for any number."""
        if self.paused(queue):
            return 0
        rate = self._limits(queue).rate
        if rate is None:
            return None
        return whole(tokens(rate, self._buckets.get((queue, "")), now))

    def key_room(self, queue: str, key: str, held: int, now: float) -> int | None:
        """How many with a limit key may start, while so many are held; None for any number."""
        limits = self._limits(queue)
        rooms = []
        if limits.max_per_key is not None:
            rooms.append(max(0, limits.max_per_key - held))
        if limits.rate_per_key is not None:
            rooms.append(
                whole(tokens(limits.rate_per_key, self._buckets.get((queue, key)), now))
            )
        return min(rooms, default=None)

    def spend(self, queue: str, key: str | None, now: float) -> None:
        """Take a token of the queue, and one of the key, for an attempt that starts."""
        limits = self._limits(queue)
        for rate, name in ((limits.rate, ""), (limits.rate_per_key, key)):
            if rate is not None and name is not None:
                self._buckets[queue, name] = take(
                    rate, self._buckets.get((queue, name)), 1, now
                )

    def prune(self, now: float) -> None:
        """Forget buckets that are full again, or of no rate: as functions/prune_buckets.sql."""
        for (queue, key), bucket in list(self._buckets.items()):
            limits = self._limits(queue)
            rate = limits.rate if key == "" else limits.rate_per_key
            if rate is None or tokens(rate, bucket, now) >= rate.burst:
                del self._buckets[queue, key]

    def wait(self, queue: str, key: str | None, held: int, now: float) -> float | None:
        """Seconds until one may start, as far as time tells; None if only an event can."""
        if self.paused(queue):
            return None
        limits = self._limits(queue)
        waits = [0.0]
        if limits.rate is not None:
            waits.append(seconds_to(limits.rate, self._buckets.get((queue, "")), now))
        if key is not None:
            if limits.max_per_key is not None and held >= limits.max_per_key:
                return None
            if limits.rate_per_key is not None:
                bucket = self._buckets.get((queue, key))
                waits.append(seconds_to(limits.rate_per_key, bucket, now))
        return max(waits)

    def max_depth(self, queue: str, given: int) -> int | None:
        """The limit of its depth, which may be overridden."""
        limit: int | None = self.overrides(queue).get("max_depth", given)
        return limit

"""Keeping what schedules have fired for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from psycopg.types.numeric import Int4

from ..._core.instants import instant
from ..._core.job import PreparedInsert
from ..._core.schedules import Definition, ScheduleRow
from ..._pg import arrays
from ..._seam.values import Enqueued
from ..inserts import NO_COLUMNS, columns
from .calls import Calls, call

REGISTER_SCHEDULES = call("register_schedules", 7)
LIST_SCHEDULES = call("list_schedules", 1)
FIRE_CRON = call("fire_cron", 18)
PAUSE_SCHEDULE = call("pause_schedule", 2)
REMOVE_SCHEDULE = call("remove_schedule", 1)


class SqlScheduling(Calls):
    """See `_seam.protocol.Scheduling`."""

    async def register_schedules(
        self, definitions: Sequence[Definition], *, anew: bool = False
    ) -> None:
        """See `_seam.protocol.Scheduling`."""
        await self._rows(
            REGISTER_SCHEDULES,
            (
                arrays.texts([one.name for one in definitions]),
                arrays.texts([one.expression for one in definitions]),
                arrays.texts([one.timezone for one in definitions]),
                arrays.texts([one.kind for one in definitions]),
                arrays.texts([one.missed for one in definitions]),
                arrays.texts([one.error for one in definitions]),
                anew,
            ),
        )

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """See `_seam.protocol.Scheduling`."""
        wanted = None if names is None else arrays.texts(names)
        rows = await self._rows(LIST_SCHEDULES, (wanted,))
        return [_schedule(row) for row in rows]

    async def fire(
        self,
        name: str,
        cursor: datetime,
        upto: datetime,
        jobs: Sequence[PreparedInsert],
        *,
        patience: float = 0.25,
        notify: bool = True,
    ) -> list[Enqueued] | None:
        """See `_seam.protocol.Scheduling`."""
        parameters = (
            name,
            cursor,
            upto,
            Int4(max(1, round(patience * 1000))),
            *(columns(jobs) if jobs else NO_COLUMNS),
            notify,
        )
        [(fired, ids, inserted)] = await self._rows(FIRE_CRON, parameters)
        if not fired:
            return None
        return [Enqueued(*one) for one in zip(ids or (), inserted or (), strict=True)]

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """See `_seam.protocol.Scheduling`."""
        return cast("bool", await self._value(PAUSE_SCHEDULE, (name, paused)))

    async def remove_schedule(self, name: str) -> bool:
        """See `_seam.protocol.Scheduling`."""
        return cast("bool", await self._value(REMOVE_SCHEDULE, (name,)))


def _schedule(row: Sequence[Any]) -> ScheduleRow:
    what, since, cursor, fires = row[:5], row[5], row[6], row[7]
    fired_for, fired_at, last_job_id, paused_at, seen_at, error, now = row[8:]
    known = [instant(since), instant(cursor), fires, _maybe(fired_for), _maybe(fired_at)]
    rest = [last_job_id, _maybe(paused_at), instant(seen_at), error, instant(now)]
    return ScheduleRow(*what, *known, *rest)


def _maybe(at: int | None) -> datetime | None:
    return None if at is None else instant(at)

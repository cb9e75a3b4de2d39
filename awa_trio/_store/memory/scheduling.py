"""Keeping in memory what schedules have fired for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import anyio
import attrs

from ..._core.job import PreparedInsert
from ..._core.schedules import Definition, ScheduleRow
from ..._seam.values import Enqueued
from .producing import MemoryProducing


class MemoryScheduling(MemoryProducing):
    """See `_seam.protocol.Scheduling`."""

    async def register_schedules(
        self, definitions: Sequence[Definition], *, anew: bool = False
    ) -> None:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        for one in definitions:
            row = self._schedules.get(one.name) or ScheduleRow(
                name=one.name,
                expression=one.expression,
                timezone=one.timezone,
                kind=one.kind,
                missed=one.missed,
                since=now.replace(microsecond=0),
                cursor=now,
                fires=0,
                fired_for=None,
                fired_at=None,
                last_job_id=None,
                paused_at=None,
                seen_at=now,
                error=None,
                now=now,
            )
            if anew and (row.expression, row.timezone) != (one.expression, one.timezone):
                row = attrs.evolve(
                    row, since=now.replace(microsecond=0), cursor=max(row.cursor, now)
                )
            self._schedules[one.name] = attrs.evolve(
                row,
                expression=one.expression,
                timezone=one.timezone,
                kind=one.kind,
                missed=one.missed,
                error=one.error,
                seen_at=now,
            )

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        return [
            attrs.evolve(row, now=self._now())
            for name, row in sorted(self._schedules.items())
            if names is None or name in names
        ]

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
        await anyio.lowlevel.checkpoint()
        now = self._now()
        row = self._schedules.get(name)
        if row is None or row.cursor != cursor or row.paused or not cursor < upto <= now:
            return None
        answers = self._enqueue(jobs, notify)
        row = attrs.evolve(row, cursor=upto, error=None)
        if answers:
            row = attrs.evolve(
                row,
                fires=row.fires + 1,
                fired_for=upto,
                fired_at=now,
                last_job_id=answers[-1].id,
            )
        self._schedules[name] = row
        return answers

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        row = self._schedules.get(name)
        if row is None:
            return False
        now = self._now()
        if paused and not row.paused:
            row = attrs.evolve(row, paused_at=now)
        elif not paused and row.paused:
            row = attrs.evolve(row, paused_at=None, cursor=max(row.cursor, now))
        self._schedules[name] = row
        return True

    async def remove_schedule(self, name: str) -> bool:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        return self._schedules.pop(name, None) is not None

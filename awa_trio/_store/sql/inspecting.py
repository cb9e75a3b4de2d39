"""Looking at jobs, and at who runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from psycopg.types.numeric import Int4, Int8

from ..._core.activity import Figures, Latency
from ..._core.explaining import Facts
from ..._core.history import History, Step, history
from ..._core.instants import instant
from ..._core.job import JobDetails, JobState
from ..._core.workers import WorkerRow
from ..._pg import arrays
from ..._seam.values import Backlog, JobFilter
from .calls import Calls, call
from .rows import details

GET = call("get_jobs", 1)
HOLDER = call("holder", 1)
LIST = call("list_jobs", 6)
BACKLOGS = call("backlogs", 2)
LIST_FROM = call("list_from", 6)
COUNT = call("count_jobs", 5)
FOLLOW_UPS = call("follow_ups", 2)
FACTS = b"SELECT * FROM awa.job_facts($1, $2) AS f CROSS JOIN awa.get_jobs(ARRAY[$1]) AS g"
"""In one snapshot."""
WAITING_KINDS = call("waiting_kinds", 1)
WORKERS = call("list_workers", 1)
ACTIVITY = call("activity", 2)
HISTORY = call("history", 3)


class SqlInspecting(Calls):
    """See `_seam.protocol.Inspecting`."""

    async def get(self, ids: Sequence[int]) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        return [details(row) for row in await self._rows(GET, (arrays.int8s(ids),))]

    async def backlogs(self, queues: Sequence[str], most: int) -> list[Backlog]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(BACKLOGS, (arrays.texts(queues), Int4(most)))
        return [Backlog(*row) for row in rows]

    async def holder(self, unique_key: bytes) -> int | None:
        """See `_seam.protocol.Inspecting`."""
        return cast("int | None", await self._value(HOLDER, (unique_key,)))

    async def count(self, wanted: JobFilter, most: int) -> int:
        """See `_seam.protocol.Inspecting`."""
        return cast("int", await self._value(COUNT, (*_sort(wanted), Int4(most))))

    async def follow_ups(self, job_id: int, most: int) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(FOLLOW_UPS, (Int8(job_id), Int4(most)))
        return [found for found in map(details, rows) if found.triggered_by == job_id]

    async def facts(self, job_id: int, most: int) -> Facts | None:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(FACTS, (Int8(job_id), Int4(most)))
        return _facts(rows[0], most) if rows else None

    async def waiting_kinds(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(WAITING_KINDS, (arrays.texts(queues),))
        return [(queue, kind) for queue, kind in rows]

    async def workers(self, most: int) -> list[WorkerRow]:
        """See `_seam.protocol.Inspecting`."""
        return [_worker(row) for row in await self._rows(WORKERS, (Int4(most),))]

    async def activity(self, seconds: float, most: int) -> Figures:
        """See `_seam.protocol.Inspecting`."""
        [row] = await self._rows(ACTIVITY, (float(seconds), Int4(most)))
        present, looked, *counts, pickup, run, newest, failures, queues = row
        completed, failed, cancelled = counts
        return Figures(
            instant(present),
            looked,
            completed,
            failed,
            cancelled,
            Latency.of(pickup),
            Latency.of(run),
            newest,
            tuple(failures),
            tuple(queues),
        )

    async def list_from(
        self, wanted: JobFilter, most: int, *, after_id: int = 0
    ) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(LIST_FROM, (*_sort(wanted), Int8(after_id), Int4(most)))
        return [details(row) for row in rows]

    async def history(self, seconds: float, step: float, most: int) -> History:
        """See `_seam.protocol.Inspecting`."""
        rows = await self._rows(HISTORY, (float(seconds), float(step), Int4(most)))
        present, since = rows[0][:2]
        known = [
            Step(number, completed, failed, cancelled, Latency.of(pickup), Latency.of(run))
            for _, _, number, completed, failed, cancelled, pickup, run in rows
            if number is not None
        ]
        return history(instant(present), instant(since), step, known)

    async def list(self, wanted: JobFilter, most: int) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        before_id = None if wanted.before_id is None else Int8(wanted.before_id)
        rows = await self._rows(LIST, (*_sort(wanted), before_id, Int4(most)))
        return [details(row) for row in rows]


def _facts(row: Sequence[Any], most: int) -> Facts:
    present, alive, serving, knowing, worker, silent, lease, fenced = row[:8]
    taken_by, taken_state, head, holder, ahead, room_in, key_room = row[8:15]
    return Facts(
        details(row[15:]),
        instant(present),
        alive,
        serving,
        knowing,
        worker,
        silent,
        lease,
        fenced,
        taken_by,
        None if taken_state is None else JobState(taken_state),
        head,
        holder,
        ahead,
        most,
        room_in,
        key_room,
    )


def _worker(row: Sequence[Any]) -> WorkerRow:
    worker_id, name, started, beat, *facts, queues, kinds, duties = row
    silent, lease, fenced, running, waiting = facts
    return WorkerRow(
        worker_id,
        name,
        instant(started),
        instant(beat),
        silent,
        lease,
        fenced,
        running,
        waiting,
        None if queues is None else tuple(queues),
        None if kinds is None else tuple(kinds),
        tuple(duties),
    )


def _sort(wanted: JobFilter) -> tuple[Any, ...]:
    states = None if wanted.states is None else arrays.texts(wanted.states)
    return (states, wanted.kind, wanted.queue, wanted.tag)

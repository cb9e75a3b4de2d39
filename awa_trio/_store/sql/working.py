"""Running jobs: workers, claims, and attempts that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from psycopg.types.numeric import Int8

from ..._core.job import JobState
from ..._pg import arrays
from ..._seam.values import Claimed, Held, Passed, Wait, Waited, Want
from .calls import call
from .joining import SqlJoining
from .settling import SqlSettling

REGISTER = call("register", 4)
UNREGISTER = call("unregister", 1)
TELL = (
    b"SELECT pg_catalog.pg_notify('awa:jobs', queue)"
    b" FROM pg_catalog.unnest($1::pg_catalog.text[]) AS queue"
)
BEAT = call("beat", 1)
CLAIM = call("claim", 12)
NEXT_DUE = call("next_due", 2)
REGISTER_CALLBACK = call("register_callback", 5)
RECORD_PROGRESS = call("record_progress", 4)
BEGIN_WAITS = call("begin_waits", 4)
END_WAITS = call("end_waits", 5)
ANSWERED = call("answered", 1)
RUNNING = call("running", 1)

NOT_AFTER = (None,) * 5


class SqlWorking(SqlSettling, SqlJoining):
    """See `_seam.protocol.Working`."""

    async def register(
        self,
        name: str,
        lease: float,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> int:
        """See `_seam.protocol.Working`."""
        said = [None if names is None else arrays.texts(names) for names in (queues, kinds)]
        return cast("int", await self._value(REGISTER, (name, float(lease), *said)))

    async def unregister(self, worker: int) -> None:
        """See `_seam.protocol.Working`."""
        await self._rows(UNREGISTER, (Int8(worker),))

    async def beat(self, worker: int) -> bool:
        """See `_seam.protocol.Working`."""
        return cast("bool", await self._value(BEAT, (Int8(worker),)))

    async def claim(
        self, worker: int, wants: Sequence[Want], kinds: Mapping[str, float | None]
    ) -> list[Claimed]:
        """See `_seam.protocol.Working`."""
        after = [(want.queue, passed) for want in wants for passed in want.after]
        rows = await self._rows(
            CLAIM,
            (
                Int8(worker),
                arrays.texts([want.queue for want in wants]),
                arrays.int4s([want.most for want in wants]),
                arrays.float8s([want.deadline for want in wants]),
                arrays.float8s([want.ageing for want in wants]),
                arrays.texts(list(kinds)),
                arrays.float8s(list(kinds.values())),
                *(_after(after) if after else NOT_AFTER),
            ),
        )
        return [Claimed(*row) for row in rows]

    async def next_due(self, queues: Sequence[str], kinds: Sequence[str]) -> float | None:
        """See `_seam.protocol.Working`."""
        parameters = (arrays.texts(queues), arrays.texts(kinds))
        return cast("float | None", await self._value(NEXT_DUE, parameters))

    async def tell(self, queues: Sequence[str]) -> None:
        """See `_seam.protocol.Working`."""
        await self._rows(TELL, (arrays.texts(queues),))

    async def register_callback(
        self, worker: int, job_id: int, run_lease: int, token: str, timeout: float
    ) -> bool:
        """See `_seam.protocol.Working`."""
        parameters = (Int8(worker), Int8(job_id), Int8(run_lease), token, float(timeout))
        return cast("bool", await self._value(REGISTER_CALLBACK, parameters))

    async def record_progress(
        self, worker: int, reports: Sequence[tuple[int, int, bytes]]
    ) -> list[bool]:
        """See `_seam.protocol.Working`."""
        if not reports:
            return []
        job_ids, run_leases, texts = zip(*reports, strict=True)
        parameters = (
            Int8(worker),
            arrays.int8s(job_ids),
            arrays.int8s(run_leases),
            arrays.jsons(texts),
        )
        kept = {job_id for (job_id,) in await self._rows(RECORD_PROGRESS, parameters)}
        return [job_id in kept for job_id in job_ids]

    async def begin_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """See `_seam.protocol.Working`."""
        rows = await self._rows(BEGIN_WAITS, (Int8(worker), *_wait_columns(waits)))
        return _waited(waits, rows)

    async def end_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """See `_seam.protocol.Working`."""
        left = arrays.float8s([wait.seconds for wait in waits])
        rows = await self._rows(END_WAITS, (Int8(worker), *_wait_columns(waits), left))
        return _waited(waits, rows)

    async def answered(self, worker: int) -> list[Held]:
        """See `_seam.protocol.Working`."""
        return [_held(row) for row in await self._rows(ANSWERED, (Int8(worker),))]

    async def running(self, worker: int) -> list[Held]:
        """See `_seam.protocol.Working`."""
        return [_held(row) for row in await self._rows(RUNNING, (Int8(worker),))]


def _after(passed: Sequence[tuple[str, Passed]]) -> tuple[arrays.Array, ...]:
    return (
        arrays.texts([queue for queue, _ in passed]),
        arrays.texts([p.kind for _, p in passed]),
        arrays.int2s([p.priority for _, p in passed]),
        arrays.instants([p.raw_run_at for _, p in passed]),
        arrays.int8s([p.id for _, p in passed]),
    )


def _wait_columns(waits: Sequence[Wait]) -> tuple[arrays.Array, ...]:
    return (
        arrays.int8s([wait.job_id for wait in waits]),
        arrays.int8s([wait.run_lease for wait in waits]),
        arrays.texts([wait.token for wait in waits]),
    )


def _held(row: Sequence[Any]) -> Held:
    job_id, run_lease, kind, attempt, max_attempts, state, token, answered = row
    return Held(
        job_id, run_lease, kind, attempt, max_attempts, JobState(state), token, answered
    )


def _waited(waits: Sequence[Wait], rows: Sequence[Any]) -> list[Waited | None]:
    found = {number: Waited(waiting, answer) for number, waiting, answer in rows}
    return [found.get(number) for number in range(1, len(waits) + 1)]

"""What is said about queues while they are used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from psycopg.types.numeric import Int4

from ..._core.instants import instant
from ..._core.queues import LIVE, QueueStatus, read_settings, settings_from_json
from ..._pg import arrays
from .calls import Calls, call

LIST_QUEUES = call("list_queues", 2)
SET_QUEUE = call("set_queue", 3)
OVERRIDE_QUEUE = call("override_queue", 3)
DECLARE_QUEUES = call("declare_queues", 2)
QUEUE_OVERRIDES = call("queue_overrides", 1)
DEPTH = call("depth", 2)


class SqlFlow(Calls):
    """See `_seam.protocol.Flow`."""

    async def list_queues(
        self, queues: Sequence[str] | None, most: int
    ) -> Sequence[QueueStatus]:
        """See `_seam.protocol.Flow`."""
        only = None if queues is None else arrays.texts(queues)
        return [_status(row) for row in await self._rows(LIST_QUEUES, (only, Int4(most)))]

    async def set_queue(
        self, queue: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        return cast("bool", await self._value(SET_QUEUE, (queue, paused, draining)))

    async def override_queue(
        self, queue: str, changes: Mapping[str, object], forgotten: Sequence[str]
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        parameters = (queue, json.dumps(changes), arrays.texts(forgotten))
        return cast("bool", await self._value(OVERRIDE_QUEUE, parameters))

    async def declare_queues(self, queues: Mapping[str, Mapping[str, object]]) -> None:
        """See `_seam.protocol.Flow`."""
        settings = arrays.texts([json.dumps(one) for one in queues.values()])
        await self._rows(DECLARE_QUEUES, (arrays.texts(list(queues)), settings))

    async def overrides(self, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `_seam.protocol.Flow`."""
        rows = await self._rows(QUEUE_OVERRIDES, (arrays.texts(queues),))
        return {queue: json.loads(overrides) for queue, overrides in rows}

    async def depth(self, queue: str, max_depth: int) -> tuple[int, int | None]:
        """See `_seam.protocol.Flow`."""
        [(limit, due)] = await self._rows(DEPTH, (queue, Int4(max_depth)))
        return due, limit


def _status(row: Sequence[Any]) -> QueueStatus:
    queue, counts, oldest, paused_at, draining_since, settings, overrides = row
    return QueueStatus(
        name=queue,
        counts={state: (json.loads(counts) if counts else {}).get(state, 0) for state in LIVE},
        oldest=oldest,
        paused_at=None if paused_at is None else instant(paused_at),
        draining_since=None if draining_since is None else instant(draining_since),
        settings=None if settings is None else settings_from_json(json.loads(settings)),
        overrides=read_settings(json.loads(overrides)),
    )

"""What is done with dead letters, a batch at a time."""

from __future__ import annotations

from typing import Any, cast

from psycopg.types.numeric import Int4, Int8

from ..._core.job import JobDetails
from ..._core.request import Replacements
from ..._pg import arrays
from ..._seam.values import DeadLetterFilter, Swept
from .calls import Calls, call
from .rows import details

LIST_DEAD_LETTERS = call("list_dead_letters", 6)
COUNT_DEAD_LETTERS = call("count_dead_letters", 4)
RETRY_DEAD_LETTERS = call("retry_dead_letters", 10)
PURGE_DEAD_LETTERS = call("purge_dead_letters", 6)


class SqlDeadLetters(Calls):
    """See `_seam.protocol.KeepingDeadLetters`."""

    async def list_dead_letters(self, wanted: DeadLetterFilter, most: int) -> list[JobDetails]:
        """See `_seam.protocol.KeepingDeadLetters`."""
        before_id = None if wanted.before_id is None else Int8(wanted.before_id)
        rows = await self._rows(LIST_DEAD_LETTERS, (*_which(wanted), before_id, Int4(most)))
        return [details(row) for row in rows]

    async def count_dead_letters(self, wanted: DeadLetterFilter, most: int) -> int:
        """See `_seam.protocol.KeepingDeadLetters`."""
        parameters = (*_which(wanted)[1:], Int4(most))
        return cast("int", await self._value(COUNT_DEAD_LETTERS, parameters))

    async def retry_dead_letters(
        self,
        wanted: DeadLetterFilter,
        most: int,
        changes: Replacements,
        *,
        after_id: int = 0,
        strict: bool = False,
    ) -> Swept:
        """See `_seam.protocol.KeepingDeadLetters`."""
        priority = None if changes.priority is None else Int4(changes.priority)
        different = (changes.queue, priority, changes.run_at, strict)
        parameters = (*_which(wanted), Int8(after_id), Int4(most), *different)
        [(done, last_id)] = await self._rows(RETRY_DEAD_LETTERS, parameters)
        return Swept(done, last_id)

    async def purge_dead_letters(
        self, wanted: DeadLetterFilter, most: int, *, after_id: int = 0
    ) -> Swept:
        """See `_seam.protocol.KeepingDeadLetters`."""
        parameters = (*_which(wanted), Int8(after_id), Int4(most))
        [(done, last_id)] = await self._rows(PURGE_DEAD_LETTERS, parameters)
        return Swept(done, last_id)


def _which(wanted: DeadLetterFilter) -> tuple[Any, ...]:
    ids = None if wanted.ids is None else arrays.int8s(wanted.ids)
    return (ids, wanted.kind, wanted.queue, wanted.reason)

"""Applying plans: the widest call, and what its answer says of each plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.types.numeric import Int4, Int8

from ..._core.plan import Plan
from ..._pg import arrays
from ..._seam.values import APPLIED, STALE, Insertion, Settled
from ..inserts import NO_COLUMNS, columns, optional
from .calls import Calls, call

SETTLE = call("settle", 30)


class SqlSettling(Calls):
    """`_seam.protocol.Working.settle`."""

    async def settle(
        self,
        plans: Sequence[Plan],
        *,
        worker: int | None,
        patience: float = 0.25,
        strict: bool = False,
        notify: bool = True,
    ) -> list[Settled]:
        """See `_seam.protocol.Working`."""
        if not plans:
            return []
        [row] = await self._rows(SETTLE, settlement(plans, worker, patience, strict, notify))
        return settled(plans, *row)


def settlement(
    plans: Sequence[Plan],
    worker: int | None,
    patience: float,
    strict: bool = False,
    notify: bool = True,
) -> tuple[Any, ...]:
    """Return the parameters of a settlement."""
    moves = [plan.move for plan in plans]
    parents = [n for n, plan in enumerate(plans, 1) for _ in plan.inserts]
    inserts = [insert for plan in plans for insert in plan.inserts]
    return (
        None if worker is None else Int8(worker),
        Int4(max(1, round(patience * 1000))),
        strict,
        arrays.int8s([move.job_id for move in moves]),
        arrays.int8s([move.run_lease for move in moves]),
        "{" + ",".join([move.from_state for move in moves]) + "}",
        "{" + ",".join([move.to_state for move in moves]) + "}",
        arrays.int4s([move.attempt for move in moves]),
        optional(arrays.float8s, [move.seconds for move in moves]),
        optional(arrays.texts, [move.error for move in moves]),
        optional(arrays.texts, [move.token for move in moves]),
        optional(arrays.jsons, [move.answer for move in moves]),
        optional(arrays.jsons, [move.progress for move in moves]),
        optional(arrays.jsons, [move.output for move in moves]),
        optional(arrays.texts, [move.dead_letter for move in moves]),
        arrays.int4s(parents) if parents else None,
        *(columns(inserts) if inserts else NO_COLUMNS),
        notify,
    )


def settled(
    plans: Sequence[Plan],
    stale: Sequence[int] | None,
    new_ids: Sequence[int | None] | None,
    new_holders: Sequence[int | None] | None,
    losers: Sequence[int] | None,
    holders: Sequence[int] | None,
) -> list[Settled]:
    """Return what the function answered, plan by plan."""
    if stale is None and new_ids is None and losers is None:
        return [APPLIED] * len(plans)
    stale_numbers = frozenset(stale or ())
    duplicate_of = dict(zip(losers or (), holders or (), strict=True))
    answers: list[Settled] = []
    first = 0
    for number, plan in enumerate(plans, 1):
        last = first + len(plan.inserts)
        if number in stale_numbers:
            answers.append(STALE)
        else:
            ids = (new_ids or ())[first:last]
            held_by = (new_holders or (None,) * last)[first:last]
            insertions = tuple(map(Insertion, ids, held_by))
            answers.append(Settled(True, insertions, duplicate_of.get(plan.move.job_id)))
        first = last
    return answers

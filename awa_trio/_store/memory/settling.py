"""Applying plans in memory, in the order in which the SQL does."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import timedelta

import anyio

from ..._core.instants import count
from ..._core.job import HELD, JobState, PreparedInsert, holds
from ..._core.plan import Plan
from ..._seam.errors import KeyTaken
from ..._seam.hearing import CutElsewhere, GotWork
from ..._seam.values import STALE, Insertion, Settled
from .producing import MemoryProducing


class MemorySettling(MemoryProducing):
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
        await anyio.lowlevel.checkpoint()
        if worker is not None:
            self._check(worker)
        before = copy.deepcopy((self._jobs, self._claims)) if strict else None
        answers: dict[int, Settled] = {}
        # As the SQL does: all moves let go of keys before any takes one, and moves
        # take keys before inserts do.
        applied = [plan for plan in plans if self._applies(plan)]
        for plan in applied:
            self._release(plan)
        losers: dict[int, int] = {}
        for plan in applied:
            holder = self._apply(plan)
            if holder is not None:
                losers[plan.move.job_id] = holder
        if strict and losers:
            assert before is not None
            self._jobs, self._claims = before
            raise KeyTaken(next(iter(losers.values())))
        for plan in applied:
            insertions = tuple(map(self._insertion, plan.inserts))
            answers[id(plan)] = Settled(True, insertions, losers.get(plan.move.job_id))
        for plan in applied:
            move = plan.move
            if worker is None and move.from_state in HELD:
                self._tell(CutElsewhere(move.job_id, move.run_lease, move.to_state))
            if notify:
                self._tell_of_work(plan.inserts)
                row = self._jobs[move.job_id]
                if row.state is JobState.AVAILABLE or row.apart:
                    self._tell(GotWork(row.queue))
        return [answers.get(id(plan), STALE) for plan in plans]

    def _applies(self, plan: Plan) -> bool:
        move = plan.move
        row = self._jobs.get(move.job_id)
        return (
            row is not None
            and row.run_lease == move.run_lease
            and row.state is move.from_state
            and row.state is not JobState.COMPLETED
            and (
                move.token is None
                or (
                    move.token == row.callback_token
                    and (
                        row.callback_until is not None
                        or move.to_state is JobState.WAITING_EXTERNAL
                    )
                )
            )
        )

    def _release(self, plan: Plan) -> None:
        row = self._jobs[plan.move.job_id]
        if not holds(row.unique_states, plan.move.to_state):
            self._let_go(row)

    def _apply(self, plan: Plan) -> int | None:
        """Apply a move; return the job that holds the key this one needed back, if any."""
        move = plan.move
        row = self._jobs[move.job_id]
        if move.error is not None:
            self._record(row, move.error, move.to_state)
        to = move.to_state
        row.attempt = move.attempt
        if to is JobState.WAITING_EXTERNAL and row.callback_until is None:
            # It was answered before it could park.
            to = JobState.AVAILABLE
            row.attempt -= 1
        remembered = (
            move.to_state is JobState.WAITING_EXTERNAL
            or row.callback_until is None
            or (move.token is not None and move.to_state is not JobState.RETRYABLE)
        )
        # A callback that was resolved, before or by this, is remembered as such.
        row.callback_token = row.callback_token if remembered else None
        if to is not JobState.WAITING_EXTERNAL:
            row.callback_until = None
        row.raw_callback_answer = (
            None if to.terminal else move.answer or row.raw_callback_answer
        )
        row.raw_progress = (
            None if to is JobState.COMPLETED else move.progress or row.raw_progress
        )
        row.raw_output = move.output
        row.dead_letter = move.dead_letter
        row.worker_id = None
        row.deadline_at = None
        if move.seconds is not None:
            row.raw_run_at = count(self._now() + timedelta(seconds=move.seconds))
        row.finalized_at = self._now() if to.terminal else None
        return self._move(row, to)

    def _insertion(self, job: PreparedInsert) -> Insertion:
        holder = self._holder(job)
        return Insertion(self._insert(job)) if holder is None else Insertion(None, holder)

"""Moving a job from outside its attempts, with the follow-ups registered for that.

The plan is made from the row as it was read, so follow-up functions run before the
transaction begins; it applies to no other state or lease of the row. On a miss the caller
reads the row again, and they run again.

Source: ADR 0002 and 0013 of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from .._core import events
from .._core.arguments import check_type
from .._core.errors import FollowUpError, FollowUpsUnknown, UniqueConflict
from .._core.job import JobDetails
from .._core.outcome import Requested, settle
from .._core.plan import Plan, outcome_of
from .._core.registry import Registry
from .._core.staging import NOTHING_STAGED
from .._runtime.observing import Observers
from .._runtime.planner import Planner
from .._seam.errors import KeyTaken
from .._seam.protocol import Store
from .app import App, registry_of
from .calls import CALL_TIMEOUT, public_errors


class Mover:
    """Moves jobs for a client.

    Args:
      store: where they are.
      app: knows the follow-ups of its kinds; None if the client was given none.
      observers: told what becomes of jobs.
    """

    def __init__(
        self, store: Store, app: App | None, observers: Observers | None = None
    ) -> None:
        self._store = store
        self._has_app = app is not None
        self._registry = Registry() if app is None else registry_of(app)
        self._observers = observers
        trace = None if observers is None else observers.trace
        self._planner = Planner(self._registry, Random(), trace=trace)

    async def move(
        self,
        job: JobDetails,
        ended: Requested,
        *,
        without_follow_ups: bool = False,
        strict: bool = True,
        finish: Callable[[Plan], Plan] = lambda plan: plan,
    ) -> bool:
        """Apply what is decided from a row as it was read; False if it has moved since.

        Args:
          job: the row.
          ended: what is asked for.
          without_follow_ups: leave the registered ones out.
          strict: whether to change nothing if another job holds its unique key.
          finish: adds to the plan what comes with it.

        Raises:
          FollowUpsUnknown: it fires an outcome whose follow-ups nobody here knows.
          FollowUpError: one of them could not be made; nothing has changed.
          UniqueConflict: another job holds the unique key that this one needs, and ``strict``.
          TypeError: ``without_follow_ups`` is no bool.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        plan = finish(self._plan(job, ended, without_follow_ups))
        try:
            [applied] = await self._apply([plan], f"moving job {job.id}", strict)
        except KeyTaken as error:
            raise UniqueConflict(job.id, error.holder_id) from error
        return applied

    async def move_many(
        self, jobs: Sequence[JobDetails], ended: Requested, *, without_follow_ups: bool = False
    ) -> list[bool | None]:
        """Apply to many rows, in one transaction, what is decided from each as it was read.

        Where one of them needs a unique key that another job holds, half of them at a time,
        until it is alone, and left as it is.

        Returns:
          For each, whether it was moved, which it was not if it has moved since it was
          read; None if another job holds its unique key.

        Raises:
          FollowUpsUnknown: as `move`, of any of them; nothing has changed.
          FollowUpError: likewise.
          TypeError: ``without_follow_ups`` is no bool.
          DatabaseUnavailable: PostgreSQL could not be reached; a part may have been moved.
        """
        plans = [self._plan(job, ended, without_follow_ups) for job in jobs]
        return await self._apply_apart(plans)

    async def _apply_apart(self, plans: Sequence[Plan]) -> list[bool | None]:
        if not plans:
            return []
        try:
            return list(await self._apply(plans, "moving jobs", strict=True))
        except KeyTaken:
            if len(plans) == 1:
                return [None]
        half = len(plans) // 2
        return [
            *await self._apply_apart(plans[:half]),
            *await self._apply_apart(plans[half:]),
        ]

    def _plan(self, job: JobDetails, ended: Requested, without_follow_ups: bool) -> Plan:
        check_type("without_follow_ups", without_follow_ups, bool)
        if (
            not without_follow_ups
            and outcome_of(ended, settle(ended, NOTHING_STAGED, job)) is not None
            and not self._registry.knows_follow_ups(job.kind)
        ):
            raise FollowUpsUnknown(f"moving job {job.id}", job.kind, self._has_app)
        try:
            plan = self._planner.plan(ended, job, without_follow_ups=without_follow_ups)
        except FollowUpError as error:
            raise FollowUpError(
                error.function,
                f", so job {job.id} was left as it is; mend it, or say without_follow_ups=True",
            ) from error.__cause__
        assert plan is not None
        return plan

    async def _apply(self, plans: Sequence[Plan], doing: str, strict: bool) -> list[bool]:
        """Apply plans in one transaction; which of them held.

        Raises:
          KeyTaken: one needs a unique key that another job holds, and ``strict``.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        with public_errors(doing):
            answers = await self._store.settle(
                plans, worker=None, patience=CALL_TIMEOUT, strict=strict
            )
        if self._observers is not None:
            for plan, settled in zip(plans, answers, strict=True):
                if settled.applied:
                    made = [(one.id, one.holder_id) for one in settled.insertions]
                    self._observers.tell(events.settled(plan, made))
        return [settled.applied for settled in answers]

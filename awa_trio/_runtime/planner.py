"""From an ending to a plan, with what this application registered.

The decision is `_core`'s; here are the facts it needs: the task, its follow-ups, and
one random number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random

from .._core.backoff import MAX_BACKOFF, Backoff, usable
from .._core.errors import UndecodableArgs
from .._core.job import TRIGGERED_BY, JobRow, PreparedInsert, reserved_trace
from .._core.naming import Named, about, describe, name_of_function
from .._core.outcome import Ended, ToCompleted, settle
from .._core.plan import FollowUpSpec, Outcome, Plan, Subject, plan, plan_completed
from .._core.registry import Registry, Task
from .._core.report import headline
from .._core.request import EnqueueOptions
from .._core.settings import QueueSettings
from .._core.staging import NOTHING_STAGED, Sealed

logger = logging.getLogger("awa_trio.worker")


class Planner:
    """Plans for the jobs of one application.

    Args:
      registry: its tasks and follow-ups.
      random: for the jitter of backoffs.
      queues: settings of queues that go before the application's own.
      trace: returns the trace context that follow-ups are to join; None if nobody traces.
    """

    def __init__(
        self,
        registry: Registry,
        random: Random,
        queues: Mapping[str, QueueSettings] | None = None,
        trace: Callable[[], Mapping[str, str] | None] | None = None,
    ) -> None:
        self._registry = registry
        self._random = random
        self._queues = queues or {}
        self._warned: set[str] = set()
        """Kinds whose backoff functions have been mentioned."""
        self._trace = trace

    def prepare(self, args: object, options: EnqueueOptions, by: Named) -> PreparedInsert:
        """Prepare a follow-up of job ``by``, in the trace of this moment, or in the job's own.

        Raises:
          InvalidRequest: it breaks a rule.
          UnknownKind: this application neither runs nor declares its kind.
        """
        trace = None if self._trace is None else self._trace()
        if trace is None and isinstance(by, JobRow):
            trace = by.trace
        reserved = {TRIGGERED_BY: by.id, **reserved_trace(trace)}
        return self._registry.prepare(args, options, reserved=reserved)

    def plan(
        self,
        ended: Ended,
        job: Subject,
        sealed: Sealed = NOTHING_STAGED,
        args: object = None,
        *,
        without_follow_ups: bool = False,
    ) -> Plan | None:
        """Decide what an ending writes; None if nothing.

        Args:
          ended: how the attempt ended, or what was done to the job.
          job: the job as claimed or read.
          sealed: what the attempt staged.
          args: the job's arguments, if they have been decoded.
          without_follow_ups: leave the registered ones out.

        Raises:
          FollowUpError: a registered follow-up could not be made, and a client asked for this.
        """
        settlement = settle(ended, sealed, job)
        if isinstance(settlement, ToCompleted) and (
            without_follow_ups or not self._registry.specs(job.kind, Outcome.COMPLETED)
        ):
            return plan_completed(settlement, job)
        task = self._registry.tasks.get(job.kind)

        def decoded() -> object:
            if args is not None:
                return args
            if not isinstance(job, JobRow):
                raise UndecodableArgs("the job was not read with its arguments")
            return self._registry.decode_kind(job.kind, job.raw_args)

        def specs(outcome: Outcome) -> Sequence[FollowUpSpec]:
            return () if without_follow_ups else self._registry.specs(job.kind, outcome)

        made = plan(
            settlement,
            job,
            ended=ended,
            args=decoded,
            specs=specs,
            prepare=lambda returned: self.prepare(returned, {}, job),
            fraction=self._random.random(),
            backoff=None if task is None else self._backoff(task),
            dead_letters=self._keeps_dead_letters(job),
        )
        for error in () if made is None else made.left_out:
            logger.error(
                "%s was settled without its follow-up: %s: %s",
                describe(job),
                error,
                headline(error.__cause__ or error),
                extra=about(job),
            )
        return made

    def _keeps_dead_letters(self, job: Subject) -> bool:
        if not isinstance(job, JobRow):
            return True
        settings = self._queues.get(job.queue) or self._registry.queue_settings(job.queue)
        return settings.dead_letters

    def _backoff(self, task: Task) -> Backoff | None:
        """A task's own delays, of which those that are none are mentioned once."""
        own = task.backoff
        if own is None or task.kind in self._warned:
            return own

        def watched(attempt: int) -> float:
            returned = own(attempt)
            seconds, problem = usable(returned)
            if problem:
                self._warned.add(task.kind)
                logger.warning(
                    "the backoff function of kind %s, %s, returned %s for attempt %d: %s is"
                    " used instead; return seconds, from 0 to %d (said once)",
                    task.kind,
                    name_of_function(own),
                    problem,
                    attempt,
                    "the default delay" if seconds is None else f"{seconds:g}",
                    MAX_BACKOFF,
                )
            return returned

        return watched

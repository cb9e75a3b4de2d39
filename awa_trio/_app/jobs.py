"""The jobs of a client: looked at, explained, cancelled, retried."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, final

import anyio
import attrs

from .._core.arguments import MAX_INT4, check_type, check_whole
from .._core.errors import InvalidTransition, JobNotFound
from .._core.explaining import Explanation, explain
from .._core.job import JobDetails, JobState
from .._core.outcome import CancelRequested, Requested, RetryRequested
from .._core.timeline import TimelineEntry, timeline
from .._core.unique import UniqueOpts
from .._counts import MOST_COUNTED
from .._seam.protocol import Store
from .._seam.values import JobFilter
from .app import App
from .asked import check_filter, check_job_id, check_page, word_of
from .calls import public_errors
from .joining import unique_key_of
from .moving import Mover

#: Jobs that are looked at to either side of each moment at which a job was settled, for its
#: follow-ups: what a busy database inserts in a quarter of a second.
NEAR = 5_000


#: Jobs in one transaction of a bulk operation: it holds their locks.
CHUNK = 500


#: How often a job of it is tried that moves on each time, from state to state.
TRIES = 3


@attrs.frozen
class Many:
    """What became of an operation on many jobs."""

    done: int
    """The jobs it was done to."""
    left: int
    """Those that were meant, and left as they are: they moved meanwhile, or another job holds
    their unique key."""


@final
class Jobs:
    """Look at jobs, cancel them, retry them: ``client.jobs``."""

    def __init__(self, store: Store, app: App | None, mover: Mover) -> None:
        self._store = store
        self._app = app
        self._mover = mover

    async def get(self, job_id: int) -> JobDetails:
        """Read one job.

        Raises:
          JobNotFound: there is none with this ID; retention may have removed it.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_job_id(job_id)
        with public_errors("reading a job"):
            found = await self._store.get([job_id])
        if not found:
            raise JobNotFound(job_id)
        return found[0]

    async def list(
        self,
        *,
        state: JobState | str | Sequence[JobState | str] | None = None,
        kind: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[JobDetails]:
        """Read a page of jobs, newest first.

        Args:
          state: only jobs in this state, or in one of these.
          kind: only of this kind.
          queue: only of this queue.
          tag: only with this tag.
          before_id: only with a smaller ID: for the next page, the last one's.
          limit: how many, at most.

        Raises:
          ValueError: no such state, a limit below 1, or a value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_page(limit, before_id)
        wanted = _filter(state, kind, queue, tag, before_id)
        with public_errors("listing jobs"):
            return await self._store.list(wanted, limit)

    async def count(
        self,
        *,
        state: JobState | str | Sequence[JobState | str] | None = None,
        kind: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        most: int = 100_000,
    ) -> int:
        """Count jobs, up to a number.

        Args:
          state: only jobs in this state, or in one of these.
          kind: only of this kind.
          queue: only of this queue.
          tag: only with this tag.
          most: where to stop: the answer ``most`` means at least so many.

        Raises:
          ValueError: no such state, ``most`` below 1, or a value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_whole("most", most, most=MAX_INT4)
        wanted = _filter(state, kind, queue, tag)
        with public_errors("counting jobs"):
            return await self._store.count(wanted, most)

    async def timeline(self, job_id: int) -> builtins.list[TimelineEntry]:
        """Tell the life of a job, as far as its row does: what happened, then what is to happen.

        The row remembers the last 25 failures and the latest start. Attempts that ended
        without a failure, given back or snoozed, have left no mark.

        Raises:
          JobNotFound: there is none with this ID.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        return timeline(await self.get(job_id))

    async def explain(self, job_id: int) -> builtins.list[Explanation]:
        """Say why a job does not run, and what to do: at least one reason, the foremost first.

        Raises:
          JobNotFound: there is none with this ID.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_job_id(job_id)
        with public_errors("explaining a job"):
            facts = await self._store.facts(job_id, MOST_COUNTED)
        if facts is None:
            raise JobNotFound(job_id)
        return explain(facts)

    async def follow_ups(self, job_id: int) -> builtins.list[JobDetails]:
        """Find the jobs that were enqueued with the settlements of a job, by ID.

        Registered and staged ones, by the provenance that each bears. No list of them is kept:
        they are looked for among the 10,000 jobs that were enqueued about each moment at
        which the job was settled, as far as its row remembers. Retention may have removed
        some.

        Raises:
          JobNotFound: there is no such job.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        await self.get(job_id)
        with public_errors("looking for follow-ups"):
            return await self._store.follow_ups(job_id, NEAR)

    async def origin(self, job_id: int) -> JobDetails | None:
        """Find the job whose settlement enqueued a job.

        None: nobody's did; or retention has removed it, and `JobDetails.triggered_by` is all
        that is left.

        Raises:
          JobNotFound: there is no job with the ID that is given.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        job = await self.get(job_id)
        if job.triggered_by is None:
            return None
        try:
            return await self.get(job.triggered_by)
        except JobNotFound:
            return None

    async def cancel(
        self,
        job_id: int,
        *,
        reason: str = "cancelled by an operator",
        without_follow_ups: bool = False,
    ) -> bool:
        """Cancel a job, whatever it is doing; return whether this call did.

        False: it had ended already. A handler that is running is cancelled, and whatever
        it does after that changes nothing. Follow-ups registered with `App.on_cancelled`
        commit with it.

        Args:
          job_id: the job.
          reason: recorded on it.
          without_follow_ups: leave the registered ones out, or say that there are none.

        Raises:
          JobNotFound: there is none with this ID.
          FollowUpsUnknown: the client's app does not run its kind, or it has no app.
          FollowUpError: a registered follow-up could not be made; nothing has changed.
          UniqueConflict: another job holds its unique key, which it needs when cancelled.
          TypeError: the ID is no int, or the reason no str.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("reason", reason, str)
        while True:
            job = await self.get(job_id)
            if job.state.terminal:
                return False
            ended = CancelRequested(reason)
            if await self._mover.move(job, ended, without_follow_ups=without_follow_ups):
                return True

    async def cancel_by_key(
        self,
        key: object,
        /,
        *,
        kind: str | None = None,
        queue: str | None = None,
        unique_opts: UniqueOpts | Mapping[str, Any] | None = None,
        reason: str = "cancelled by an operator",
        without_follow_ups: bool = False,
    ) -> int | None:
        """Cancel the job that holds a unique key, whatever it is doing; return its ID.

        None: no job holds the key, or the one that does has ended. At most one holds it at a
        time; jobs that were enqueued with the key and have left its states are left alone.

        Args:
          key: the 16 bytes of the key; or what the job was enqueued with, from which they
              are computed: its arguments, a dict, or an `EnqueueRequest` with unique options.
          kind: as the job was enqueued with, if its arguments do not say.
          queue: likewise, where the unique options are by queue.
          unique_opts: as the job was enqueued with. Default, the default options.
          reason: recorded on the job.
          without_follow_ups: as for `cancel`.

        Raises:
          InvalidRequest: the key has not 16 bytes, or the arguments or options break a rule.
          UnknownKind: the client was given an app, which does not know the kind.
          FollowUpsUnknown: as `cancel`.
          FollowUpError: as `cancel`.
          UniqueConflict: as `cancel`.
          TypeError: the reason is no str.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("reason", reason, str)
        wanted = unique_key_of(self._app, key, kind=kind, queue=queue, unique_opts=unique_opts)
        while True:
            with public_errors("looking for the holder of a key"):
                holder = await self._store.holder(wanted)
                found = [] if holder is None else await self._store.get([holder])
            if not found or found[0].state.terminal:
                return None
            ended = CancelRequested(reason)
            if await self._mover.move(found[0], ended, without_follow_ups=without_follow_ups):
                return found[0].id

    async def retry(self, job_id: int) -> None:
        """Let a job that failed or was cancelled run again, with all its attempts.

        That is no outcome of an attempt, so no registered follow-up runs.

        Raises:
          JobNotFound: there is none with this ID.
          InvalidTransition: it has completed, and completed jobs are never reopened; or it
              is running, or about to.
          UniqueConflict: another job holds its unique key.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        while True:
            job = await self.get(job_id)
            if job.state is JobState.COMPLETED:
                raise InvalidTransition(
                    f"job {job_id} has completed, and completed jobs are never reopened;"
                    " enqueue a new one"
                )
            if job.state not in _RETRIED_FROM:
                raise InvalidTransition(
                    f"job {job_id} is {job.state}: it will run without a retry"
                )
            if await self._mover.move(job, RetryRequested()):
                return

    async def cancel_many(
        self,
        *,
        state: JobState | str | Sequence[JobState | str] | None = None,
        kind: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        everything: bool = False,
        reason: str = "cancelled by an operator",
        without_follow_ups: bool = False,
        watch: Callable[[Many], object] | None = None,
    ) -> Many:
        """Cancel jobs that have not ended, as `cancel`; return to how many it was done.

        The newest first, in transactions of 500: one that fails or is cancelled on the way
        has done a part, and can be called again. Those enqueued meanwhile are left alone.

        Args:
          state: only jobs in this state, or in one of these. Default, those that wait,
              run, or wait for a callback.
          kind: only of this kind.
          queue: only of this queue.
          tag: only with this tag.
          everything: all of them; required where nothing else is given.
          reason: as for `cancel`.
          without_follow_ups: as for `cancel`.
          watch: called after each transaction, with what is done so far.

        Raises:
          ValueError: nothing says which, or something beside ``everything``; no such state,
              one that is an end, or a value that no job can have.
          FollowUpsUnknown: as `cancel`, of one of them; those before are done.
          FollowUpError: likewise.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_type("reason", reason, str)
        check_type("without_follow_ups", without_follow_ups, bool)
        wanted = _many("cancel_many", everything, CANCELLED_FROM, state, kind, queue, tag)
        if state is None:
            wanted = attrs.evolve(wanted, states=CANCELLED_FROM)

        async def page(last: JobDetails | None) -> list[JobDetails]:
            before_id = None if last is None else last.id
            return await self._store.list(attrs.evolve(wanted, before_id=before_id), CHUNK)

        ended = CancelRequested(reason)
        return await self._in_chunks("cancelling jobs", page, ended, without_follow_ups, watch)

    async def retry_many(
        self,
        *,
        state: JobState | str | Sequence[JobState | str] | None = None,
        kind: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        everything: bool = False,
        watch: Callable[[Many], object] | None = None,
    ) -> Many:
        """Let jobs run again, as `retry`; return to how many it was done.

        The oldest first, in transactions of 500: one that fails or is cancelled on the way
        has done a part, and can be called again. One whose unique key another job holds is
        left as it is.

        Args:
          state: only jobs in this state, or in one of these; those that were cancelled, or
              are to run later, only if asked for. Default, those that failed.
          kind: only of this kind.
          queue: only of this queue.
          tag: only with this tag.
          everything: all that failed; required where nothing else is given.
          watch: as for `cancel_many`.

        Raises:
          ValueError: nothing says which, or something beside ``everything``; no such state,
              one that nothing is retried from, or a value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        wanted = _many("retry_many", everything, _RETRIED_FROM, state, kind, queue, tag)
        if state is None:
            wanted = attrs.evolve(wanted, states=(JobState.FAILED,))

        async def page(last: JobDetails | None) -> list[JobDetails]:
            after_id = 0 if last is None else last.id
            return await self._store.list_from(wanted, CHUNK, after_id=after_id)

        return await self._in_chunks("retrying jobs", page, RetryRequested(), True, watch)

    async def _in_chunks(
        self,
        doing: str,
        page: Callable[[JobDetails | None], Awaitable[builtins.list[JobDetails]]],
        ended: Requested,
        without_follow_ups: bool,
        watch: Callable[[Many], object] | None,
    ) -> Many:
        so_far, last = Many(0, 0), None
        while True:
            with public_errors(doing):
                jobs = await page(last)
            if not jobs:
                return so_far
            last = jobs[-1]
            done = await self._move_many(doing, jobs, ended, without_follow_ups)
            so_far = Many(so_far.done + done, so_far.left + len(jobs) - done)
            if watch is not None:
                watch(so_far)

    async def _move_many(
        self, doing: str, jobs: Sequence[JobDetails], ended: Requested, without_follow_ups: bool
    ) -> int:
        """Move jobs, and once more those that have moved on; how many it was done to."""
        done = 0
        allowed = CANCELLED_FROM if isinstance(ended, CancelRequested) else _RETRIED_FROM
        for _ in range(TRIES):
            moved = await self._mover.move_many(
                jobs, ended, without_follow_ups=without_follow_ups
            )
            done += moved.count(True)
            stale = [job.id for job, one in zip(jobs, moved, strict=True) if one is False]
            if not stale:
                break
            with public_errors(doing):
                jobs = [job for job in await self._store.get(stale) if job.state in allowed]
        return done

    async def wait(self, job_id: int) -> JobDetails:
        """Wait until a job has completed, failed or been cancelled; return it.

        Waits for ever if the job is never run: give it a scope with a deadline.

        Raises:
          JobNotFound: there is none with this ID.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        pause = 0.02
        while True:
            job = await self.get(job_id)
            if job.state.terminal:
                return job
            await anyio.sleep(pause)
            pause = min(pause * 1.5, 1.0)


#: States a retry makes sense from.
_RETRIED_FROM = frozenset(
    {
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.RETRYABLE,
        JobState.SCHEDULED,
        JobState.WAITING_EXTERNAL,
    }
)


#: States that there is something to cancel in.
CANCELLED_FROM = tuple(state for state in JobState if not state.terminal)


def _many(
    method: str,
    everything: bool,
    states: Collection[JobState],
    state: JobState | str | Sequence[JobState | str] | None,
    kind: str | None,
    queue: str | None,
    tag: str | None,
) -> JobFilter:
    # What is true enough for Python, such as "no", would mean all of them.
    check_type("everything", everything, bool)
    wanted = _filter(state, kind, queue, tag)
    filtered = wanted != JobFilter()
    if filtered == everything:
        raise ValueError(
            f"{method}: give a filter or everything=True, not both"
            if everything
            else f"{method}: give state=, kind=, queue= or tag=; or everything=True for all of them"
        )
    for one in wanted.states or ():
        if one not in states:
            allowed = ", ".join(one for one in JobState if one in states)
            raise ValueError(f"{method}: not from state {one.value!r}; there are {allowed}")
    return wanted


def _filter(
    state: JobState | str | Sequence[JobState | str] | None,
    kind: str | None,
    queue: str | None,
    tag: str | None,
    before_id: int | None = None,
) -> JobFilter:
    check_filter(kind=kind, queue=queue, tag=tag)
    states = None if state is None else _states(state)
    return JobFilter(states, kind, queue, tag, before_id)


def _states(given: object) -> tuple[JobState, ...]:
    """The states in what `Jobs.list` was given: one, or several."""
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Iterable):
        check_type("state", given, str)
    assert isinstance(given, Iterable)
    return tuple(word_of("state", JobState, one) for one in given)

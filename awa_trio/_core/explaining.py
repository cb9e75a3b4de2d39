"""Why a job has not run: decided from facts that a store reads in one query.

Each obstacle is a function from the facts to an explanation, or None; `OBSTACLES` is the order
in which people should hear of them, the one that no other would matter without first. What
comes to hold jobs back later is one more function, and one more fact.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import datetime, timedelta

import attrs

from .._counts import MOST_COUNTED
from .._times import at_in_words, in_words
from .job import WAITING, JobDetails, JobState, holds


class Reason(enum.StrEnum):
    """Why a job does not run."""

    SETTLED = "settled"
    RUNNING = "running"
    WORKER_LOST = "worker_lost"
    WAITS_FOR_CALLBACK = "waits_for_callback"
    NOT_DUE = "not_due"
    RETRIES_LATER = "retries_later"
    NO_WORKER = "no_worker"
    KIND_UNKNOWN = "kind_unknown"
    ORDERING_KEY_TAKEN = "ordering_key_taken"
    NOT_THE_HEAD = "not_the_head"
    QUEUE_PAUSED = "queue_paused"
    OUT_OF_TOKENS = "out_of_tokens"
    LIMIT_KEY_FULL = "limit_key_full"
    UNIQUE_KEY_HELD = "unique_key_held"
    BEHIND_OTHERS = "behind_others"
    ABOUT_TO_RUN = "about_to_run"


@attrs.frozen
class Explanation:
    """One reason why a job does not run, and what can be done about it."""

    reason: Reason
    text: str
    """What is so, as one sentence."""
    advice: str
    """What to do about it, as one sentence."""
    until: datetime | None = None
    """When it is over by itself, if that is known."""
    job_id: int | None = None
    """The other job that it is about, if it is about one."""


@attrs.frozen
class Facts:
    """What there is to know about why a job has not run, at one moment."""

    job: JobDetails
    present: datetime
    """By the database's clock."""
    alive: int
    """Workers that are not presumed dead."""
    serving: int
    """Of these, those that serve its queue, or did not say what they serve."""
    knowing: int
    """Of these, those that run its kind, or did not say."""
    worker: str | None = None
    """The name of the worker that has it; None if that is forgotten, or there is none."""
    silent: float | None = None
    """Seconds since that worker's last beat."""
    lease: float | None = None
    """Seconds of silence after which that is presumed dead."""
    fenced: bool | None = None
    """Whether that is."""
    taken_by: int | None = None
    """The job that has its ordering key, which runs or waits for a callback; it may itself."""
    taken_state: JobState | None = None
    head: int | None = None
    """The first job of its ordering key that waits; it may be that itself."""
    holder: int | None = None
    """Another job that holds its unique key."""
    ahead: int = 0
    """Jobs of its queue, kind and priority that are due and before it."""
    most: int = MOST_COUNTED
    """At which number counting those ended."""
    room_in: float | None = 0.0
    """Seconds until the rate of its queue allows a start; None while that is paused."""
    key_room: int | None = None
    """How many more with its limit key may start; None for any number."""

    @property
    def waits(self) -> bool:
        """Whether it waits for nothing but to be claimed."""
        return self.job.state in WAITING


def explain(facts: Facts) -> list[Explanation]:
    """Return why a job does not run, at least one reason, the foremost first."""
    found = [obstacle(facts) for obstacle in OBSTACLES]
    return [one for one in found if one is not None] or [_about_to_run(facts)]


def _settled(facts: Facts) -> Explanation | None:
    job = facts.job
    if not job.state.terminal or job.finalized_at is None:
        return None
    text = f"it is over: it was {job.state}"
    if job.state is not JobState.CANCELLED:
        text = f"it is over: it {job.state}"
    text = f"{text} at {at_in_words(job.finalized_at, facts.present)}"
    if job.state is JobState.COMPLETED:
        advice = (
            "nothing is to be done; a completed job is never reopened, so enqueue a new one"
        )
    elif facts.holder is not None and holds(job.unique_states, JobState.AVAILABLE):
        advice = (
            f"it can not be retried while job {facts.holder} holds its unique key: wait for that,"
            " or cancel it"
        )
        return Explanation(Reason.SETTLED, text, advice, job_id=facts.holder)
    else:
        advice = f"to run it again: awa-trio jobs retry {job.id}"
    return Explanation(Reason.SETTLED, text, advice)


def _lost(facts: Facts) -> Explanation | None:
    job = facts.job
    if job.worker_id is None or job.state.terminal or facts.waits:
        return None
    name = f"worker {job.worker_id}" + (f" ({facts.worker})" if facts.worker else "")
    if facts.silent is None:
        text = f"it is marked as held by {name}, which there is no more"
    elif facts.fenced:
        text = f"it is marked as held by {name}, which was presumed dead"
    elif facts.lease is not None and facts.silent > facts.lease:
        text = f"{name} has it, and has not been heard of for {in_words(facts.silent)}"
    else:
        return None
    if facts.alive:
        advice = "another worker rescues it within a minute; nothing is to be done"
    else:
        advice = "start a worker: it rescues the jobs of those that are dead"
    return Explanation(Reason.WORKER_LOST, text, advice)


def _running(facts: Facts) -> Explanation | None:
    job = facts.job
    if job.state is not JobState.RUNNING or job.attempted_at is None:
        return None
    where = f"worker {job.worker_id}" + (f" ({facts.worker})" if facts.worker else "")
    since = at_in_words(job.attempted_at, facts.present)
    text = f"attempt {job.attempt} of {job.max_attempts} runs on {where}, since {since}"
    if job.deadline_at is None:
        advice = f"wait for it, it has no deadline; or: awa-trio jobs cancel {job.id}"
    else:
        when = at_in_words(job.deadline_at, facts.present)
        advice = f"wait for it; its deadline is {when}"
    return Explanation(Reason.RUNNING, text, advice, until=job.deadline_at)


def _waits_for_callback(facts: Facts) -> Explanation | None:
    job = facts.job
    if job.state is not JobState.WAITING_EXTERNAL:
        return None
    if job.callback_until is None:
        text = "its callback was answered, and it is about to go on"
        return Explanation(Reason.WAITS_FOR_CALLBACK, text, "wait a moment")
    until = at_in_words(job.callback_until, facts.present)
    text = f"it waits for a callback, which times out at {until}"
    advice = "let whoever has the token resolve it; a timeout counts as a failed attempt"
    return Explanation(Reason.WAITS_FOR_CALLBACK, text, advice, until=job.callback_until)


def _not_due(facts: Facts) -> Explanation | None:
    job = facts.job
    if not facts.waits or job.run_at <= facts.present:
        return None
    when = at_in_words(job.run_at, facts.present)
    if job.state is JobState.RETRYABLE:
        text = (
            f"attempt {job.attempt} of {job.max_attempts} failed, and the next is due at {when}"
        )
        reason = Reason.RETRIES_LATER
    else:
        text = f"it is not due until {when}"
        reason = Reason.NOT_DUE
    advice = f"wait; or, to start it now: awa-trio jobs retry {job.id}"
    return Explanation(reason, text, advice, until=job.run_at)


def _no_worker(facts: Facts) -> Explanation | None:
    if not facts.waits or facts.serving:
        return None
    queue = facts.job.queue
    if facts.alive:
        one = (
            "the one worker that is"
            if facts.alive == 1
            else f"none of the {facts.alive} workers"
        )
        verb = " alive does not serve" if facts.alive == 1 else " that are alive serves"
        text = f"{one}{verb} its queue, {queue!r}"
        advice = f"start a worker with --queue {queue}, or let one serve it too"
    else:
        text = "no worker is alive"
        advice = "start one: awa-trio worker MODULE:APP"
    return Explanation(Reason.NO_WORKER, text, advice)


def _kind_unknown(facts: Facts) -> Explanation | None:
    if not facts.waits or not facts.serving or facts.knowing:
        return None
    job = facts.job
    text = f"no live worker that serves {job.queue!r} has a task for its kind, {job.kind!r}"
    advice = (
        "start a worker with an app that has one; workers leave alone what they do not know"
    )
    return Explanation(Reason.KIND_UNKNOWN, text, advice)


def _key_taken(facts: Facts) -> Explanation | None:
    job = facts.job
    if not facts.waits or facts.taken_by is None:
        return None
    doing = "waits for a callback" if facts.taken_state is JobState.WAITING_EXTERNAL else "runs"
    text = f"job {facts.taken_by} has its ordering key, {job.ordering_key!r}, and {doing}"
    advice = f"wait for that; or look at it: awa-trio jobs explain {facts.taken_by}"
    return Explanation(Reason.ORDERING_KEY_TAKEN, text, advice, job_id=facts.taken_by)


def _not_the_head(facts: Facts) -> Explanation | None:
    job = facts.job
    if not facts.waits or facts.head is None or facts.head == job.id:
        return None
    text = f"job {facts.head} of its ordering key, {job.ordering_key!r}, comes first"
    advice = f"wait for that; or look at it: awa-trio jobs explain {facts.head}"
    return Explanation(Reason.NOT_THE_HEAD, text, advice, job_id=facts.head)


def _paused(facts: Facts) -> Explanation | None:
    if not facts.waits or facts.room_in is not None:
        return None
    queue = facts.job.queue
    text = f"its queue, {queue!r}, is paused"
    return Explanation(Reason.QUEUE_PAUSED, text, f"to go on: awa-trio queues resume {queue}")


def _out_of_tokens(facts: Facts) -> Explanation | None:
    if not facts.waits or not facts.room_in:
        return None
    queue = facts.job.queue
    until = facts.present + timedelta(seconds=facts.room_in)
    when = at_in_words(until, facts.present)
    text = f"the rate of its queue, {queue!r}, allows no start until {when}"
    advice = f"wait for its turn; or look at the rate: awa-trio queues show {queue}"
    return Explanation(Reason.OUT_OF_TOKENS, text, advice, until=until)


def _limit_key_full(facts: Facts) -> Explanation | None:
    job = facts.job
    if not facts.waits or job.limit_key is None or facts.key_room != 0:
        return None
    text = f"as many with its limit key, {job.limit_key!r}, have started as its queue allows"
    advice = f"wait for its turn; or look at the limits: awa-trio queues show {job.queue}"
    return Explanation(Reason.LIMIT_KEY_FULL, text, advice)


def _unique_key_held(facts: Facts) -> Explanation | None:
    job = facts.job
    if (
        not facts.waits
        or facts.holder is None
        or holds(job.unique_states, job.state)
        or not holds(job.unique_states, JobState.RUNNING)
    ):
        return None
    text = f"job {facts.holder} holds its unique key, which it needs when it runs"
    advice = "wait for that; claimed before it ends, it is cancelled as a duplicate"
    return Explanation(Reason.UNIQUE_KEY_HELD, text, advice, job_id=facts.holder)


def _behind(facts: Facts) -> Explanation | None:
    if not facts.waits or not facts.ahead or facts.job.run_at > facts.present:
        return None
    if facts.ahead == 1:
        others, verb = "another job", "is"
    else:
        others, verb = f"{facts.ahead:,} others", "are"
        if facts.ahead >= facts.most:
            others = f"at least {others}"
    text = f"{others} of its queue, kind and priority {verb} due and before it"
    advice = "wait; or run more workers, or more attempts at once, or give it a higher priority"
    return Explanation(Reason.BEHIND_OTHERS, text, advice)


def _about_to_run(facts: Facts) -> Explanation:
    late = (facts.present - facts.job.run_at) / timedelta(seconds=1)
    text = f"nothing is in its way: it has been due for {in_words(max(late, 0))}"
    advice = (
        "a worker with room takes it at its next look; if that does not come, see whether they are"
        " busy, or claim jobs of higher priority: awa-trio workers list"
    )
    return Explanation(Reason.ABOUT_TO_RUN, text, advice)


#: In the order in which they are told.
OBSTACLES: tuple[Callable[[Facts], Explanation | None], ...] = (
    _settled,
    _lost,
    _running,
    _waits_for_callback,
    _not_due,
    _no_worker,
    _kind_unknown,
    _paused,
    _key_taken,
    _not_the_head,
    _out_of_tokens,
    _limit_key_full,
    _unique_key_held,
    _behind,
)

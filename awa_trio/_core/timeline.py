"""The life of a job, as far as its row tells: a list of what happened, and is to happen.

A row remembers its last 25 failures and its latest start; attempts that ended without a
failure, given back or snoozed, leave no mark. So a timeline may have gaps, and no guesses.
"""

from __future__ import annotations

import enum
from datetime import datetime

import attrs

from .job import WAITING, JobDetails, JobError, JobState


class TimelineEvent(enum.StrEnum):
    """What an entry of a timeline is about."""

    ENQUEUED = "enqueued"
    SCHEDULED = "scheduled"
    """When it is, or was, to start at the earliest."""
    STARTED = "started"
    FAILED = "failed"
    """An attempt, which left another."""
    PROGRESS = "progress"
    CALLBACK = "callback"
    DEADLINE = "deadline"
    """When its attempt is cut."""
    COMPLETED = "completed"
    ENDED_FAILED = "ended_failed"
    """The job, for good."""
    CANCELLED = "cancelled"
    DEAD_LETTER = "dead_letter"


@attrs.frozen
class TimelineEntry:
    """Something that happened to a job, or is to happen."""

    event: TimelineEvent
    at: datetime | None
    """When, by the database's clock; None where that was not recorded."""
    text: str
    """The same for people, as one line."""
    attempt: int | None = None
    """Which attempt it was in, if in any."""
    error: str | None = None
    """What was raised, with the frames that led to it."""
    expected: bool = False
    """Whether it is still to come."""


def timeline(job: JobDetails) -> list[TimelineEntry]:
    """Return the life of a job, in order; what is still to come is last."""
    past = [_enqueued(job), *_scheduled_once(job)]
    final = job.errors[-1] if job.errors and job.errors[-1].terminal else None
    # An operator's retry makes a terminal error one of several.
    ending = final if job.state in (JobState.FAILED, JobState.CANCELLED) else None
    past += [_failed(error) for error in job.errors if error is not ending]
    past += _started(job)
    past.sort(key=lambda entry: entry.at or job.created_at)
    past += [*_progress(job), *_answered(job), *_settled(job, ending)]
    return past + sorted(_to_come(job), key=lambda entry: entry.at or job.created_at)


def _enqueued(job: JobDetails) -> TimelineEntry:
    by = "" if job.triggered_by is None else f", by job {job.triggered_by}"
    text = f"enqueued in {job.queue} as {job.kind}{by}"
    return TimelineEntry(TimelineEvent.ENQUEUED, job.created_at, text)


def _scheduled_once(job: JobDetails) -> list[TimelineEntry]:
    """When it was due at first, if it has been; later attempts overwrite that."""
    if job.state in WAITING or job.run_at <= job.created_at or not job.attempted_at:
        return []
    if job.attempted_at < job.run_at:
        return []
    return [TimelineEntry(TimelineEvent.SCHEDULED, job.run_at, "due")]


def _started(job: JobDetails) -> list[TimelineEntry]:
    if job.attempted_at is None:
        return []
    where = "" if job.worker_id is None else f" on worker {job.worker_id}"
    if job.attempt == 0:
        # Given back, or a person let it begin anew: its number is gone.
        return [TimelineEntry(TimelineEvent.STARTED, job.attempted_at, "an attempt started")]
    text = f"attempt {job.attempt} of {job.max_attempts} started{where}"
    return [TimelineEntry(TimelineEvent.STARTED, job.attempted_at, text, job.attempt)]


def _failed(error: JobError) -> TimelineEntry:
    if error.terminal:
        # And was retried since.
        cancelled = _headline(error).startswith("cancelled")
        text = _headline(error) if cancelled else f"failed: {_headline(error)}"
        event = TimelineEvent.CANCELLED if cancelled else TimelineEvent.ENDED_FAILED
        return TimelineEntry(event, error.at, text, error.attempt, error.error)
    text = f"attempt {error.attempt} failed: {_headline(error)}"
    return TimelineEntry(TimelineEvent.FAILED, error.at, text, error.attempt, error.error)


def _headline(error: JobError) -> str:
    return error.error.partition("\n")[0]


def _progress(job: JobDetails) -> list[TimelineEntry]:
    now = job.progress
    if now.percent is None and now.message is None and not now.metadata:
        return []
    said = " ".join(
        filter(None, ["" if now.percent is None else f"{now.percent:g} %", now.message])
    )
    return [TimelineEntry(TimelineEvent.PROGRESS, None, f"progress: {said or 'a checkpoint'}")]


def _answered(job: JobDetails) -> list[TimelineEntry]:
    if job.callback_token is None or job.callback_until is not None:
        return []
    return [TimelineEntry(TimelineEvent.CALLBACK, None, "its callback was answered")]


def _settled(job: JobDetails, ending: JobError | None) -> list[TimelineEntry]:
    if job.finalized_at is None:
        return []
    if job.state is JobState.COMPLETED:
        return [TimelineEntry(TimelineEvent.COMPLETED, job.finalized_at, "completed")]
    failed = job.state is JobState.FAILED
    event = TimelineEvent.ENDED_FAILED if failed else TimelineEvent.CANCELLED
    headline = "" if ending is None else _headline(ending)
    text = "failed" if failed else "cancelled"
    if headline:
        # What cancels a job says so itself.
        text = headline if headline.startswith(text) else f"{text}: {headline}"
    found = [
        TimelineEntry(
            event,
            job.finalized_at,
            text,
            None if ending is None else ending.attempt,
            None if ending is None else ending.error,
        )
    ]
    if job.dead_letter is not None:
        text = f"became a dead letter: {job.dead_letter}"
        found.append(TimelineEntry(TimelineEvent.DEAD_LETTER, job.finalized_at, text))
    return found


def _to_come(job: JobDetails) -> list[TimelineEntry]:
    found = []
    if job.state in WAITING:
        what = "due" if job.attempt == 0 else f"attempt {job.attempt + 1} is due"
        entry = TimelineEntry(TimelineEvent.SCHEDULED, job.run_at, what, expected=True)
        found.append(entry)
    if job.callback_until is not None:
        text = "its callback times out"
        found.append(
            TimelineEntry(TimelineEvent.CALLBACK, job.callback_until, text, expected=True)
        )
    if job.deadline_at is not None:
        text = f"attempt {job.attempt} is cut"
        found.append(
            TimelineEntry(
                TimelineEvent.DEADLINE, job.deadline_at, text, job.attempt, expected=True
            )
        )
    return found

"""The life of a job as its page tells it: what of it may be told, and how it looks."""

from __future__ import annotations

from datetime import datetime

import attrs

from .. import JobDetails, TimelineEntry, TimelineEvent
from ._words import headline

#: How what happened looks; the words say it too.
_LOOKS = {
    TimelineEvent.STARTED: "busy",
    TimelineEvent.PROGRESS: "busy",
    TimelineEvent.FAILED: "bad",
    TimelineEvent.ENDED_FAILED: "bad",
    TimelineEvent.DEAD_LETTER: "bad",
    TimelineEvent.COMPLETED: "good",
}

#: What is said of what was raised, where its message is hidden.
_PLAIN = {
    TimelineEvent.ENDED_FAILED: "failed",
    TimelineEvent.CANCELLED: "cancelled",
}


@attrs.frozen
class Told:
    """Something that happened to a job, as the page tells it."""

    text: str
    at: datetime | None
    attempt: int | None
    error: str | None
    expected: bool
    open: bool
    look: str


def tell(entries: list[TimelineEntry], job: JobDetails, *, shows_args: bool) -> list[Told]:
    """Return the life of a job, with what errors and handlers say only if that may be shown."""
    raised = [number for number, entry in enumerate(entries) if entry.error is not None]
    last = raised[-1] if raised else None
    return [
        Told(
            entry.text if shows_args else _guarded(entry, job),
            entry.at,
            entry.attempt,
            entry.error if shows_args else None,
            entry.expected,
            number == last,
            "expected" if entry.expected else _LOOKS.get(entry.event, ""),
        )
        for number, entry in enumerate(entries)
    ]


def _guarded(entry: TimelineEntry, job: JobDetails) -> str:
    """What happened, without words of the handler's or of an error's."""
    if entry.event is TimelineEvent.PROGRESS:
        percent = job.progress.percent
        return "progress" if percent is None else f"progress: {percent:g} %"
    if entry.event is TimelineEvent.FAILED or entry.event in _PLAIN:
        said = _PLAIN.get(entry.event, f"attempt {entry.attempt} failed")
        kind = "" if entry.error is None else headline(entry.error)
        return f"{said}: {kind}" if kind else said
    return entry.text

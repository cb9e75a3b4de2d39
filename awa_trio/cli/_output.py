"""What the commands print: for people, or as JSON.

Anyone who may insert a job chooses its kind, its tags and its arguments, and a handler's
error may quote anything. A terminal obeys control characters, so none of them gets there
as it is: `visible` for people, JSON's own escapes for programs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import JobDetails, ScheduleRow, StoragePart, UndecodableArgs


class _Output(Console):
    """A console whose reader may go."""

    def on_broken_pipe(self) -> NoReturn:
        """Say so as for any other file; rich would end the process."""
        raise BrokenPipeError


#: Soft-wrapped: a line that is copied from a terminal should be one line.
out = _Output(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

#: What a terminal obeys instead of showing: C0 and C1 controls, the separators of lines
#: and paragraphs, what reverses the direction of text; and halves of surrogate pairs,
#: which are no characters (in arguments: bytes that are not UTF-8).
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_INVISIBLE = re.compile(f"[{_CONTROL}]")
_INVISIBLE_IN_LINE = re.compile(f"(?!\t)[{_CONTROL}]")
_INVISIBLE_IN_LINES = re.compile(f"(?![\t\n])[{_CONTROL}]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")

_COLOURS = {
    "available": "cyan",
    "scheduled": "blue",
    "running": "yellow",
    "completed": "green",
    "retryable": "magenta",
    "failed": "red",
    "cancelled": "bright_black",
    "waiting_external": "yellow",
}


def visible(text: str, unsafe: re.Pattern[str] = _INVISIBLE) -> str:
    r"""Show control characters as escapes, as in ``\x1b``, so that a terminal shows the text."""
    return unsafe.sub(lambda found: ascii(found[0])[1:-1], text)


def visible_lines(text: str) -> str:
    """Do the same with text of several lines, and of columns."""
    return visible(text, _INVISIBLE_IN_LINES)


def problem(message: str) -> None:
    """Print what went wrong, as one sentence."""
    sentence = visible(" ".join(message.split()))
    err.print(Text.assemble(("awa-trio: ", "bold red"), sentence))


def note(message: str) -> None:
    """Print how a command goes on, beside its output."""
    err.print(Text(visible(message)))


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line, of plain and styled parts."""
    out.print(
        Text.assemble(
            *(
                visible(part, _INVISIBLE_IN_LINE)
                if isinstance(part, str)
                else (visible(part[0], _INVISIBLE_IN_LINE), part[1])
                for part in parts
            )
        )
    )


def open_closed_output() -> None:
    """Print nowhere what the caller has closed, as by ``>&-``: Python has no stream for it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, it stays open


def drop_unwritable_output() -> None:
    """Forget what cannot be written: Python tries once more at its end, and would complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json_line(members: dict[str, str]) -> None:
    """Print an object as one line, given its members as JSON."""
    line = ", ".join(f"{json.dumps(name)}: {text}" for name, text in members.items())
    sys.stdout.write("{" + _escaped(line) + "}\n")


def _escaped(text: str) -> str:
    """Write as JSON's escapes what a terminal would obey, or the output cannot encode.

    Outside its strings JSON has only ASCII, and of its controls only whitespace; inside,
    it has no controls below U+0020.
    """
    text = text.translate({ord(space): " " for space in "\n\r\t"})
    text = _INVISIBLE.sub(_json_escape, text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = _NOT_ASCII.sub(_json_escape, text)
    return text


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if ord(found[0]) > 0x7F else f"\\u{ord(found[0]):04x}"


def _print_as_json(job: JobDetails) -> None:
    """Print a job as one line of JSON; its arguments as the text that was enqueued."""
    facts = _facts(job)
    members = {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}
    members["args"] = job.raw_args.decode()
    members["metadata"], triggered_by = _metadata(job)
    members["triggered_by"] = json.dumps(triggered_by)
    print_json_line(members)


def _metadata(job: JobDetails) -> tuple[str, int | None]:
    """A job's metadata as JSON, and the job that triggered it.

    As it was inserted, reserved keys and all, if that is more than Python reads: plain SQL
    may insert numbers of thousands of digits.
    """
    try:
        return json.dumps(job.metadata, ensure_ascii=False), job.triggered_by
    except (ValueError, RecursionError, UndecodableArgs):
        return (job.raw_metadata or b"{}").decode(), None


def _facts(job: JobDetails) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "args": None,
        "metadata": None,
        "tags": list(job.tags),
        "triggered_by": None,
        "schedule": job.schedule,
        "scheduled_for": _iso(job.scheduled_for),
        "ordering_key": job.ordering_key,
        "unique_key": job.unique_key.hex() if job.unique_key else None,
        "deadline": job.deadline,
        "worker_id": job.worker_id,
        "created_at": _iso(job.created_at),
        "run_at": _iso(job.run_at),
        "attempted_at": _iso(job.attempted_at),
        "deadline_at": _iso(job.deadline_at),
        "callback_until": _iso(job.callback_until),
        "finalized_at": _iso(job.finalized_at),
        "progress": {
            "percent": job.progress.percent,
            "message": job.progress.message,
            "metadata": job.progress.metadata,
        }
        if job.raw_progress
        else None,
        "output": job.output,
        "dead_letter": job.dead_letter,
        "errors": [
            {
                "attempt": error.attempt,
                "at": _iso(error.at),
                "terminal": error.terminal,
                "error": error.error,
            }
            for error in job.errors
        ],
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def print_jobs(jobs: Sequence[JobDetails]) -> None:
    """Print jobs as a table."""
    _print_table(
        "no jobs",
        ("id", "state", "kind", "queue", "attempt", "due", "last error"),
        [
            (
                str(job.id),
                state(job),
                _cell(job.kind),
                _cell(job.queue),
                f"{job.attempt}/{job.max_attempts}",
                ago(job.run_at),
                _last_error(job),
            )
            for job in jobs
        ],
    )


def print_dead_letters(jobs: Sequence[JobDetails]) -> None:
    """Print dead letters as a table."""
    _print_table(
        "no dead letters",
        ("id", "reason", "kind", "queue", "attempt", "failed", "last error"),
        [
            (
                str(job.id),
                Text(job.dead_letter or "", style=_COLOURS["failed"]),
                _cell(job.kind),
                _cell(job.queue),
                f"{job.attempt}/{job.max_attempts}",
                ago(job.finalized_at),
                _last_error(job),
            )
            for job in jobs
        ],
    )


def print_page(
    jobs: Sequence[JobDetails],
    as_table: Callable[[Sequence[JobDetails]], None],
    limit: int,
    *,
    as_json: bool,
) -> None:
    """Print a page of jobs, for people with how to get the next, or for programs."""
    if as_json:
        for job in jobs:
            _print_as_json(job)
        return
    as_table(jobs)
    if len(jobs) == limit:
        say(("more: ", "bright_black"), f"--before {jobs[-1].id}")


def _last_error(job: JobDetails) -> Text:
    return _cell(job.errors[-1].error.partition("\n")[0] if job.errors else "")


def _cell(text: str) -> Text:
    # Not as str, in which rich would find markup.
    return Text(visible(text))


def _print_table(
    empty: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]
) -> None:
    if not rows:
        say(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(
            name, justify="right" if name == "id" else "left", overflow="ellipsis", no_wrap=True
        )
    for row in rows:
        table.add_row(*row)
    # A table must know its width; piped, it may be as wide as it likes.
    _Output(width=out.width if out.is_terminal else 200, highlight=False).print(table)


def print_schedules(rows: Sequence[ScheduleRow], *, as_json: bool) -> None:
    """Print schedules, for people or for programs."""
    if as_json:
        for row in rows:
            _print_schedule_as_json(row)
        return
    _print_table(
        "no schedules",
        ("name", "when", "next", "last", "fires", "condition"),
        [
            (
                _cell(row.name),
                _cell(_when(row)),
                ago(row.next_at),
                ago(row.fired_for),
                f"{row.fires:,}",
                _condition(row),
            )
            for row in rows
        ],
    )


def print_schedule(row: ScheduleRow, *, as_json: bool) -> None:
    """Print everything about one schedule, for people or for programs."""
    if as_json:
        _print_schedule_as_json(row)
        return
    say(("schedule ", "bold"), (row.name, "bold"), "  ", _when(row))
    facts: list[tuple[str, Any]] = [
        ("kind", row.kind),
        ("condition", _condition(row).plain),
        ("next", row.next_at and f"{_iso(row.next_at)} ({ago(row.next_at)})"),
        ("last", row.fired_for and f"{_iso(row.fired_for)} ({ago(row.fired_for)})"),
        ("fired at", row.fired_at and f"{_iso(row.fired_at)} ({ago(row.fired_at)})"),
        ("last job", row.last_job_id),
        ("fires", f"{row.fires:,}"),
        ("if missed", row.missed),
        ("since", f"{_iso(row.since)} ({ago(row.since)})"),
        ("dealt with", f"up to {_iso(row.cursor)} ({ago(row.cursor)})"),
        ("paused", row.paused_at and f"{_iso(row.paused_at)} ({ago(row.paused_at)})"),
        ("seen", f"{_iso(row.seen_at)} ({ago(row.seen_at)})"),
    ]
    for name, value in facts:
        if value not in (None, ""):
            say((f"  {name:<13}", "bright_black"), str(value))
    for at in row.upcoming():
        say((f"  {'coming':<13}", "bright_black"), f"{at:%a} {at.isoformat()}")
    if row.error is not None:
        say(("  error", "red"))
        for line in row.error.split("\n"):
            say("    ", line)


def _when(row: ScheduleRow) -> str:
    return row.expression if row.timezone is None else f"{row.expression} {row.timezone}"


def _condition(row: ScheduleRow) -> Text:
    """What keeps it from firing, if anything does."""
    if row.paused:
        return Text("paused", style="yellow")
    if row.orphaned:
        return Text("orphaned: no worker has it", style="red")
    if row.error is not None:
        return Text(visible(row.error.partition("\n")[0]), style="red")
    late = row.next_at is not None and (row.now - row.next_at).total_seconds() > _LATE_AFTER
    return Text("late", style="red") if late else Text("")


#: Seconds after which a fire is late: those that follow a leader have come by then.
_LATE_AFTER = 10.0


def _print_schedule_as_json(row: ScheduleRow) -> None:
    facts: dict[str, Any] = {
        "name": row.name,
        "expression": row.expression,
        "timezone": row.timezone,
        "kind": row.kind,
        "missed": row.missed,
        "next_at": _iso(row.next_at),
        "fires": row.fires,
        "fired_for": _iso(row.fired_for),
        "fired_at": _iso(row.fired_at),
        "last_job_id": row.last_job_id,
        "since": _iso(row.since),
        "cursor": _iso(row.cursor),
        "paused_at": _iso(row.paused_at),
        "seen_at": _iso(row.seen_at),
        "orphaned": row.orphaned,
        "error": row.error,
    }
    print_json_line(
        {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}
    )


def print_parts(parts: Sequence[StoragePart]) -> None:
    """Print what jobs take up, part by part."""
    _print_table(
        "nothing",
        ["part", "jobs, about", "size", "condition"],
        [[part.part, f"{part.jobs:,}", _size(part.bytes), part.condition] for part in parts],
    )


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def state(job: JobDetails) -> Text:
    """Return a job's state in its colour."""
    return Text(job.state.value, style=_COLOURS[job.state.value])


def ago(instant: datetime | None) -> str:
    """Return an instant as people say it: how long ago, or in how long."""
    if instant is None:
        return ""
    seconds = (datetime.now(UTC) - instant).total_seconds()
    size = abs(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= length:
            amount = f"{size / length:.0f} {unit}"
            break
    else:
        amount = f"{size:.0f} s"
    return f"{amount} ago" if seconds >= 0 else f"in {amount}"


def _progress(job: JobDetails) -> str:
    """Return how far a job has come, as one line."""
    now = job.progress
    parts = ["" if now.percent is None else f"{now.percent:g} %", now.message or ""]
    parts.append(json.dumps(now.metadata, ensure_ascii=False) if now.metadata else "")
    return "  ".join(filter(None, parts))


def print_job(job: JobDetails, *, as_json: bool) -> None:
    """Print everything about one job, for people or for programs."""
    if as_json:
        _print_as_json(job)
        return
    say(
        ("job ", "bold"),
        (str(job.id), "bold"),
        "  ",
        (job.kind, "bold"),
        "  ",
        (job.state.value, _COLOURS[job.state.value]),
    )
    metadata, triggered_by = _metadata(job)
    facts: list[tuple[str, Any]] = [
        ("queue", job.queue),
        ("priority", job.priority),
        ("attempt", f"{job.attempt} of {job.max_attempts}"),
        ("created", f"{_iso(job.created_at)} ({ago(job.created_at)})"),
        ("due", f"{_iso(job.run_at)} ({ago(job.run_at)})"),
        (
            "attempted",
            job.attempted_at and f"{_iso(job.attempted_at)} ({ago(job.attempted_at)})",
        ),
        ("deadline", job.deadline_at and f"{_iso(job.deadline_at)} ({ago(job.deadline_at)})"),
        ("ended", job.finalized_at and f"{_iso(job.finalized_at)} ({ago(job.finalized_at)})"),
        ("dead letter", job.dead_letter),
        (
            "callback",
            job.callback_until
            and f"until {_iso(job.callback_until)} ({ago(job.callback_until)})",
        ),
        ("worker", job.worker_id),
        ("tags", ", ".join(job.tags)),
        ("triggered by", triggered_by and f"job {triggered_by}"),
        ("schedule", job.schedule and f"{job.schedule}, for {_iso(job.scheduled_for)}"),
        ("ordering key", job.ordering_key),
        ("unique key", job.unique_key.hex() if job.unique_key else None),
        ("metadata", metadata.replace("\n", " ") if metadata != "{}" else None),
        # Newlines in JSON stand between its parts, never in its strings.
        ("args", job.raw_args.decode().replace("\n", " ")),
        ("progress", _progress(job)),
        ("output", job.raw_output and job.raw_output.decode().replace("\n", " ")),
    ]
    for name, value in facts:
        if value not in (None, ""):
            say((f"  {name:<13}", "bright_black"), str(value))
    for error in job.errors:
        say(
            (f"  attempt {error.attempt}", "red"),
            f"  {_iso(error.at)}",
            "  terminal" if error.terminal else "",
        )
        for line in error.error.split("\n"):
            say("    ", line)

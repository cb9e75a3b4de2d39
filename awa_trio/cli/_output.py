"""What the commands print: for people, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import JobDetails

#: Soft-wrapped: a line that is copied from a terminal should be one line.
out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

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


def problem(message: str) -> None:
    """Print what went wrong, as one sentence."""
    err.print(Text.assemble(("awa-trio: ", "bold red"), " ".join(message.split())))


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line, of plain and styled parts."""
    out.print(Text.assemble(*parts))


def print_json(value: Any) -> None:
    """Print a value as JSON, one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def as_json(job: JobDetails) -> dict[str, Any]:
    """Return a job as JSON values."""
    return {
        "id": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "args": job.args_json,
        "metadata": job.metadata,
        "tags": list(job.tags),
        "triggered_by": job.triggered_by,
        "ordering_key": job.ordering_key,
        "unique_key": job.unique_key.hex() if job.unique_key else None,
        "deadline": job.deadline,
        "worker_id": job.worker_id,
        "created_at": _iso(job.created_at),
        "run_at": _iso(job.run_at),
        "attempted_at": _iso(job.attempted_at),
        "deadline_at": _iso(job.deadline_at),
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
                job.kind,
                job.queue,
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
                job.kind,
                job.queue,
                f"{job.attempt}/{job.max_attempts}",
                ago(job.finalized_at),
                _last_error(job),
            )
            for job in jobs
        ],
    )


def _last_error(job: JobDetails) -> Text:
    return Text(job.errors[-1].error.splitlines()[0] if job.errors else "")


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
    Console(width=out.width if out.is_terminal else 200, highlight=False).print(table)


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
    message = now.message or ""
    # A terminal obeys control characters.
    message = message if message.isprintable() else json.dumps(message)
    parts = ["" if now.percent is None else f"{now.percent:g} %", message]
    parts.append(json.dumps(now.metadata, ensure_ascii=False) if now.metadata else "")
    return "  ".join(filter(None, parts))


def print_job(job: JobDetails) -> None:
    """Print everything about one job."""
    say(
        ("job ", "bold"),
        (str(job.id), "bold"),
        "  ",
        (job.kind, "bold"),
        "  ",
        (job.state.value, _COLOURS[job.state.value]),
    )
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
        ("worker", job.worker_id),
        ("tags", ", ".join(job.tags)),
        ("triggered by", job.triggered_by and f"job {job.triggered_by}"),
        ("ordering key", job.ordering_key),
        ("unique key", job.unique_key.hex() if job.unique_key else None),
        ("metadata", json.dumps(job.metadata, ensure_ascii=False) if job.metadata else None),
        ("args", job.raw_args.decode()),
        ("progress", _progress(job)),
        ("output", job.raw_output and job.raw_output.decode()),
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
        for line in error.error.splitlines():
            say("    ", line)

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from .. import (
    JobDetails,
    StoragePart,
    TimelineEntry,
    _times,
)

if TYPE_CHECKING:
    from rich.progress import Progress


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

#: Of states.
COLOURS = {
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


@contextmanager
def drawn(bars: Progress) -> Iterator[Progress]:
    """Draw progress bars while a block runs, where somebody looks: on a terminal."""
    bars.disable = not bars.console.is_terminal
    # Not entered where it is disabled: some releases of rich print a line all the same.
    with nullcontext() if bars.disable else bars:
        yield bars


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


def print_record(facts: Mapping[str, Any]) -> None:
    """Print facts as one line of JSON, for programs."""
    print_json_line({name: json.dumps(v, ensure_ascii=False) for name, v in facts.items()})


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


def _print_as_json(job: JobDetails, **more: Any) -> None:
    """Print a job as one line of JSON; its arguments as the text that was enqueued."""
    facts = _facts(job)
    members = {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}
    members["args"] = job.raw_args.decode()
    members["metadata"] = job.metadata_text
    members["output"] = (job.raw_output or b"null").decode()
    members |= {name: json.dumps(value, ensure_ascii=False) for name, value in more.items()}
    print_json_line(members)


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
        "triggered_by": job.triggered_by,
        "schedule": job.schedule,
        "scheduled_for": iso(job.scheduled_for),
        "ordering_key": job.ordering_key,
        "limit_key": job.limit_key,
        "unique_key": job.unique_key.hex() if job.unique_key else None,
        "deadline": job.deadline,
        "worker_id": job.worker_id,
        "created_at": iso(job.created_at),
        "run_at": iso(job.run_at),
        "attempted_at": iso(job.attempted_at),
        "deadline_at": iso(job.deadline_at),
        "callback_until": iso(job.callback_until),
        "finalized_at": iso(job.finalized_at),
        "progress": {
            "percent": job.progress.percent,
            "message": job.progress.message,
            "metadata": job.progress.metadata,
        }
        if job.raw_progress
        else None,
        "output": None,
        "dead_letter": job.dead_letter,
        "errors": [
            {
                "attempt": error.attempt,
                "at": iso(error.at),
                "terminal": error.terminal,
                "error": error.error,
            }
            for error in job.errors
        ],
    }


def iso(instant: datetime | None) -> str | None:
    """Return an instant as programs read it."""
    return None if instant is None else instant.isoformat()


def print_jobs(jobs: Sequence[JobDetails]) -> None:
    """Print jobs as a table."""
    print_table(
        "no jobs",
        ("id", "state", "kind", "queue", "attempt", "when", "last error"),
        [
            (
                str(job.id),
                state(job),
                cell(job.kind),
                cell(job.queue),
                f"{job.attempt}/{job.max_attempts}",
                _moment(job),
                cell(last_error(job)),
            )
            for job in jobs
        ],
    )


def _moment(job: JobDetails) -> str:
    """When it ended, started or is due."""
    what, at = job.moment
    return f"{what} {ago(at)}".strip()


def print_dead_letters(jobs: Sequence[JobDetails]) -> None:
    """Print dead letters as a table."""
    print_table(
        "no dead letters",
        ("id", "reason", "kind", "queue", "attempt", "failed", "last error"),
        [
            (
                str(job.id),
                Text(job.dead_letter or "", style=COLOURS["failed"]),
                cell(job.kind),
                cell(job.queue),
                f"{job.attempt}/{job.max_attempts}",
                ago(job.finalized_at),
                cell(last_error(job)),
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


def last_error(job: JobDetails) -> str:
    """Return the first line of a job's latest error; empty if it has none."""
    return job.errors[-1].error.partition("\n")[0] if job.errors else ""


def cell(text: str) -> Text:
    """Return text as a table shows it."""
    # Not as str, in which rich would find markup.
    return Text(visible(text), no_wrap=True, overflow="ellipsis")


def print_table(
    empty: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]
) -> None:
    """Print rows as a table; or, if there are none, say so."""
    print_rows(table_of(columns, rows) if rows else None, empty)


def print_rows(table: Table | None, empty: str) -> None:
    """Print a table; or, if there is none, say so."""
    if table is None:
        say(empty)
        return
    print_wide(table)


def print_wide(what: RenderableType) -> None:
    """Print what has a width: piped, it may be as wide as it likes."""
    if out.is_terminal:
        _Output(highlight=False).print(what)
        return
    console = _Output(width=_WIDE, highlight=False)
    with console.capture() as printed:
        console.print(what)
    # Columns are filled up to their width, which nobody needs after the last.
    for line in printed.get().splitlines():
        out.print(Text(line.rstrip()))


#: Columns whose cells end at the same place, so that numbers can be compared.
_NUMBERS = frozenset(
    {
        "id",
        "running",
        "waiting",
        "available",
        "scheduled",
        "retryable",
        "due",
        "oldest",
        "fires",
    }
    | {"jobs, about", "size"}
)
#: Columns that may be longer than there is room for: those with names, and what gives way first.
_NAMES = frozenset({"name", "kind", "queue", "queues", "duties", "failed last"})
_REST = frozenset({"last error", "condition"})

#: Of a pipe.
_WIDE = 200

#: Characters between columns; and of what gives way first, at least.
_GAP = 2
_LEAST = 12


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    """Return rows as a table, as wide as the output at most."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    natural = [
        max(cell_len(str(one)) for one in column) for column in zip(columns, *rows, strict=True)
    ]
    room = out.width if out.is_terminal else _WIDE
    widths = dict(zip(columns, fitted(columns, natural, room), strict=True))
    for name, width in widths.items():
        justify: JustifyMethod = "right" if name in _NUMBERS else "left"
        table.add_column(
            name, justify=justify, overflow="ellipsis", no_wrap=True, width=width or None
        )
    for row in rows:
        table.add_row(*row)
    return table


def fitted(columns: Sequence[str], natural: Sequence[int], room: int) -> list[int]:
    """Return how wide columns are to be: what has an end is whole, names share what is left."""
    widths = list(natural)
    names = [n for n, name in enumerate(columns) if name in _NAMES]
    rest = [n for n, name in enumerate(columns) if name in _REST]
    room -= _GAP * (len(columns) - 1)
    room -= sum(width for n, width in enumerate(natural) if n not in {*names, *rest})
    least = sum(min(natural[n], _LEAST) for n in rest)
    for n, width in zip(names, share([natural[n] for n in names], room - least), strict=True):
        widths[n] = max(width, 1)
        room -= widths[n]
    for n in rest:
        widths[n] = max(min(natural[n], room), 1)
    return widths


def share(wanted: Sequence[int], room: int) -> list[int]:
    """Share out room, in whole parts: to each what it wants, or as much as to the others."""
    given = [0 for _ in wanted]
    while room > 0 and (hungry := [n for n, want in enumerate(wanted) if given[n] < want]):
        for n in hungry[:room]:
            given[n] += 1
        room -= len(hungry)
    return given


def print_parts(parts: Sequence[StoragePart]) -> None:
    """Print what jobs take up, part by part."""
    print_table(
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
    return Text(job.state.value, style=COLOURS[job.state.value])


def when(instant: datetime | None) -> str | None:
    """Return an instant exactly, and as people say it."""
    return None if instant is None else f"{iso(instant)} ({ago(instant)})"


def ago(instant: datetime | None) -> str:
    """Return an instant as people say it: how long ago, or in how long."""
    return "" if instant is None else _times.ago((datetime.now(UTC) - instant).total_seconds())


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
    _print_facts(job)
    for error in job.errors:
        say(
            (f"  attempt {error.attempt}", "red"),
            f"  {iso(error.at)}",
            "  terminal" if error.terminal else "",
        )
        _print_trace(error.error)


def print_life(
    job: JobDetails,
    timeline: Sequence[TimelineEntry],
    follow_ups: Sequence[JobDetails],
    *,
    as_json: bool,
) -> None:
    """Print everything about one job, what has happened to it, and what came of it."""
    if as_json:
        entries = [
            {
                "event": entry.event,
                "at": iso(entry.at),
                "text": entry.text,
                "attempt": entry.attempt,
                "expected": entry.expected,
            }
            for entry in timeline
        ]
        _print_as_json(job, timeline=entries, follow_ups=[found.id for found in follow_ups])
        return
    _print_facts(job)
    say("")
    for entry in timeline:
        # Beside a job that has a year, one of today needs none.
        when = "" if entry.at is None else f"{entry.at:%Y-%m-%d %H:%M:%S}"
        style = _EVENT_COLOURS.get(entry.event, "")
        how_far = ago(entry.at) if entry.at else ""
        said = (entry.text, "bright_black" if entry.expected else style)
        say((f"  {when:<19}  {how_far:<11}  ", "bright_black"), said)
        # Its first line has been said.
        _print_trace((entry.error or "").partition("\n")[2])
    if follow_ups:
        say("")
        say(("  follow-ups", "bright_black"))
    for found in follow_ups:
        colour = COLOURS[found.state.value]
        say("    ", f"job {found.id}  {found.kind}  ", (found.state.value, colour))


_EVENT_COLOURS = {
    "failed": "red",
    "ended_failed": "bold red",
    "dead_letter": "red",
    "completed": "green",
    "cancelled": "yellow",
}


def _print_trace(error: str) -> None:
    for line in error.split("\n") if error else ():
        say("    ", line)


def _print_facts(job: JobDetails) -> None:
    say(
        ("job ", "bold"),
        (str(job.id), "bold"),
        "  ",
        (job.kind, "bold"),
        "  ",
        (job.state.value, COLOURS[job.state.value]),
    )
    metadata = job.metadata_text
    facts: list[tuple[str, Any]] = [
        ("queue", job.queue),
        ("priority", job.priority),
        ("attempt", f"{job.attempt} of {job.max_attempts}"),
        ("created", when(job.created_at)),
        ("due", when(job.run_at)),
        (
            "attempted",
            when(job.attempted_at),
        ),
        ("deadline", when(job.deadline_at)),
        ("ended", when(job.finalized_at)),
        ("dead letter", job.dead_letter),
        (
            "callback",
            job.callback_until and f"until {when(job.callback_until)}",
        ),
        ("worker", job.worker_id),
        ("tags", ", ".join(job.tags)),
        ("triggered by", job.triggered_by and f"job {job.triggered_by}"),
        ("schedule", job.schedule and f"{job.schedule}, for {iso(job.scheduled_for)}"),
        ("ordering key", job.ordering_key),
        ("limit key", job.limit_key),
        ("unique key", job.unique_key.hex() if job.unique_key else None),
        ("metadata", metadata.replace("\n", " ") if metadata != "{}" else None),
        # Newlines in JSON stand between its parts, never in its strings.
        ("args", job.raw_args.decode().replace("\n", " ")),
        ("progress", _progress(job)),
        ("output", job.raw_output and job.raw_output.decode().replace("\n", " ")),
    ]
    print_facts(facts)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print facts by name, a line each; not those that are None or empty."""
    for name, value in facts:
        if value not in (None, ""):
            say((f"  {name:<13}", "bright_black"), str(value))

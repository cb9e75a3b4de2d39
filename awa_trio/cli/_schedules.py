"""What the commands print of schedules: for people, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from .. import ScheduleRow
from ._output import (
    ago,
    cell,
    iso,
    print_facts,
    print_record,
    print_table,
    say,
    visible,
    when,
)


def print_schedules(rows: Sequence[ScheduleRow], *, as_json: bool) -> None:
    """Print schedules, for people or for programs."""
    if as_json:
        for row in rows:
            _print_schedule_as_json(row)
        return
    print_table(
        "no schedules",
        ("name", "when", "next", "last", "fires", "condition"),
        [
            (
                cell(row.name),
                cell(_when(row)),
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
    facts: list[tuple[str, object]] = [
        ("kind", row.kind),
        ("condition", _condition(row).plain),
        ("next", when(row.next_at)),
        ("last", when(row.fired_for)),
        ("fired at", when(row.fired_at)),
        ("last job", row.last_job_id),
        ("fires", f"{row.fires:,}"),
        ("if missed", row.missed),
        ("since", when(row.since)),
        ("dealt with", f"up to {when(row.cursor)}"),
        ("paused", when(row.paused_at)),
        ("seen", when(row.seen_at)),
    ]
    print_facts([*facts, *(("coming", f"{at:%a} {iso(at)}") for at in row.upcoming())])
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
        "next_at": iso(row.next_at),
        "fires": row.fires,
        "fired_for": iso(row.fired_for),
        "fired_at": iso(row.fired_at),
        "last_job_id": row.last_job_id,
        "since": iso(row.since),
        "cursor": iso(row.cursor),
        "paused_at": iso(row.paused_at),
        "seen_at": iso(row.seen_at),
        "orphaned": row.orphaned,
        "error": row.error,
    }
    print_record(facts)

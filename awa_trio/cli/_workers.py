"""``awa-trio workers``: who runs the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cyclopts import App
from rich.table import Table
from rich.text import Text

from .. import WorkerRow, _times
from ._options import Dsn, Json, connect_once
from ._output import ago, cell, iso, print_record, print_rows, table_of

workers = App(name="workers", help="See who runs the jobs.")

#: Names of queues that a line has room for.
SHOWN = 4

COLUMNS = ("id", "name", "state", "running", "waiting", "beat", "started", "queues", "duties")


@workers.command(name="list")
async def list_(*, json: Json = False, dsn: Dsn = "") -> None:
    """List the workers there are, and those that were presumed dead within a day."""
    async with connect_once(dsn) as client:
        found = await client.workers.list()
    if json:
        for worker in found:
            print_record(facts(worker))
        return
    print_rows(workers_table(found) if found else None, "no workers")


def facts(worker: WorkerRow) -> dict[str, Any]:
    """Return what programs are told about a worker."""
    return {
        "id": worker.id,
        "name": worker.name,
        "alive": worker.alive,
        "fenced": worker.fenced,
        "running": worker.running,
        "waiting": worker.waiting,
        "started_at": iso(worker.started_at),
        "beat_at": iso(worker.beat_at),
        "silent": round(worker.silent, 3),
        "lease": worker.lease,
        "queues": worker.queues,
        "kinds": worker.kinds,
        "duties": worker.duties,
    }


def workers_table(found: Sequence[WorkerRow], *, brief: bool = False) -> Table:
    """Return workers as a table; without what changes never, if it is to be brief."""
    rows = [
        (
            str(worker.id),
            cell(worker.name),
            _state(worker),
            str(worker.running),
            str(worker.waiting),
            _times.ago(worker.silent),
            ago(worker.started_at),
            _names(worker.queues),
            ", ".join(worker.duties),
        )
        for worker in found
    ]
    if brief:
        left_out = {COLUMNS.index("started"), COLUMNS.index("duties")}
        kept = [n for n in range(len(COLUMNS)) if n not in left_out]
        return table_of([COLUMNS[n] for n in kept], [[row[n] for n in kept] for row in rows])
    return table_of(COLUMNS, rows)


def _state(worker: WorkerRow) -> Text:
    if worker.fenced:
        return Text("fenced", style="red")
    if not worker.alive:
        return Text("silent", style="yellow")
    return Text("alive", style="green")


def _names(names: tuple[str, ...] | None) -> Text:
    if names is None:
        return Text("")
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return cell(", ".join(names[:SHOWN]) + more)

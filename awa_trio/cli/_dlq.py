"""``awa-trio dlq``: dead letters, listed, shown, retried, purged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

from cyclopts import App, Parameter

from .. import AwaError, Client, DeadLetterReason
from ._exits import USAGE
from ._options import Before, Dsn, Json, Limit, connect_once
from ._output import print_dead_letters, print_job, print_page, problem, say

dlq = App(name="dlq", help="List, show, retry and purge dead letters: jobs that failed.")

Ids = Annotated[tuple[int, ...], Parameter(negative="")]
Queue = Annotated[str | None, Parameter(name="--queue", help="Only of this queue.")]
Kind = Annotated[str | None, Parameter(name="--kind", help="Only of this kind.")]
Reason = Annotated[
    DeadLetterReason | None,
    Parameter(name="--reason", name_transform=str.lower, help="Only with this reason."),
]
All = Annotated[bool, Parameter(name="--all", negative="", help="All of them.")]


@dlq.command(name="list")
async def list_(
    *,
    queue: Queue = None,
    kind: Kind = None,
    reason: Reason = None,
    before: Before = None,
    limit: Limit = 50,
    json: Json = False,
    dsn: Dsn = "",
) -> None:
    """List dead letters, newest first.

    Parameters
    ----------
    before
        Only with a smaller ID: the next page.
    limit
        How many, at most.
    """
    async with connect_once(dsn) as client:
        found = await client.dlq.list(
            queue=queue, kind=kind, reason=reason, before_id=before, limit=limit
        )
    print_page(found, print_dead_letters, limit, as_json=json)


@dlq.command
async def show(job_id: int, /, *, json: Json = False, dsn: Dsn = "") -> None:
    """Show everything about a dead letter: its arguments, its errors, and why it is one."""
    async with connect_once(dsn) as client:
        job = await client.dlq.get(job_id)
    print_job(job, as_json=json)


@dlq.command
async def retry(
    job_ids: Ids = (),
    /,
    *,
    queue: Queue = None,
    kind: Kind = None,
    reason: Reason = None,
    everything: All = False,
    run_at: datetime | None = None,
    priority: int | None = None,
    to_queue: str | None = None,
    dsn: Dsn = "",
) -> int:
    """Let dead letters run again, with all their attempts: by ID, by filter, or all.

    Parameters
    ----------
    run_at
        Earliest start, in local time unless it has an offset. Default, at once.
    priority
        1 runs first, 4 last. Default, as it was.
    to_queue
        Where they go. Default, where they were.
    """
    if run_at is not None and run_at.tzinfo is None:
        try:
            run_at = run_at.astimezone()
        except (OverflowError, ValueError):
            problem("--run-at: in UTC this is outside the years 1 to 9999")
            return USAGE

    async def one(client: Client, job_id: int) -> None:
        await client.dlq.retry(job_id, run_at=run_at, priority=priority, queue=to_queue)
        say(f"job {job_id} will run again")

    async def many(client: Client) -> None:
        done = await client.dlq.retry_many(
            queue=queue,
            kind=kind,
            reason=reason,
            everything=everything,
            run_at=run_at,
            priority=priority,
            to_queue=to_queue,
        )
        say(f"{_count(done)} will run again")

    filtered = queue is not None or kind is not None or reason is not None
    return await _one_or_many(job_ids, filtered, everything, one, many, dsn)


@dlq.command
async def purge(
    job_ids: Ids = (),
    /,
    *,
    queue: Queue = None,
    kind: Kind = None,
    reason: Reason = None,
    everything: All = False,
    dsn: Dsn = "",
) -> int:
    """Remove dead letters for good: by ID, by filter, or all."""

    async def one(client: Client, job_id: int) -> None:
        await client.dlq.purge(job_id)
        say(f"job {job_id} is gone")

    async def many(client: Client) -> None:
        done = await client.dlq.purge_many(
            queue=queue, kind=kind, reason=reason, everything=everything
        )
        say(f"{_count(done)} {'is' if done == 1 else 'are'} gone")

    filtered = queue is not None or kind is not None or reason is not None
    return await _one_or_many(job_ids, filtered, everything, one, many, dsn)


def _count(done: int) -> str:
    return f"{done} dead letter{'' if done == 1 else 's'}"


async def _one_or_many(
    job_ids: tuple[int, ...],
    filtered: bool,
    everything: bool,
    one: Callable[[Client, int], Awaitable[None]],
    many: Callable[[Client], Awaitable[None]],
    dsn: str,
) -> int:
    """Do it to the jobs that are meant, if exactly one way says which."""
    ways = [bool(job_ids), filtered, everything].count(True)
    if ways != 1:
        say_which = "say which" if ways == 0 else "say which in one way only"
        problem(f"{say_which}: IDs; or a filter, --queue, --kind or --reason; or --all")
        return USAGE
    code = 0
    async with connect_once(dsn) as client:
        if not job_ids:
            await many(client)
        for job_id in job_ids:
            try:
                await one(client, job_id)
            except AwaError as error:
                problem(str(error))
                code = 1
    return code

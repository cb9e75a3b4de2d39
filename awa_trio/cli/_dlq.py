"""``awa-trio dlq``: dead letters, listed, shown, retried, purged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from .. import Client, DeadLetterReason
from ._errors import UsageError
from ._many import MOST, Asked, check_ways, each, sweep
from ._options import All, Before, DryRun, Dsn, Id, Ids, Json, Limit, Yes, connect_once
from ._output import print_dead_letters, print_job, print_page, print_record, say

dlq = App(name="dlq", help="List, show, retry and purge dead letters: jobs that failed.")

Queue = Annotated[str | None, Parameter(name="--queue", help="Only of this queue.")]
Kind = Annotated[str | None, Parameter(name="--kind", help="Only of this kind.")]
Reason = Annotated[
    DeadLetterReason | None,
    Parameter(name="--reason", name_transform=str.lower, help="Only with this reason."),
]


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
async def show(job_id: Id, /, *, json: Json = False, dsn: Dsn = "") -> None:
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
    priority: Annotated[int | None, Parameter(validator=Number(gte=1, lte=4))] = None,
    to_queue: str | None = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
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
            raise UsageError("--run-at: in UTC this is outside the years 1 to 9999") from None

    async def one(client: Client, job_id: int) -> None:
        await client.dlq.retry(job_id, run_at=run_at, priority=priority, queue=to_queue)
        if json:
            print_record({"id": job_id, "retried": True})
        else:
            say(f"job {job_id} will run again")

    async def many(client: Client, watch: Callable[[int], object]) -> int:
        return await client.dlq.retry_many(
            queue=queue,
            kind=kind,
            reason=reason,
            everything=everything,
            run_at=run_at,
            priority=priority,
            to_queue=to_queue,
            watch=watch,
        )

    return await _one_or_many(
        job_ids,
        (queue, kind, reason),
        everything,
        Asked(dry_run, yes, json),
        ("retry", "retried"),
        one,
        many,
        dsn,
    )


@dlq.command
async def purge(
    job_ids: Ids = (),
    /,
    *,
    queue: Queue = None,
    kind: Kind = None,
    reason: Reason = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    dsn: Dsn = "",
) -> int:
    """Remove dead letters for good: by ID, by filter, or all."""

    async def one(client: Client, job_id: int) -> None:
        await client.dlq.purge(job_id)
        if json:
            print_record({"id": job_id, "purged": True})
        else:
            say(f"job {job_id} is gone")

    async def many(client: Client, watch: Callable[[int], object]) -> int:
        return await client.dlq.purge_many(
            queue=queue, kind=kind, reason=reason, everything=everything, watch=watch
        )

    return await _one_or_many(
        job_ids,
        (queue, kind, reason),
        everything,
        Asked(dry_run, yes, json),
        ("purge", "purged"),
        one,
        many,
        dsn,
    )


async def _one_or_many(
    job_ids: tuple[int, ...],
    wanted: tuple[str | None, str | None, DeadLetterReason | None],
    everything: bool,
    asked: Asked,
    words: tuple[str, str],
    one: Callable[[Client, int], Awaitable[None]],
    many: Callable[[Client, Callable[[int], object]], Awaitable[int]],
    dsn: str,
) -> int:
    """Do it to the jobs that are meant, if exactly one way says which.

    Raises:
      UsageError: none does, or several.
    """
    queue, kind, reason = wanted
    filtered = wanted != (None, None, None)
    check_ways(
        bool(job_ids),
        filtered,
        everything,
        asked.dry_run,
        filters="--queue, --kind or --reason",
    )
    async with connect_once(dsn) as client:
        if job_ids:
            return await each(job_ids, lambda job_id: one(client, job_id))

        async def count() -> int:
            return await client.dlq.count(queue=queue, kind=kind, reason=reason, most=MOST)

        async def run(watch: Callable[[int], object]) -> tuple[int, int]:
            return await many(client, watch), 0

        return await sweep(asked, "dead letter", *words, count, run)

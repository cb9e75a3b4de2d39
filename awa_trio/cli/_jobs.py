"""``awa-trio jobs``: list, show, explain, cancel, retry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import attrs
from cyclopts import App, Parameter

from .. import Client, Explanation, FollowUpsUnknown, JobState, Many
from ._errors import CommandFailed, UsageError
from ._exits import FAILED
from ._many import MOST, Asked, check_ways, each, sweep
from ._options import (
    All,
    Before,
    DryRun,
    Dsn,
    Id,
    Ids,
    Json,
    Limit,
    WhichApp,
    Yes,
    connect_once,
    load_app,
)
from ._output import iso, print_jobs, print_life, print_page, print_record, problem, say

jobs = App(name="jobs", help="List, show, explain, cancel and retry jobs.")

States = Annotated[
    tuple[JobState, ...],
    Parameter(
        name="--state",
        name_transform=str.lower,
        negative="",
        help="Only in this state; may be given several times.",
    ),
]
FILTERS = "--state, --kind, --queue or --tag"
Kind = Annotated[str | None, Parameter(name="--kind", help="Only of this kind.")]
Queue = Annotated[str | None, Parameter(name="--queue", help="Only of this queue.")]
Tag = Annotated[str | None, Parameter(name="--tag", help="Only with this tag.")]


@jobs.command(name="list")
async def list_(
    *,
    state: States = (),
    kind: Kind = None,
    queue: Queue = None,
    tag: Tag = None,
    before: Before = None,
    limit: Limit = 50,
    json: Json = False,
    dsn: Dsn = "",
) -> None:
    """List jobs, newest first.

    Parameters
    ----------
    before
        Only with a smaller ID: the next page.
    limit
        How many, at most.
    """
    async with connect_once(dsn) as client:
        found = await client.jobs.list(
            state=state or None, kind=kind, queue=queue, tag=tag, before_id=before, limit=limit
        )
    print_page(found, print_jobs, limit, as_json=json)


@jobs.command
async def show(job_id: Id, /, *, json: Json = False, dsn: Dsn = "") -> None:
    """Show everything about a job: what it is, what has happened to it, and what came of it.

    Its arguments, attempts, errors, progress and output; and the jobs that were enqueued
    when it was settled.
    """
    async with connect_once(dsn) as client:
        job = await client.jobs.get(job_id)
        timeline = await client.jobs.timeline(job_id)
        follow_ups = await client.jobs.follow_ups(job_id)
    print_life(job, timeline, follow_ups, as_json=json)


@jobs.command
async def explain(job_id: Id, /, *, json: Json = False, dsn: Dsn = "") -> None:
    """Say why a job does not run, and what to do about it."""
    async with connect_once(dsn) as client:
        found = await client.jobs.explain(job_id)
    for one in found:
        _print_reason(job_id, one, as_json=json)


def _print_reason(job_id: int, one: Explanation, *, as_json: bool) -> None:
    if as_json:
        print_record(
            {
                "id": job_id,
                "reason": one.reason,
                "text": one.text,
                "advice": one.advice,
                "until": iso(one.until),
                "job_id": one.job_id,
            }
        )
        return
    say((one.text, "bold"))
    say(("  → ", "green"), one.advice)


@jobs.command
async def cancel(
    job_ids: Ids = (),
    /,
    *,
    key: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    state: States = (),
    kind: Kind = None,
    queue: Queue = None,
    tag: Tag = None,
    everything: All = False,
    reason: str = "cancelled by an operator",
    app: WhichApp = "",
    without_follow_ups: Annotated[bool, Parameter(negative="")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    dsn: Dsn = "",
) -> int:
    """Cancel jobs, whatever they are doing: by ID, by unique key, by filter, or all.

    A running handler is cancelled. What the app has registered with on_cancelled is enqueued
    with it, so the app must be known: by --app, or once and for all by the environment
    variable AWA_APP.

    Parameters
    ----------
    key
        The job that holds this unique key: 32 hexadecimal digits, as `jobs show` has
        them; may be given several times.
    reason
        Recorded on each job.
    without_follow_ups
        Leave them out, or say that there are none; then no app is needed.
    """
    filtered = bool(state) or not (kind is queue is tag is None)
    named = bool(job_ids or key)
    check_ways(named, filtered, everything, dry_run, filters=FILTERS, names="IDs, or --key")
    try:
        keys = [bytes.fromhex(one) for one in key]
    except ValueError:
        raise UsageError(
            "a unique key is 32 hexadecimal digits, as `awa-trio jobs show` has them"
        ) from None
    known = load_app(app) if app and not without_follow_ups else None
    async with connect_once(dsn, app=known) as client:
        if not job_ids and not keys:
            usual = tuple(one for one in JobState if not one.terminal)
            which = Which(state, kind, queue, tag, everything)
            act = partial(
                client.jobs.cancel_many, reason=reason, without_follow_ups=without_follow_ups
            )
            asked = Asked(dry_run, yes, json)
            try:
                return await _sweep(client, asked, ("cancel", "cancelled"), act, which, usual)
            except FollowUpsUnknown as error:
                problem(f"it went no further: {_unknown(error, app, known is not None)}")
                return FAILED

        async def one(target: int | bytes) -> None:
            name = (
                f"job {target}" if isinstance(target, int) else f"the holder of {target.hex()}"
            )
            try:
                if isinstance(target, int):
                    job_id: int | None = target
                    done = await client.jobs.cancel(
                        target, reason=reason, without_follow_ups=without_follow_ups
                    )
                else:
                    job_id = await client.jobs.cancel_by_key(
                        target, reason=reason, without_follow_ups=without_follow_ups
                    )
                    done = job_id is not None
                    name = f"job {job_id}" if done else name
            except FollowUpsUnknown as error:
                why = _unknown(error, app, known is not None)
                raise CommandFailed(f"{name} was left as it is: {why}") from error
            if json:
                print_record({"id": job_id, "cancelled": done})
            else:
                say(f"{name} ", "is cancelled" if done else "had ended already")

        targets: list[int | bytes] = [*job_ids, *keys]
        return await each(targets, one)


def _seen(so_far: Many) -> int:
    return so_far.done


def _unknown(error: FollowUpsUnknown, app: str, known: bool) -> str:
    has_none = f"; {app} does not run it" if known else ""
    return (
        f"follow-ups may be registered for kind {error.kind!r}{has_none}; give --app MODULE:APP,"
        " or set AWA_APP, or say --without-follow-ups"
    )


@jobs.command
async def retry(
    job_ids: Ids = (),
    /,
    *,
    state: States = (),
    kind: Kind = None,
    queue: Queue = None,
    tag: Tag = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    dsn: Dsn = "",
) -> int:
    """Let jobs run again, with all their attempts: by ID, by filter, or all that failed.

    By filter those that failed, unless --state says otherwise. Completed ones are never
    reopened.
    """
    filtered = bool(state) or not (kind is queue is tag is None)
    check_ways(bool(job_ids), filtered, everything, dry_run, filters=FILTERS)
    async with connect_once(dsn) as client:
        if job_ids:
            return await _retry_each(client, job_ids, as_json=json)

        asked = Asked(dry_run, yes, json)
        which = Which(state, kind, queue, tag, everything)
        act = client.jobs.retry_many
        return await _sweep(client, asked, ("retry", "retried"), act, which, (JobState.FAILED,))


@attrs.frozen
class Which:
    """The jobs of a filter, as it was given."""

    state: tuple[JobState, ...]
    kind: str | None
    queue: str | None
    tag: str | None
    everything: bool


async def _sweep(
    client: Client,
    asked: Asked,
    words: tuple[str, str],
    act: Callable[..., Awaitable[Many]],
    which: Which,
    usual: tuple[JobState, ...],
) -> int:
    """Do something with the jobs of a filter; ``usual`` are the states of those it is done with."""
    kind, queue, tag = which.kind, which.queue, which.tag

    async def count() -> int:
        return await client.jobs.count(
            state=which.state or usual, kind=kind, queue=queue, tag=tag, most=MOST
        )

    async def run(watch: Callable[[int], object]) -> tuple[int, int]:
        many = await act(
            state=which.state or None,
            kind=kind,
            queue=queue,
            tag=tag,
            everything=which.everything,
            watch=lambda so_far: watch(_seen(so_far)),
        )
        return many.done, many.left

    try:
        return await sweep(asked, "job", *words, count, run)
    except ValueError as error:
        raise UsageError(str(error)) from error


async def _retry_each(client: Client, job_ids: tuple[int, ...], *, as_json: bool) -> int:
    async def one(job_id: int) -> None:
        await client.jobs.retry(job_id)
        if as_json:
            print_record({"id": job_id, "retried": True})
        else:
            say(f"job {job_id} will run again")

    return await each(job_ids, one)

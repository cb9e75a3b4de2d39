"""``awa-trio jobs``: list, show, explain, cancel, retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import App, Parameter

from .. import AwaError, Client, Explanation, FollowUpsUnknown, JobState, Many
from ._errors import UsageError
from ._many import MOST, Asked, sweep
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
    _check_ways(bool(job_ids or key), filtered, everything, dry_run, ", or --key")
    try:
        keys = [bytes.fromhex(one) for one in key]
    except ValueError:
        raise UsageError(
            "a unique key is 32 hexadecimal digits, as `awa-trio jobs show` has them"
        ) from None
    known = load_app(app) if app and not without_follow_ups else None
    async with connect_once(dsn, app=known) as client:
        if not job_ids and not keys:
            states = state or tuple(one for one in JobState if not one.terminal)

            async def count() -> int:
                return await client.jobs.count(
                    state=states, kind=kind, queue=queue, tag=tag, most=MOST
                )

            async def run(watch: Callable[[int], object]) -> tuple[int, int]:
                many = await client.jobs.cancel_many(
                    state=state or None,
                    kind=kind,
                    queue=queue,
                    tag=tag,
                    everything=everything,
                    reason=reason,
                    without_follow_ups=without_follow_ups,
                    watch=lambda so_far: watch(_seen(so_far)),
                )
                return many.done, many.left

            try:
                asked = Asked(dry_run, yes, json)
                return await sweep(asked, "job", "cancel", "cancelled", count, run)
            except FollowUpsUnknown as error:
                problem(f"it went no further: {_unknown(error, app, known is not None)}")
                return 1
            except ValueError as error:
                raise UsageError(str(error)) from error
        code = 0
        targets: list[int | bytes] = [*job_ids, *keys]
        for one in targets:
            name = f"job {one}" if isinstance(one, int) else f"the holder of {one.hex()}"
            job_id = one if isinstance(one, int) else None
            try:
                if isinstance(one, int):
                    done = await client.jobs.cancel(
                        one, reason=reason, without_follow_ups=without_follow_ups
                    )
                else:
                    job_id = await client.jobs.cancel_by_key(
                        one, reason=reason, without_follow_ups=without_follow_ups
                    )
                    done = job_id is not None
                    name = f"job {job_id}" if done else name
            except FollowUpsUnknown as error:
                problem(f"{name} was left as it is: {_unknown(error, app, known is not None)}")
                code = 1
                continue
            except AwaError as error:
                problem(str(error))
                code = 1
                continue
            if json:
                print_record({"id": job_id, "cancelled": done})
            else:
                say(f"{name} ", "is cancelled" if done else "had ended already")
    return code


def _seen(so_far: Many) -> int:
    return so_far.done


def _unknown(error: FollowUpsUnknown, app: str, known: bool) -> str:
    has_none = f"; {app} does not run it" if known else ""
    return (
        f"follow-ups may be registered for kind {error.kind!r}{has_none}; give --app MODULE:APP,"
        " or set AWA_APP, or say --without-follow-ups"
    )


def _check_ways(
    named: bool, filtered: bool, everything: bool, dry_run: bool, more: str = ""
) -> None:
    """Refuse what does not say in exactly one way which jobs are meant.

    Raises:
      UsageError: it does not.
    """
    ways = [named, filtered, everything].count(True)
    if ways != 1:
        say_which = "say which jobs" if ways == 0 else "say which jobs in one way only"
        raise UsageError(
            f"{say_which}: IDs{more}; or a filter, --state, --kind, --queue or --tag; or --all"
        )
    if named and dry_run:
        raise UsageError("--dry-run: only with a filter, or --all")


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
    _check_ways(bool(job_ids), filtered, everything, dry_run)
    async with connect_once(dsn) as client:
        if job_ids:
            return await _retry_each(client, job_ids, as_json=json)

        async def count() -> int:
            return await client.jobs.count(
                state=state or JobState.FAILED, kind=kind, queue=queue, tag=tag, most=MOST
            )

        async def run(watch: Callable[[int], object]) -> tuple[int, int]:
            many = await client.jobs.retry_many(
                state=state or None,
                kind=kind,
                queue=queue,
                tag=tag,
                everything=everything,
                watch=lambda so_far: watch(_seen(so_far)),
            )
            return many.done, many.left

        try:
            asked = Asked(dry_run, yes, json)
            return await sweep(asked, "job", "retry", "retried", count, run)
        except ValueError as error:
            raise UsageError(str(error)) from error


async def _retry_each(client: Client, job_ids: tuple[int, ...], *, as_json: bool) -> int:
    code = 0
    for job_id in job_ids:
        try:
            await client.jobs.retry(job_id)
        except AwaError as error:
            problem(str(error))
            code = 1
            continue
        if as_json:
            print_record({"id": job_id, "retried": True})
        else:
            say(f"job {job_id} will run again")
    return code

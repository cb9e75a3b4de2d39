"""``awa-trio jobs``: list, show, cancel, retry."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from .. import AwaError, FollowUpsUnknown, JobState
from ._options import Before, Dsn, Json, Limit, WhichApp, connect_once, load_app
from ._output import print_job, print_jobs, print_page, problem, say

jobs = App(name="jobs", help="List, show, cancel and retry jobs.")


@jobs.command(name="list")
async def list_(
    *,
    state: Annotated[
        tuple[JobState, ...], Parameter(name_transform=str.lower, negative="")
    ] = (),
    kind: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    before: Before = None,
    limit: Limit = 50,
    json: Json = False,
    dsn: Dsn = "",
) -> None:
    """List jobs, newest first.

    Parameters
    ----------
    state
        Only jobs in this state; may be given several times.
    kind
        Only of this kind.
    queue
        Only of this queue.
    tag
        Only with this tag.
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
async def show(job_id: int, /, *, json: Json = False, dsn: Dsn = "") -> None:
    """Show everything about a job: its arguments, attempts, errors, progress and output."""
    async with connect_once(dsn) as client:
        job = await client.jobs.get(job_id)
    print_job(job, as_json=json)


@jobs.command
async def cancel(
    job_ids: Annotated[tuple[int, ...], Parameter(negative="")] = (),
    /,
    *,
    key: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    reason: str = "cancelled by an operator",
    app: WhichApp = "",
    without_follow_ups: Annotated[bool, Parameter(negative="")] = False,
    dsn: Dsn = "",
) -> int:
    """Cancel jobs, whatever they are doing; a running handler is cancelled.

    What the app has registered with on_cancelled is enqueued with it, so the app must be
    known: by --app, or once and for all by the environment variable AWA_APP.

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
    if not job_ids and not key:
        problem("say which jobs: their IDs, or their unique keys with --key")
        return 2
    try:
        keys = [bytes.fromhex(one) for one in key]
    except ValueError:
        problem("a unique key is 32 hexadecimal digits, as `awa-trio jobs show` has them")
        return 2
    code = 0
    known = load_app(app) if app and not without_follow_ups else None
    async with connect_once(dsn, app=known) as client:
        targets: list[int | bytes] = [*job_ids, *keys]
        for one in targets:
            name = f"job {one}" if isinstance(one, int) else f"the holder of {one.hex()}"
            try:
                if isinstance(one, int):
                    done = await client.jobs.cancel(
                        one, reason=reason, without_follow_ups=without_follow_ups
                    )
                else:
                    holder = await client.jobs.cancel_by_key(
                        one, reason=reason, without_follow_ups=without_follow_ups
                    )
                    done = holder is not None
                    name = f"job {holder}" if done else name
            except FollowUpsUnknown as error:
                has_none = "" if known is None else f"; {app} does not run it"
                problem(
                    f"{name} was left as it is: follow-ups may be registered for kind"
                    f" {error.kind!r}{has_none}; give --app MODULE:APP, or set AWA_APP, or say"
                    " --without-follow-ups"
                )
                code = 1
                continue
            except AwaError as error:
                problem(str(error))
                code = 1
                continue
            say(f"{name} ", "is cancelled" if done else "had ended already")
    return code


@jobs.command
async def retry(
    job_ids: Annotated[tuple[int, ...], Parameter(negative="")], /, *, dsn: Dsn = ""
) -> int:
    """Let jobs that failed or were cancelled run again; completed ones are never reopened."""
    code = 0
    async with connect_once(dsn) as client:
        for job_id in job_ids:
            try:
                await client.jobs.retry(job_id)
            except AwaError as error:
                problem(str(error))
                code = 1
                continue
            say(f"job {job_id} will run again")
    return code

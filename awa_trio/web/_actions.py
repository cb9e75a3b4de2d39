"""What can be done on the pages. Each is a form, and ends at a page that says so."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from .. import FollowUpsUnknown
from ._access import SESSION, new_session, token_is_right
from ._gate import set_cookie
from ._requests import Refused, headers_of, read_form, visitor_of
from ._site import Site, job_id_of, log, what_of

#: Of the reason that a cancelled job is given.
MOST_REASON = 500


async def retry_job(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    """Let a job run again; a dead letter with all its attempts."""
    job_id = job_id_of(request)
    job = await site.client.jobs.get(job_id)
    if job.dead_letter is not None:
        await site.client.dlq.retry(job_id)
    else:
        await site.client.jobs.retry(job_id)
    if form.get("from") == "dead-letters":
        return site.to(request, "/dead-letters", **_wanted(form), did="retried")
    return site.to(request, f"/jobs/{job_id}", did="retried")


async def cancel_job(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    """Cancel a job, whatever it is doing."""
    job_id = job_id_of(request)
    reason = form.get("reason", "").strip()[:MOST_REASON] or "cancelled on the web page"
    without = form.get("without_follow_ups") == "yes"
    try:
        done = await site.client.jobs.cancel(job_id, reason=reason, without_follow_ups=without)
    except FollowUpsUnknown:
        job = await site.client.jobs.get(job_id)
        return site.page(request, "cancel", status=409, here="/jobs", job=job, unknown=True)
    return site.to(request, f"/jobs/{job_id}", did="cancelled" if done else "ended")


async def purge_job(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    """Remove a dead letter for good."""
    await site.client.dlq.purge(job_id_of(request))
    return site.to(request, "/dead-letters", **_wanted(form), did="purged")


async def sweep(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    """Retry, or purge, every dead letter of a filter."""
    wanted = _wanted(form)
    queue, kind, reason = wanted.get("queue"), wanted.get("kind"), wanted.get("reason")
    everything = not wanted
    if what_of(request) == "retry":
        done = await site.client.dlq.retry_many(
            queue=queue, kind=kind, reason=reason, everything=everything
        )
        return site.to(request, "/dead-letters", **wanted, did="retried-many", n=done)
    done = await site.client.dlq.purge_many(
        queue=queue, kind=kind, reason=reason, everything=everything
    )
    return site.to(request, "/dead-letters", **wanted, did="purged-many", n=done)


async def steer_queue(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    """Pause, drain or resume a queue."""
    queues, what, name = site.client.queues, request.path_params["what"], form.get("queue", "")
    match what:
        case "pause":
            await queues.pause(name)
        case "resume":
            await queues.resume(name)
        case "drain":
            await queues.drain(name)
        case _:
            raise Refused(404, "Not found", "There is no such page.")
    return site.to(request, "/queues/of", queue=name, did=what)


async def steer_schedule(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    """Pause, resume, trigger or remove a schedule."""
    cron, what, name = site.client.cron, request.path_params["what"], form.get("schedule", "")
    made = None
    match what:
        case "pause":
            await cron.pause(name)
        case "resume":
            await cron.resume(name)
        case "remove":
            await cron.remove(name)
        case "trigger":
            made = len(await cron.trigger(name))
        case _:
            raise Refused(404, "Not found", "There is no such page.")
    return site.to(request, "/cron", did=what, n=made)


def _wanted(form: Mapping[str, str]) -> dict[str, str]:
    """The filter of dead letters that a form carries along."""
    names = ("reason", "kind", "queue")
    return {name: form[name] for name in names if form.get(name)}


async def login(site: Site, request: Request) -> Response:
    """Compare a token, and remember who has given it."""
    visitor = visitor_of(request)
    form = await read_form(request)
    if not token_is_right(site.policy, form.get("token", "")):
        log.warning("somebody tried to log in with a wrong token")
        return site.page(request, "login", status=401, wrong=True)
    session = new_session(site.policy, time.time(), secrets.token_urlsafe(24))
    answer = site.to(request, "/")
    _set_session(answer, request, visitor.base, session, SESSION)
    return answer


async def logout(site: Site, request: Request) -> Response:
    """Forget who has given the token."""
    await read_form(request)
    answer = site.to(request, "/login")
    _set_session(answer, request, visitor_of(request).base, "", 0)
    return answer


def _set_session(
    answer: Response, request: Request, base: str, session: str, seconds: int
) -> None:
    headers = headers_of(request.scope)
    cookie = set_cookie("session", session, request.scope, headers, base, seconds=seconds)
    answer.headers.append("set-cookie", cookie)

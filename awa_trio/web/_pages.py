"""The pages: what is asked of the client for each."""

from __future__ import annotations

from typing import Any

import attrs
from starlette.requests import Request
from starlette.responses import Response

from .. import QueueStatus
from ._figures import look
from ._requests import visitor_of
from ._site import PAGE, Site, job_id_of, number_in, what_of, word_in
from ._stories import tell
from ._words import setting


async def jobs(site: Site, request: Request) -> Response:
    """Jobs, by what they are and where."""
    wanted = {name: word_in(request, name) for name in ("state", "kind", "queue", "tag")}
    before = number_in(request, "before")
    found = await site.client.jobs.list(
        state=wanted["state"],
        kind=wanted["kind"],
        queue=wanted["queue"],
        tag=wanted["tag"],
        before_id=before,
        limit=PAGE,
    )
    return site.page(
        request,
        "jobs",
        here="/jobs",
        jobs=found,
        wanted=wanted,
        before=before,
        more=found[-1].id if len(found) == PAGE else None,
    )


async def job(site: Site, request: Request) -> Response:
    """Everything about one job."""
    about = await about_job(site, job_id_of(request))
    return site.page(request, "job", here="/jobs", **about)


async def find_job(site: Site, request: Request) -> Response:
    """The page of the job with an ID that somebody has typed."""
    wanted = number_in(request, "id")
    return site.to(request, "/jobs" if wanted is None else f"/jobs/{wanted}")


async def about_job(site: Site, job_id: int) -> dict[str, Any]:
    """What the page of one job is made of.

    Raises:
      JobNotFound: there is none with this ID.
    """
    jobs = site.client.jobs
    found = await jobs.get(job_id)
    life = await jobs.timeline(job_id)
    shows = site.policy.show_args
    return {
        "job": found,
        "life": tell(life, found, shows_args=shows),
        "reasons": [] if found.state.terminal else await jobs.explain(job_id),
        "origin": await jobs.origin(job_id),
        "follow_ups": await jobs.follow_ups(job_id),
    }


async def cancel_job(site: Site, request: Request) -> Response:
    """Whether to cancel a job."""
    found = await site.client.jobs.get(job_id_of(request))
    return site.page(request, "cancel", here="/jobs", job=found, unknown=False)


async def dead_letters(site: Site, request: Request) -> Response:
    """Dead letters, by why they are and where."""
    wanted = _wanted_letters(request)
    before = number_in(request, "before")
    found = await site.client.dlq.list(
        queue=wanted["queue"],
        kind=wanted["kind"],
        reason=wanted["reason"],
        before_id=before,
        limit=PAGE,
    )
    return site.page(
        request,
        "dead_letters",
        here="/dead-letters",
        jobs=found,
        wanted=wanted,
        before=before,
        more=found[-1].id if len(found) == PAGE else None,
    )


def _wanted_letters(request: Request) -> dict[str, str | None]:
    return {name: word_in(request, name) for name in ("reason", "kind", "queue")}


async def sweep(site: Site, request: Request) -> Response:
    """Whether to retry, or to purge, every dead letter of a filter."""
    what = what_of(request)
    wanted = _wanted_letters(request)
    found = await site.client.dlq.list(
        queue=wanted["queue"], kind=wanted["kind"], reason=wanted["reason"], limit=PAGE
    )
    return site.page(
        request, "sweep", here="/dead-letters", what=what, wanted=wanted, found=found, most=PAGE
    )


async def purge_one(site: Site, request: Request) -> Response:
    """Whether to purge a dead letter."""
    found = await site.client.dlq.get(job_id_of(request))
    return site.page(
        request, "purge", here="/dead-letters", job=found, wanted=_wanted_letters(request)
    )


async def overview(site: Site, request: Request) -> Response:
    """What is going on."""
    return site.page(request, "overview", here="/", **await about_overview(site))


async def about_overview(site: Site) -> dict[str, Any]:
    """What the overview is made of."""

    async def ask() -> object:
        return await look(site.client, site.track)

    return {"seen": await site.shared.get("overview", ask)}


async def queues(site: Site, request: Request) -> Response:
    """Every queue."""
    return site.page(request, "queues", here="/queues", **await about_queues(site))


async def about_queues(site: Site) -> dict[str, Any]:
    """What the page of queues is made of."""
    return {"queues": await site.shared.get("queues", site.client.queues.list)}


async def queue(site: Site, request: Request) -> Response:
    """One queue, with its settings."""
    found = await site.client.queues.get(request.query_params.get("queue", ""))
    return site.page(request, "queue", here="/queues", queue=found, settings=settings_of(found))


def settings_of(queue: QueueStatus) -> list[tuple[str, str, bool]]:
    """Return the settings of a queue by name, as text, and whether each is overridden."""
    known = queue.overrides
    if queue.settings is not None:
        known = attrs.asdict(queue.effective, recurse=False)
    return [
        (name, setting(name, value), name in queue.overrides) for name, value in known.items()
    ]


async def cron(site: Site, request: Request) -> Response:
    """Every schedule."""
    return site.page(request, "cron", here="/cron", **await about_cron(site))


async def about_cron(site: Site) -> dict[str, Any]:
    """What the page of schedules is made of."""
    return {"schedules": await site.shared.get("cron", site.client.cron.list)}


async def workers(site: Site, request: Request) -> Response:
    """Every worker."""
    return site.page(request, "workers", here="/workers", **await about_workers(site))


async def about_workers(site: Site) -> dict[str, Any]:
    """What the page of workers is made of."""
    return {"workers": await site.shared.get("workers", site.client.workers.list)}


async def login(site: Site, request: Request) -> Response:
    """Where the token is asked for."""
    if site.policy.token is None or visitor_of(request).logged_in:
        return site.to(request, "/")
    return site.page(request, "login", wrong=False)

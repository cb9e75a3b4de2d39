"""Which path leads to which page, and to which action."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import _actions, _events, _pages
from ._render import FILES, read_static
from ._requests import Refused
from ._site import Action, Page, Site


def routes(site: Site) -> list[Route]:
    """Return every route of the page."""

    def page(path: str, show: Page) -> Route:
        return Route(path, site.reading(show), methods=["GET"])

    def action(path: str, do: Action) -> Route:
        return Route(path, site.acting(do), methods=["POST"])

    return [
        page("/", _pages.overview),
        page("/jobs", _pages.jobs),
        page("/jobs/find", _pages.find_job),
        page("/jobs/{job_id:int}", _pages.job),
        page("/jobs/{job_id:int}/cancel", _pages.cancel_job),
        action("/jobs/{job_id:int}/cancel", _actions.cancel_job),
        action("/jobs/{job_id:int}/retry", _actions.retry_job),
        page("/dead-letters", _pages.dead_letters),
        page("/dead-letters/all/{what}", _pages.sweep),
        action("/dead-letters/all/{what}", _actions.sweep),
        page("/dead-letters/{job_id:int}/purge", _pages.purge_one),
        action("/dead-letters/{job_id:int}/purge", _actions.purge_job),
        page("/queues", _pages.queues),
        page("/queues/of", _pages.queue),
        action("/queues/{what}", _actions.steer_queue),
        page("/cron", _pages.cron),
        action("/cron/{what}", _actions.steer_schedule),
        page("/workers", _pages.workers),
        Route("/events/jobs/{job_id:int}", site.reading(_events.job), methods=["GET"]),
        Route("/events/{view}", site.reading(_events.view), methods=["GET"]),
        page("/login", _pages.login),
        # These two are for those who may only look, too.
        Route("/login", partial(_actions.login, site), methods=["POST"]),
        Route("/logout", partial(_actions.logout, site), methods=["POST"]),
        Route("/favicon.ico", _favicon, methods=["GET"]),
        Route("/static/{name}", _static, methods=["GET"]),
    ]


async def _static(request: Request) -> Response:
    return _file(request.path_params["name"], request.query_params.get("v"))


async def _favicon(request: Request) -> Response:
    return _file("favicon.svg", None)


def _file(name: str, version: str | None) -> Response:
    if name not in FILES:
        raise Refused(404, "Not found", "There is no such file.")
    content, present = read_static(name)
    # An address that has the version leads to the same bytes for ever.
    lasting = "public, max-age=31536000, immutable" if version == present else "no-cache"
    return Response(content, headers={"content-type": FILES[name], "cache-control": lasting})

"""Which page is live, and what is drawn again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response

from .. import JobNotFound
from ._live import Receive, Send, Streams
from ._pages import about_cron, about_job, about_overview, about_queues, about_workers
from ._requests import Refused, visitor_of
from ._site import ANSWER_WITHIN, Site, job_id_of, log, told

#: The pages of which a part is live.
VIEWS: dict[str, Callable[[Site], Awaitable[dict[str, Any]]]] = {
    "overview": about_overview,
    "queues": about_queues,
    "cron": about_cron,
    "workers": about_workers,
}


async def view(site: Site, request: Request) -> Response:
    """Stream the live part of a page."""
    name = request.path_params["view"]
    if name not in VIEWS:
        raise Refused(404, "Not found", "There is no such page.")
    return _stream(site, request, f"{name}_live", lambda: VIEWS[name](site))


async def job(site: Site, request: Request) -> Response:
    """Stream what is told of one job."""
    job_id = job_id_of(request)

    async def about() -> dict[str, Any]:
        return await site.shared.get(("job", job_id), lambda: about_job(site, job_id))

    return _stream(site, request, "job_live", about)


def _stream(
    site: Site, request: Request, template: str, about: Callable[[], Awaitable[dict[str, Any]]]
) -> Response:
    if site.streams.full:
        raise Refused(503, "Too many look at once", "This part is not live for now.")
    visitor = visitor_of(request)

    async def draw() -> str:
        try:
            with anyio.fail_after(ANSWER_WITHIN):
                found = await about()
        except JobNotFound as error:
            return site.html(visitor, "trouble", message=f"{error}.")
        except TimeoutError:
            return site.html(visitor, "trouble", message="The database is slow.")
        except Exception as error:
            # Who looks goes on looking: it may be over at the next look.
            log.warning("a live page could not be drawn: %s", type(error).__name__)
            return site.html(visitor, "trouble", message=told(error)[2])
        return site.html(visitor, template, **found)

    return _Stream(site.streams, draw)


class _Stream(Response):
    """An answer that goes on."""

    def __init__(self, streams: Streams, draw: Callable[[], Awaitable[str]]) -> None:
        super().__init__()
        self._streams = streams
        self._draw = draw

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        await self._streams.run(self._draw, receive, send)

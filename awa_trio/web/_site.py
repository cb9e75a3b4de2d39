"""What every page has: the client, who is looking, and what becomes of errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from .. import (
    AwaError,
    Client,
    ConfigurationError,
    DatabaseUnavailable,
    FollowUpsUnknown,
    InvalidRequest,
    InvalidTransition,
    JobNotFound,
    ScheduleNotFound,
    SchemaError,
    UniqueConflict,
    UnknownKind,
)
from ._access import Policy
from ._figures import Track
from ._gate import base_of
from ._live import Shared, Streams
from ._render import query, render
from ._requests import Refused, Visitor, read_form, visitor_of

log = logging.getLogger("awa_trio.web")

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Page: TypeAlias = Callable[["Site", Request], Awaitable[Response]]
Action: TypeAlias = Callable[["Site", Request, Mapping[str, str]], Awaitable[Response]]

#: Seconds a page may take. A rare filter on a table of millions reads much of it; whoever
#: asks again and again must not keep the database busy with that.
ANSWER_WITHIN = 10.0

#: Rows of a page.
PAGE = 50

#: PostgreSQL's insufficient_privilege.
_NO_RIGHT = "42501"

#: What was done, by the word that the address has for it.
DONE = {
    "retried": "It will run again.",
    "cancelled": "It is cancelled.",
    "ended": "Nothing was changed: it had ended already.",
    "purged": "It is gone for good.",
    "pause": "It is paused.",
    "resume": "It goes on.",
    "drain": "It takes no new jobs.",
    "trigger": "{n} enqueued.",
    "remove": "It is forgotten.",
    "purged-many": "{n} gone for good.",
    "retried-many": "{n} will run again.",
}


class Site:
    """The page: what it looks through, and what it allows."""

    def __init__(
        self,
        client: Client | Callable[[], Client],
        policy: Policy,
        shared: Shared,
        streams: Streams,
    ) -> None:
        self._client = client
        self.policy = policy
        self.shared = shared
        self.streams = streams
        self.track = Track()

    @property
    def client(self) -> Client:
        """The client, which may be opened later than the page is made."""
        return self._client if isinstance(self._client, Client) else self._client()

    def page(
        self, request: Request, template: str, *, status: int = 200, **context: Any
    ) -> Response:
        """Answer with a page."""
        html = self.html(visitor_of(request), template, notice=notice(request), **context)
        return HTMLResponse(html, status_code=status)

    def html(self, visitor: Visitor, template: str, **context: Any) -> str:
        """Return a page, or a fragment of one."""
        return render(template, visitor, visitor.base, **context)

    def to(self, request: Request, path: str, **fields: Any) -> Response:
        """Send the browser to another page, after something was done."""
        return RedirectResponse(
            f"{visitor_of(request).base}{path}{query(fields)}", status_code=303
        )

    def reading(self, page: Page) -> Endpoint:
        """Make a page an endpoint: in bounded time."""

        async def endpoint(request: Request) -> Response:
            with anyio.move_on_after(ANSWER_WITHIN), _rights():
                return await page(self, request)
            raise Refused(
                504,
                "Too much to look through",
                f"The database needed more than {ANSWER_WITHIN:g} seconds. Ask for less:"
                " a state, a queue.",
            )

        return endpoint

    def acting(self, action: Action) -> Endpoint:
        """Make an action an endpoint: for those who may, from a form of this page."""

        async def endpoint(request: Request) -> Response:
            if not visitor_of(request).may_change:
                raise Refused(
                    403, "Read-only", "Nothing was changed: this page is for looking only."
                )
            form = await read_form(request)
            try:
                with _rights():
                    return await action(self, request, form)
            finally:
                self.shared.forget()

        return endpoint

    async def problem(self, request: Request, error: Exception) -> Response:
        """Answer with what went wrong, as a page of one sentence."""
        status, title, message = told(error)
        if status >= 500 and not isinstance(error, Refused):
            log.warning("a page could not be shown: %s", type(error).__name__)
        visitor = request.scope.get("awa_trio.visitor")
        base = base_of(request.scope)
        page = render("problem", visitor, base, title=title, message=message, status=status)
        return HTMLResponse(page, status_code=status)

    @property
    def handlers(self) -> dict[Any, Any]:
        """What answers each kind of error."""
        kinds = (Refused, HTTPException, AwaError, ValueError, Exception)
        return dict.fromkeys(kinds, self.problem)


@contextmanager
def _rights() -> Iterator[None]:
    """Say so where the database role may not do what is asked."""
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) != _NO_RIGHT:
            raise
        raise Refused(
            403, "No right", "The database role of this page has no right to do that."
        ) from error


def told(error: Exception) -> tuple[int, str, str]:
    """Return the status, the title and the sentence that an error is answered with."""
    match error:
        case Refused():
            return error.status, error.title, error.message
        case HTTPException(status_code=404):
            return 404, "Not found", "There is no such page."
        case HTTPException(status_code=405):
            return 405, "Refused", "That cannot be done here."
        case HTTPException(status_code=status):
            return status, "Refused", "This request makes no sense."
        case JobNotFound() | ScheduleNotFound():
            return 404, "Not found", f"{error}."
        case DatabaseUnavailable():
            # Its message may name the server.
            return 503, "No database", "The database cannot be reached. Try again in a moment."
        case SchemaError():
            return 503, "Another schema", "The database's schema is not that of this release."
        case (
            InvalidTransition()
            | UniqueConflict()
            | FollowUpsUnknown()
            | ConfigurationError()
            | UnknownKind()
        ):
            return 409, "Nothing was changed", f"{error}."
        case InvalidRequest():
            return 400, "Nothing was changed", f"{error}."
        case ValueError():
            return 400, "There is no such thing", f"{error}."
        case AwaError():
            return 500, "It failed", f"It failed: {type(error).__name__}. The log says more."
        case _:
            return 500, "It failed", "Something went wrong here. The log says more."


def notice(request: Request) -> str:
    """Return the sentence on what has just been done; empty if nothing was."""
    said = DONE.get(request.query_params.get("did", ""), "")
    number = request.query_params.get("n", "")
    many = (
        f"{int(number):,}"
        if number.isascii() and number.isdigit() and len(number) < 16
        else "0"
    )
    return said.format(n=many)


def number_in(request: Request, name: str) -> int | None:
    """Return a whole number from a request's query; None if it has none.

    Raises:
      ValueError: what it has is no number that a job can have.
    """
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 20 and 0 < int(text) < 2**63):
        raise ValueError(f"{name}: give a whole number, from 1 to 2**63 - 1")
    return int(text)


def word_in(request: Request, name: str) -> str | None:
    """Return a word from a request's query; None if it has none."""
    return request.query_params.get(name, "").strip() or None


def job_id_of(request: Request) -> int:
    """Return the job that a path names.

    Raises:
      JobNotFound: it names none that can be.
    """
    text = str(request.path_params["job_id"])
    if len(text) > 19 or not 0 < int(text) < 2**63:
        raise Refused(404, "Not found", "There is no job with this ID.")
    return int(text)


def what_of(request: Request) -> str:
    """Return what a path says is to be done with dead letters: ``retry`` or ``purge``.

    Raises:
      Refused: something else.
    """
    what = str(request.path_params["what"])
    if what not in ("retry", "purge"):
        raise Refused(404, "Not found", "There is no such page.")
    return what

"""What a request says, and who it is from; and the answers that refuse one."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl

import anyio
import attrs
from starlette.requests import Request

from ._access import Policy, foreign, form_token, same

#: Of a form; a filter and a reason are all that is ever in one.
MOST_FORM_BYTES = 64 * 1024

#: Seconds in which a form must have arrived.
READ_WITHIN = 10.0


class Refused(Exception):
    """A request that is answered with one sentence and a status."""

    def __init__(self, status: int, title: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.title = title
        self.message = message


@attrs.frozen
class Visitor:
    """Who a request is from, and what they may do."""

    policy: Policy
    base: str
    """Where the page is mounted, without a slash at its end."""
    may_change: bool
    cookie: str = attrs.field(repr=False)
    """What ties the page's forms to this visitor: their session, or a cookie for forms."""
    logged_in: bool = False

    @property
    def form_token(self) -> str:
        """What each form carries."""
        return form_token(self.policy, self.cookie)

    @property
    def shows_args(self) -> bool:
        """Whether what applications put into jobs is shown."""
        return self.policy.show_args


def visitor_of(request: Request) -> Visitor:
    """Return who a request is from, as the gate has found out."""
    found = request.scope["awa_trio.visitor"]
    assert isinstance(found, Visitor)
    return found


def headers_of(scope: Mapping[str, object]) -> dict[str, str]:
    """Return the headers of a request; of one that came twice, both, so that it fits nothing."""
    found: dict[str, str] = {}
    pairs = scope["headers"]
    assert isinstance(pairs, (list, tuple))
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        between = "; " if name == "cookie" else ", "
        found[name] = f"{found[name]}{between}{value}" if name in found else value
    return found


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the cookies of a request; what is no cookie is none."""
    jar = SimpleCookie()
    for part in headers.get("cookie", "").split(";"):
        try:
            jar.load(part)
        except CookieError:
            continue
    return {name: morsel.value for name, morsel in jar.items()}


async def read_form(request: Request) -> dict[str, str]:
    """Read a form, and make sure that it is one of this page's, given to this visitor.

    Raises:
      Refused: it is not; or it is too large, too slow, or no form.
    """
    headers = headers_of(request.scope)
    why = foreign(headers, headers.get("host", ""))
    if why is not None:
        raise Refused(403, "Refused", f"Nothing was changed: {why}.")
    form = await _read(request, headers)
    visitor = visitor_of(request)
    if not visitor.cookie or not same(form.pop("form_token", ""), visitor.form_token):
        raise Refused(
            403,
            "Refused",
            "Nothing was changed: this form is an old one, or your browser keeps no cookies."
            " Load the page again.",
        )
    return form


async def _read(request: Request, headers: Mapping[str, str]) -> dict[str, str]:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "Refused", "This is no form.")
    body = bytearray()
    with anyio.move_on_after(READ_WITHIN) as reading:
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_FORM_BYTES:
                raise Refused(413, "Refused", "This form is too large.")
    if reading.cancelled_caught:
        raise Refused(408, "Refused", "This form took too long to arrive.")
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=100,
        )
    except ValueError:
        raise Refused(400, "Refused", "This is no form.") from None
    return dict(pairs)

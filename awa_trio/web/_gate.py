"""The gate before every page: who may pass, and what each answer says to the browser."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable

from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from . import _access
from ._access import Policy
from ._live import Message, Receive, Send
from ._render import render
from ._requests import Visitor, cookies_of, headers_of

#: What a browser may do with a page: show it, with what this server has, and nothing else.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that a form's Origin is "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

#: What anybody may have: it says nothing of any job, and the login needs it.
_OPEN = re.compile(r"/(?:login|static/[\w.-]+|favicon\.ico)")

Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Gate:
    """Lets requests through to the pages, or answers them itself."""

    def __init__(self, pages: Application, policy: Policy) -> None:
        self._pages = pages
        self._policy = policy

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        headers = headers_of(scope)
        cookies: list[str] = []
        refusal = self._pass(scope, headers, cookies)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                known = {name for name, _ in given}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                if b"cache-control" not in known:
                    more.append((b"cache-control", b"no-store"))
                more += [(b"set-cookie", cookie.encode()) for cookie in cookies]
                message = {**message, "headers": given + more}
            await send(message)

        await (refusal or self._pages)(scope, receive, with_headers)

    def _pass(
        self, scope: Message, headers: dict[str, str], cookies: list[str]
    ) -> Response | None:
        """Note who a request is from, or return the answer to one that is refused."""
        base = base_of(scope)
        why = _access.host_refused(self._policy, headers.get("host", ""))
        if why is not None:
            return PlainTextResponse(f"awa-trio: {why}\n", status_code=421)
        path = path_of(scope)
        given = cookies_of(headers)
        session = given.get(cookie_name("session", headers), "")
        logged_in = self._policy.token is not None and _access.session_is_valid(
            self._policy, session, time.time()
        )
        if self._policy.token is not None and not logged_in and not _OPEN.fullmatch(path):
            return self._to_login(scope, base, path)
        may_change = _access.may_change(self._policy, headers)
        cookie = session if logged_in else given.get(cookie_name("form", headers), "")
        wants_form = may_change or path == "/login"
        if not logged_in and wants_form and not re.fullmatch(r"[\w-]{20,64}", cookie):
            cookie = secrets.token_urlsafe(24)
            if scope["method"] == "GET" and not path.startswith(("/static", "/events")):
                cookies.append(
                    set_cookie("form", cookie, scope, headers, base, seconds=_access.SESSION)
                )
        scope["awa_trio.visitor"] = Visitor(self._policy, base, may_change, cookie, logged_in)
        return None

    def _to_login(self, scope: Message, base: str, path: str) -> Response:
        if scope["method"] in ("GET", "HEAD") and not path.startswith("/events"):
            return RedirectResponse(f"{base}/login", status_code=303)
        page = render(
            "problem",
            None,
            base,
            title="Log in first",
            message="Nothing was changed: nobody is logged in here.",
            status=401,
        )
        return HTMLResponse(page, status_code=401)


def base_of(scope: Message) -> str:
    """Return where the page is mounted, without a slash at its end."""
    root = str(scope.get("root_path") or "").rstrip("/")
    # It ends up in addresses; two slashes would name another host.
    return root if re.fullmatch(r"(?:/[^/\\\s?#\"'<>]+)*", root) else ""


def path_of(scope: Message) -> str:
    """Return the path below where the page is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return path or "/"


def cookie_name(purpose: str, headers: dict[str, str]) -> str:
    """Return the name of a cookie. Browsers do not tell ports apart, and one machine may
    have several of these pages."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"awa_{purpose}_{port}" if port.isascii() and port.isdigit() else f"awa_{purpose}"


def set_cookie(
    purpose: str,
    value: str,
    scope: Message,
    headers: dict[str, str],
    base: str,
    *,
    seconds: int,
) -> str:
    """Return the header that sets a cookie, which no script sees and no other site sends."""
    # A proxy that speaks TLS says so; whoever lies about it harms their own login.
    encrypted = "https" in (scope.get("scheme"), headers.get("x-forwarded-proto"))
    secure = "; Secure" if encrypted else ""
    return (
        f"{cookie_name(purpose, headers)}={value}; Path={base or '/'}; Max-Age={seconds};"
        f" HttpOnly; SameSite=Strict{secure}"
    )

"""An ASGI application that resolves callbacks: requests in, calls of a client, answers out."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, NoReturn, TypeAlias, final

import anyio

from .. import (
    AwaError,
    CallbackAlreadyResolved,
    CallbackInvalid,
    CallbackNotFound,
    Client,
    ConfigurationError,
    DatabaseUnavailable,
    FollowUpError,
    FollowUpsUnknown,
    InvalidRequest,
    InvalidTransition,
)
from ._signature import Secret, keys_of, unverified

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

#: A payload of 64 KiB, spelled with every character escaped, and some room.
MOST_BYTES = 512 * 1024

#: In which a body may come. One that comes byte by byte costs a server thousands of times as much
#: as it costs its sender.
MOST_PIECES = 4096

#: Seconds a body may take to arrive: whoever sends it byte by byte holds a connection for no
#: longer than that.
READ_WITHIN = 30.0

#: Seconds a signed request may be old, or early: a replay later than that is refused, and
#: one within it resolves nothing twice.
WINDOW = 300.0

_PATH = re.compile(r"/(?P<token>[A-Za-z0-9_-]{1,200})/(?P<action>[a-z]+)", re.ASCII)
_ACTIONS = frozenset({"resume", "complete", "fail", "retry", "heartbeat"})


def receiver(
    client: Client | Callable[[], Client],
    *,
    secret: Secret | Sequence[Secret] | None = None,
    unsigned: bool = False,
    prefix: str = "/callbacks",
    window: float = WINDOW,
    most_bytes: int = MOST_BYTES,
    read_within: float = READ_WITHIN,
    without_follow_ups: bool = False,
    clock: Callable[[], float] = time.time,
) -> Receiver:
    """Make an ASGI application in which external systems resolve callbacks.

    ``POST {prefix}/{token}/{action}`` does what the method of `Callbacks` of that name does.
    The body of ``resume`` and ``complete`` is the payload, any JSON value, or nothing; of
    ``fail`` it is ``{"error": "..."}``, of ``heartbeat`` ``{"timeout": seconds}``, each
    optional. The answer is ``{"job_id": ...}``, or ``{"error": ..., "message": ...}`` with a
    status that says whose fault it is; 409 with ``already_resolved`` is success for a sender
    that delivers twice, and 5xx is worth another try.

    Args:
      client: resolves them; or a function that returns it, where it is opened later.
      secret: what senders sign with, see `sign`; several while one replaces another.
      unsigned: believe everybody. Whoever knows a token can then resolve its callback.
      prefix: where it is mounted; "" if the framework takes it off the path.
      window: seconds, at least 0, by which a request's timestamp may differ from this clock.
      most_bytes: of a body.
      read_within: seconds in which a body must have arrived.
      without_follow_ups: as for `Callbacks.complete`.
      clock: the time in seconds since 1970.

    Raises:
      ConfigurationError: there is no secret, and nobody said that it may be so; a secret
          is too short; or a number is out of its range.
      TypeError: a value is of another type.
    """
    # What is true enough for Python, such as "false", would believe everybody.
    if not isinstance(unsigned, bool):
        raise TypeError(f"unsigned: give True or False, not {type(unsigned).__name__}")
    if not isinstance(client, Client) and not callable(client):
        raise TypeError(
            f"client: give a Client, or a function that returns it, not {type(client).__name__}"
        )
    # No difference of clocks exceeds NaN: every timestamp would do.
    if not _is_number(window) or not 0 <= window < math.inf:
        raise ConfigurationError("window: give seconds, from 0 on, and not for ever")
    if not _is_number(most_bytes) or not most_bytes >= 1:
        raise ConfigurationError("most_bytes: give a number of bytes, at least 1")
    if not _is_number(read_within) or not 0 < read_within < math.inf:
        raise ConfigurationError("read_within: give seconds, more than 0, and not for ever")
    keys = keys_of(secret)
    if not keys and not unsigned:
        raise ConfigurationError(
            "a receiver of callbacks needs secret=..., which its senders sign with;"
            " unsigned=True believes everybody"
        )
    if keys and unsigned:
        raise ConfigurationError("secret=... and unsigned=True contradict each other")
    if not isinstance(prefix, str):
        raise TypeError(f"prefix: give a str, not {type(prefix).__name__}")
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise ConfigurationError(
            f"prefix={prefix!r}: begin with a slash and end without one, as in '/callbacks'"
        )
    return Receiver(
        client, keys, prefix, window, most_bytes, read_within, without_follow_ups, clock
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Refused(Exception):
    def __init__(self, status: int, error: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": error, "message": message, **more}


@final
class Receiver:
    """An ASGI application in which external systems resolve callbacks; `receiver` makes one."""

    def __init__(
        self,
        client: Client | Callable[[], Client],
        keys: Sequence[bytes],
        prefix: str,
        window: float,
        most_bytes: int,
        read_within: float,
        without_follow_ups: bool,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._keys = keys
        self._prefix = prefix
        self._window = window
        self._most_bytes = most_bytes
        self._read_within = read_within
        self._without_follow_ups = without_follow_ups
        self._clock = clock

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        status = 200
        answer: dict[str, object] = {}
        try:
            # What is no callback is not read.
            token, action = self._target(scope)
            body: bytes | None = None
            with anyio.move_on_after(self._read_within) as reading:
                body = await self._read(receive)
            if reading.cancelled_caught:
                raise _Refused(
                    408, "too_slow", f"a body is read within {self._read_within:g} seconds"
                )
            if body is None:
                return
            answer["job_id"] = await self._resolve(scope, token, action, body)
        except _Refused as refused:
            status, answer = refused.status, refused.body
            if status == 405:
                headers["allow"] = "POST"
            if status == 503:
                headers["retry-after"] = "1"
            if status in (408, 413) and scope.get("http_version", "1.1").startswith("1"):
                # The rest of the body is not to be taken for the next request.
                headers["connection"] = "close"
        raw = json.dumps(answer).encode()
        headers["content-length"] = str(len(raw))
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": raw})

    async def _read(self, receive: Receive) -> bytes | None:
        """Read the body; None if the sender has gone."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes:
                raise _Refused(
                    413, "too_large", f"a body of at most {self._most_bytes:,} bytes is read"
                )
            if len(parts) > MOST_PIECES:
                raise _Refused(
                    413, "too_large", f"a body in at most {MOST_PIECES:,} pieces is read"
                )
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _resolve(self, scope: Message, token: str, action: str, body: bytes) -> int:
        if self._keys:
            why = unverified(
                self._keys,
                _headers(scope),
                token,
                action,
                body,
                now=self._clock(),
                window=self._window,
            )
            if why is not None:
                raise _Refused(401, "unverified", why)
        try:
            return await self._call(token, action, _parse(body), bool(body))
        except AwaError as error:
            _refuse(error)

    def _target(self, scope: Message) -> tuple[str, str]:
        path, root = scope["path"], scope.get("root_path") or ""
        if root and path.startswith(root + "/"):
            path = path[len(root) :]
        found = (
            _PATH.fullmatch(path[len(self._prefix) :])
            if path.startswith(self._prefix)
            else None
        )
        if found is None or found["action"] not in _ACTIONS:
            raise _Refused(
                404,
                "no_such_path",
                f"post to {self._prefix}/TOKEN/ACTION, where the action is one of"
                f" {', '.join(sorted(_ACTIONS))}",
            )
        if scope["method"] != "POST":
            raise _Refused(405, "method_not_allowed", "callbacks are resolved by POST")
        return found["token"], found["action"]

    async def _call(self, token: str, action: str, given: Any, has_body: bool) -> int:
        client = self._client if isinstance(self._client, Client) else self._client()
        callbacks = client.callbacks
        without = self._without_follow_ups
        match action:
            case "resume":
                return await callbacks.resume(token, given)
            case "complete":
                return await callbacks.complete(token, given, without_follow_ups=without)
            case "fail":
                fields = _fields(given, "error", has_body)
                return await callbacks.fail(token, **fields, without_follow_ups=without)
            case "retry":
                _fields(given, None, has_body)
                return await callbacks.retry(token)
            case _:
                return await callbacks.heartbeat(token, **_fields(given, "timeout", has_body))


def _headers(scope: Message) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _Refused(400, "invalid", "the body is not JSON in UTF-8") from None


def _fields(given: Any, name: str | None, has_body: bool) -> dict[str, Any]:
    """The one field that an action takes, from the object in its body."""
    if not has_body:
        return {}
    if not isinstance(given, dict) or not given.keys() <= {name}:
        what = "no body" if name is None else f"an object with the field {name!r}, or no body"
        raise _Refused(400, "invalid", f"this action takes {what}")
    return given


def _refuse(error: AwaError) -> NoReturn:
    message = str(error)
    match error:
        case InvalidRequest() | CallbackInvalid():
            raise _Refused(400, "invalid", message) from None
        case CallbackNotFound():
            raise _Refused(404, "not_found", message) from None
        case CallbackAlreadyResolved():
            raise _Refused(409, "already_resolved", message, job_id=error.job_id) from None
        case InvalidTransition():
            raise _Refused(409, "not_waiting", message) from None
        case FollowUpsUnknown():
            raise _Refused(500, "follow_ups_unknown", message) from None
        case FollowUpError():
            raise _Refused(500, "follow_up_failed", message) from None
        case DatabaseUnavailable():
            # Its message may name the server.
            raise _Refused(503, "unavailable", "the database cannot be reached") from None
        case _:
            raise error


async def _live(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return

"""HTTP for probes, and no more: one request per connection, and no patience.

Whoever can reach the port can send anything, as slowly as they like. A head has at most
8 KiB, a connection five seconds in all, and of connections there are at most sixty-four: for one more
the oldest is closed, since what a probe asks is answered at once. Nothing of that costs the worker's
jobs more than a few turns of the loop.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import trio

from .. import ConfigurationError, Worker
from ._answers import Answer, answer, refused

#: Bytes of a request's head: several times what a probe sends.
MAX_HEAD = 8 * 1024

#: Seconds from the first byte of a connection to its last.
PATIENCE = 5.0

#: Connections at once.
MOST = 64

#: Of TCP.
MOST_PORT = 65_535

DEFAULT_BIND = "127.0.0.1:8080"


async def listen(bind: str = DEFAULT_BIND) -> list[trio.SocketListener]:
    """Take an address to `serve` at, before the worker starts: it may be taken already.

    Args:
      bind: HOST:PORT, as in ``127.0.0.1:8080``, ``[::1]:8080``, or ``0.0.0.0:8080`` for every
          address of the machine; or PORT, of the loopback address. Port 0 is any that is free.

    Raises:
      ConfigurationError: it is no address, or cannot be had; or h11 is not installed.
    """
    _h11()
    host, port = _address(bind)
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise ConfigurationError(
            f"health: cannot listen at {bind} ({reason}); give another HOST:PORT"
        ) from error


async def serve(
    worker: Worker,
    bind: str | Sequence[trio.SocketListener] = DEFAULT_BIND,
    *,
    answer_within: float | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer ``GET /healthz`` and ``GET /readyz`` over HTTP until the worker has ended.

    ``/healthz``: 200 if a restart would mend nothing, else 503. ``/readyz``: 200 if the worker
    is registered, is not stopping, and the database has answered lately; else 503. The body is
    JSON, with ``problems``: why not, in words. While the event loop is blocked nothing answers.

    Args:
      worker: of whom.
      bind: as for `listen`; or what that returned.
      answer_within: seconds in which the database must have answered; default, three of the
          worker's beats.
      task_status: given the addresses, as HOST:PORT.

    Raises:
      ConfigurationError: as `listen`.
    """
    h11 = _h11()
    listeners = await listen(bind) if isinstance(bind, str) else list(bind)
    #: Oldest first.
    conversations: deque[trio.CancelScope] = deque()

    async def converse(stream: trio.SocketStream) -> None:
        def answered(request: Any) -> Answer:
            return answer(
                request.method.decode("ascii"),
                request.target.decode("ascii"),
                worker.health(answer_within=answer_within),
            )

        if len(conversations) >= MOST:
            conversations.popleft().cancel(reason="awa_trio: there are too many")
        try:
            with trio.move_on_after(PATIENCE) as scope:
                conversations.append(scope)
                try:
                    await _converse(stream, h11.Connection(h11.SERVER, MAX_HEAD), answered)
                finally:
                    with suppress(ValueError):  # it may have been the oldest
                        conversations.remove(scope)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # whoever asked has gone
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, converse, listeners)
        task_status.started([_spelled(one) for one in listeners])
        await worker.wait_ended()
        nursery.cancel_scope.cancel(reason="the worker has ended")


async def _converse(
    stream: trio.SocketStream, http: Any, answered: Callable[[Any], Answer]
) -> None:
    """Read one request, and answer it; ``http`` is an `h11.Connection`."""
    h11 = _h11()
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(MAX_HEAD))
        if not isinstance(event, h11.Request):
            return  # it was closed without one
        said, body_too = answered(event), event.method != b"HEAD"
    except h11.RemoteProtocolError as error:
        said, body_too = refused(error.error_status_hint), True
    if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    await stream.send_all(_encoded(http, said, body_too=body_too))
    await stream.send_eof()
    # What comes after a request is nothing to us, but to close on it would reset the
    # connection, and the answer might be lost with it.
    while await stream.receive_some(MAX_HEAD):
        pass


def _encoded(http: Any, said: Answer, *, body_too: bool) -> bytes:
    h11 = _h11()
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(said.body))),
        ("cache-control", "no-store"),
        ("connection", "close"),
        *([("allow", said.allow)] if said.allow else []),
    ]
    reason = HTTPStatus(said.status).phrase.encode()
    events = [h11.Response(status_code=said.status, headers=headers, reason=reason)]
    if body_too:
        events.append(h11.Data(data=said.body))
    return b"".join(http.send(event) or b"" for event in events)


def _h11() -> Any:
    """Import h11, which is an extra.

    Raises:
      ConfigurationError: it is not installed.
    """
    try:
        import h11
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "health over HTTP needs h11, which is not installed; install it with:"
            " pip install 'awa-trio[health]'"
        ) from error
    return h11


def _address(bind: str) -> tuple[str, int]:
    """Return the host and the port that a text means.

    Raises:
      ConfigurationError: it means none.
    """
    host, colon, port = bind.rpartition(":")
    if not colon:
        host = "127.0.0.1"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    digits = port.isascii() and port.isdecimal() and len(port) <= len(str(MOST_PORT))
    if not host or not digits or int(port) > MOST_PORT:
        raise ConfigurationError(
            f"health: {bind!r} is no address; give HOST:PORT, as in {DEFAULT_BIND}"
        )
    return host, int(port)


def _spelled(listener: trio.SocketListener) -> str:
    host, port, *_ = listener.socket.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""Serve the page by itself, on Trio."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Sequence
from importlib import import_module

import trio

from .. import Client, ConfigurationError
from ._access import is_address, is_loopback
from ._app import create_app

#: Seconds for requests to end when it stops.
GRACE = 5.0

#: Of TCP.
MOST_PORT = 65_535


async def serve(
    client: Client,
    *,
    host: str = "127.0.0.1",
    port: int = 4001,
    token: str | None = None,
    read_only: bool = False,
    show_args: bool = False,
    allow_hosts: Sequence[str] = (),
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the page until it is cancelled, or ``stop`` is set; Trio only.

    On a loopback address whoever is on this machine may do everything. On any other, anybody
    who can reach it may look, and nobody may change anything, unless there is a token: then
    nobody may do anything without it, on whichever address.

    Args:
      client: looks, and does what is asked. With an app it can cancel jobs whose kinds have
          registered follow-ups.
      host: where to listen, a name or an address.
      port: likewise; 0 for any that is free.
      token: what people log in with, at least 16 characters.
      read_only: nobody may change anything, not even with the token.
      show_args: show arguments, metadata, progress, outputs, and what errors say.
      allow_hosts: names, besides addresses and this machine's own, that it is reached by.
          Only asked without a token.
      stop: set it to end in peace: no new requests, and 5 seconds for those that run.
      task_status: started with the address that it is at.

    Raises:
      ConfigurationError: the extra ``web`` is not installed, the token is too short, or the
          port out of its range.
      TypeError: a value is of another type.
      OSError: it cannot listen there.
    """
    try:
        hypercorn = import_module("hypercorn.trio")
        config = import_module("hypercorn.config").Config()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the page needs hypercorn, which is not installed; install it with:"
            " pip install 'awa-trio[web]'"
        ) from error
    if not isinstance(host, str):
        raise TypeError(f"host: give a str, not {type(host).__name__}")
    if not host or re.fullmatch(r"[A-Za-z0-9._:-]+", host) is None:
        raise ConfigurationError(f"host={host!r}: give a name or an address, as in 127.0.0.1")
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port: give an int, not {type(port).__name__}")
    if not 0 <= port <= MOST_PORT:
        raise ConfigurationError(f"port={port}: give one from 0 to {MOST_PORT:,}")
    loopback = is_loopback(host)
    names = {"localhost", socket.gethostname(), *(() if is_address(host) else (host,))}
    app = create_app(
        client,
        token=token,
        read_only=read_only or (token is None and not loopback),
        show_args=show_args,
        allow_hosts=None if token is not None else [*sorted(names), *allow_hosts],
        trust_proxies=token is not None,
    )
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    config.errorlog = logging.getLogger("hypercorn.error")
    config.accesslog = None
    config.graceful_timeout = GRACE
    config.include_server_header = False
    stopping = trio.Event() if stop is None else stop

    async def stopped() -> None:
        await stopping.wait()
        # Streams last until somebody ends them.
        app.stop()

    try:
        await hypercorn.serve(
            app, config, shutdown_trigger=stopped, task_status=_Started(task_status)
        )
    except BaseExceptionGroup as group:
        # It opens its sockets inside a nursery.
        only = _only(group)
        if isinstance(only, OSError):
            raise only from None
        raise


def _only(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class _Started:
    """Tells whoever started `serve` its one address, of hypercorn's list."""

    def __init__(self, status: trio.TaskStatus[str]) -> None:
        self._status = status

    def started(self, addresses: Sequence[str]) -> None:
        self._status.started(addresses[0])

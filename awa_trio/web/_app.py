"""The page as an ASGI application: its pages and what can be done on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from starlette.applications import Starlette

from .. import Client, ConfigurationError
from ._access import LEAST_TOKEN, Policy
from ._gate import Gate
from ._live import Message, Receive, Send, Shared, Streams
from ._routes import routes
from ._site import Site


def create_app(
    client: Client | Callable[[], Client],
    *,
    token: str | None = None,
    read_only: bool | None = None,
    show_args: bool = False,
    allow_hosts: Iterable[str] | None = None,
    trust_proxies: bool = True,
) -> WebApp:
    """Make an ASGI application to look after jobs; mount it wherever you like.

    With a token one logs in with it, and may then do everything. Without one it is for
    looking only: whoever mounts it behind a login of their own says ``read_only=False``.

    Args:
      client: looks, and does what is asked; or a function that returns it, where it is opened
          later. With an app it can cancel jobs whose kinds have registered follow-ups.
      token: what people log in with, at least 16 characters; None for no login.
      read_only: nobody may change anything. Default, unless there is a token.
      show_args: show arguments, metadata, progress, outputs, and what errors say.
      allow_hosts: names that it may be reached by, besides addresses. Default, any: a page
          that others' browsers can reach by a name of an attacker's needs a token or this.
      trust_proxies: what came through a proxy may change what others may.

    Raises:
      ConfigurationError: the token is too short, or is not text.
      TypeError: a value is of another type.
    """
    if not isinstance(client, Client) and not callable(client):
        raise TypeError(
            f"client: give a Client, or a function that returns it, not {type(client).__name__}"
        )
    if token is not None:
        if not isinstance(token, str):
            raise TypeError(f"token: give a str, not {type(token).__name__}")
        if len(token) < LEAST_TOKEN or not token.isprintable():
            raise ConfigurationError(
                f"the token of the page needs at least {LEAST_TOKEN} printable characters, such"
                " as those of: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    # What is true enough for Python, such as "false", would let everybody in.
    for name, value in (("show_args", show_args), ("trust_proxies", trust_proxies)):
        if not isinstance(value, bool):
            raise TypeError(f"{name}: give True or False, not {type(value).__name__}")
    if read_only is not None and not isinstance(read_only, bool):
        raise TypeError(f"read_only: give True or False, not {type(read_only).__name__}")
    if isinstance(allow_hosts, str):
        raise TypeError("allow_hosts: give several names, such as [name], not one str")
    policy = Policy(
        token=token,
        writable=token is not None if read_only is None else not read_only,
        show_args=show_args,
        hosts=None if allow_hosts is None else frozenset(name.lower() for name in allow_hosts),
        direct=not trust_proxies,
    )
    return WebApp(client, policy)


@final
class WebApp:
    """The page as an ASGI application; `create_app` makes one."""

    def __init__(self, client: Client | Callable[[], Client], policy: Policy) -> None:
        self._streams = Streams()
        site = Site(client, policy, Shared(), self._streams)
        self._gate = Gate(
            Starlette(routes=routes(site), exception_handlers=site.handlers), policy
        )

    def stop(self) -> None:
        """End the streams of live pages, so that no server waits for them; never blocks.

        Without it a stream ends by itself within 30 seconds.
        """
        self._streams.stop()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        await self._gate(scope, receive, send)

"""Where everybody is: each with a way of its own to each server, which can be cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio
from psycopg.conninfo import make_conninfo

from tests.pg.proxy import Proxy


class Place:
    """One client's ways to the servers: a proxy to each."""

    def __init__(self, name: str, dsns: Sequence[str]) -> None:
        self.name = name
        self._proxies = [Proxy(dsn) for dsn in dsns]
        self._dsn = dsns[0]

    async def serve(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            for proxy in self._proxies:
                await nursery.start(proxy.serve)
            task_status.started()

    @property
    def dsn(self) -> str:
        """Leads to whichever server can be written to, as a user would write it."""
        return make_conninfo(
            self._dsn,
            host=",".join("127.0.0.1" for _ in self._proxies),
            port=",".join(str(proxy.port) for proxy in self._proxies),
            target_session_attrs="read-write",
            connect_timeout=2,
        )

    def all(self, act: Callable[[Proxy], None]) -> None:
        """Do something to each of its ways."""
        for proxy in self._proxies:
            act(proxy)

    def heal(self) -> None:
        """Let everything pass again, at once."""
        for proxy in self._proxies:
            proxy.resume()
            proxy.refuses = False
            proxy.latency = 0.0
            proxy.cut_after(1 << 60)

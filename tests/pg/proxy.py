"""A TCP server in front of PostgreSQL that misbehaves when it is told to.

For tests of what a network does: slow it down, swallow everything, reset or cut
connections. It keeps time with Trio and touches no bytes::

    async def test_x(proxy: Proxy) -> None:
        connection = await TrioConnection.connect(proxy.dsn)
        proxy.stall()                     # from here on, a black hole
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import psycopg
import trio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_LOST = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Proxy:
    """Passes bytes between its clients and the server of ``dsn``; run it with `serve`."""

    latency: float
    """Seconds that every chunk is held back, in each direction."""
    refuses: bool
    """Whether new connections are reset at once."""
    accepted: int
    """Connections accepted so far, cancel requests among them."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._flow = trio.Event()
        self._flow.set()
        self._left: int | None = None
        self._open: set[trio.SocketStream] = set()
        self._port = 0
        self.latency = 0.0
        self.refuses = False
        self.accepted = 0
        self.lost = trio.Event()
        """Set once a connection has been reset or cut."""

    @property
    def dsn(self) -> str:
        """Connects to the same database, through this proxy."""
        return make_conninfo(self._dsn, host="127.0.0.1", port=self._port)

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return self._port

    async def serve(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve_one, listeners)

    def stall(self) -> None:
        """Become a black hole: connections stay open, and new ones open, but nothing passes."""
        if self._flow.is_set():
            self._flow = trio.Event()

    def resume(self) -> None:
        """Pass on again, beginning with what was held back."""
        self._flow.set()

    def reset(self) -> None:
        """Reset every connection, as a dying router does."""
        for client in list(self._open):
            self._reset(client)

    def cut_after(self, received: int) -> None:
        """Reset the connection over which the ``received``-th byte from the server passes."""
        self._left = received

    def _reset(self, client: trio.SocketStream) -> None:
        with suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
        self.lost.set()

    async def _serve_one(self, client: trio.SocketStream) -> None:
        self.accepted += 1
        if self.refuses:
            self._reset(client)
            return
        self._open.add(client)
        try:
            server = await self._connect()
        except OSError:
            # There is no server any more, or not yet.
            self._open.discard(client)
            self._reset(client)
            return
        try:
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, client, server, nursery.cancel_scope)
                await self._pass_on(server, client, nursery.cancel_scope, from_server=True)
        finally:
            self._open.discard(client)

    async def _connect(self) -> trio.SocketStream:
        params = conninfo_to_dict(self._dsn)
        host, port = str(params["host"]), int(params.get("port") or 5432)
        if host.startswith("/"):
            return await trio.open_unix_socket(f"{host}/.s.PGSQL.{port}")
        return await trio.open_tcp_stream(host, port)

    async def _pass_on(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        both: trio.CancelScope,
        *,
        from_server: bool = False,
    ) -> None:
        with suppress(*_LOST):
            async for chunk in source:
                await trio.sleep(self.latency)
                await self._flow.wait()
                data: bytes | bytearray = chunk
                if from_server and self._left is not None:
                    data = chunk[: self._left]
                    self._left -= len(data)
                await sink.send_all(data)
                if self._left == 0 and from_server:
                    self._left = None
                    self._reset(sink)
        both.cancel(reason="one side has hung up")


async def backend_activity(dsn: str, application_name: str) -> list[str]:
    """The queries that sessions of this name run in this database now, seen from outside."""

    def look() -> list[str]:
        with psycopg.connect(dsn, autocommit=True) as observer:
            rows = observer.execute(
                "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = %s AND state = 'active'",
                (application_name,),
            )
            return [query for (query,) in rows]

    return await trio.to_thread.run_sync(look)

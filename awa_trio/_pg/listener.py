"""Hear notifications on a connection of one's own, for as long as the program lives.

A notification is a hint that something may have happened, and hints get lost: while
the connection is down, nobody keeps them. So after every connection, the first one
too, the listener says "look once", and only then passes on what it hears.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import psycopg
import trio
from psycopg import sql

from .connection_turns import require_trio

logger = logging.getLogger("awa_trio.pg")

Connect: TypeAlias = Callable[[], Awaitable["psycopg.AsyncConnection[Any]"]]
Hear: TypeAlias = Callable[[str, str], bool]


class Listener:
    """LISTEN on channels, reconnecting whenever the connection is lost.

    Args:
      connect: opens the connection, in autocommit mode. Not from a pool: a pooler in
          transaction mode would deliver nothing, and queries would wait behind it.
      channels: what to LISTEN on.
      hear: called with the channel and payload of each notification. Returns whether it
          understood the payload; anyone may NOTIFY, so one that nobody understands is
          counted and ignored. Must not block.
      look: called after each (re)connection: anything may have been missed.
      lost: called when a connection is lost.
      ping: seconds of silence after which the connection must prove that it lives.
      backoff: the shortest and the longest pause before connecting again, in seconds,
          doubled at each failure, half of it random.
    """

    def __init__(
        self,
        connect: Connect,
        channels: Sequence[str],
        hear: Hear,
        look: Callable[[], None],
        *,
        lost: Callable[[], None] | None = None,
        ping: float = 10.0,
        backoff: tuple[float, float] = (0.05, 5.0),
    ) -> None:
        self._connect = connect
        self._channels = tuple(channels)
        self._hear = hear
        self._look = look
        self._lost = lost
        self._ping = ping
        self._backoff = backoff
        self.connections = 0
        """How often it has connected."""
        self.connected = False
        """Whether it listens at this moment."""
        self.received = 0
        """Notifications heard."""
        self.malformed = 0
        """Notifications that nobody understood."""

    async def run(self, ready: Callable[[], None]) -> NoReturn:
        """Listen until cancelled.

        Args:
          ready: called once, when the first LISTEN has succeeded.

        Raises:
          psycopg.Error: the very first connection failed. Later ones are tried again.
          trio.TooSlowError: nor did it fail, in ``ping`` seconds; likewise.
          WrongEventLoop: called outside Trio.
        """
        require_trio("a Listener", "start it with trio.run()")
        pause = self._backoff[0]
        while True:
            try:
                await self._listen(ready)
            except (psycopg.Error, OSError, trio.TooSlowError) as error:
                if self.connections == 0:
                    raise
                if self.connected:
                    pause = self._backoff[0]
                    if self._lost is not None:
                        self._lost()
                self.connected = False
                logger.warning(
                    "the listener lost its connection (%s): connecting again in about %.2g s",
                    type(error).__name__,
                    pause,
                )
            finally:
                self.connected = False
            await trio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, self._backoff[1])

    async def _listen(self, ready: Callable[[], None]) -> NoReturn:
        with trio.fail_after(self._ping):
            connection = await self._connect()
        try:
            with trio.fail_after(self._ping):
                for channel in self._channels:
                    await connection.execute(
                        sql.SQL("LISTEN {}").format(sql.Identifier(channel))
                    )
            first = self.connections == 0
            self.connections += 1
            self.connected = True
            if first:
                ready()
            self._look()
            while True:
                async for notification in connection.notifies(timeout=self._ping):
                    self.received += 1
                    if not self._hear(notification.channel, notification.payload):
                        self.malformed += 1
                        # Whoever may NOTIFY must not be able to fill the log.
                        if self.malformed.bit_count() == 1:
                            logger.warning(
                                "ignored a notification on %s that makes no sense, the %dth",
                                notification.channel,
                                self.malformed,
                            )
                with trio.fail_after(self._ping):
                    await connection.execute("SELECT 1")
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
                await connection.close()

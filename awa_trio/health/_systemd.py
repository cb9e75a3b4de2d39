"""What systemd is told of a worker, over the socket that it names.

Source: systemd's manual, sd_notify(3): a datagram of lines NAME=VALUE to the address in
NOTIFY_SOCKET, a path, or the name of an abstract socket behind an ``@``.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

import trio

from .. import Worker, WorkerHealth

logger = logging.getLogger("awa_trio.worker")

#: Seconds between two looks at the worker, at most; as often as it beats.
LOOK_EVERY = 5.0

#: Seconds that one message may take: systemd reads them at once, unless it is stuck.
PATIENCE = 1.0


async def notify(
    worker: Worker,
    *,
    answer_within: float | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Tell systemd how the worker is until it has ended; return at once where nobody asks.

    ``READY=1`` at once: the worker has started. ``STATUS=`` whenever it changes. ``WATCHDOG=1``
    twice in each of the unit's ``WatchdogSec``, while the worker is live and its event loop turns.
    ``STOPPING=1`` when it claims no more. That systemd cannot be told is logged, and no error.

    Args:
      worker: of whom.
      answer_within: as for `serve`; it is for the status.
      environ: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are; default, the process's.
    """
    environ = os.environ if environ is None else environ
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address[0] not in "/@":
        logger.warning("NOTIFY_SOCKET=%s is no Unix socket: systemd is told nothing", address)
        return
    watched = _watchdog(environ)
    pause = min(LOOK_EVERY, watched / 2) if watched else LOOK_EVERY
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
        post = _Post(telling, address)
        said = ""
        lines = ["READY=1"]
        stopped = False
        while not (health := worker.health(answer_within=answer_within)).ended:
            if health.stopping and not stopped:
                stopped = True
                lines.append("STOPPING=1")
            if (status := _status(worker, health)) != said:
                said = status
                lines.append(f"STATUS={status}")
            if watched and health.live:
                lines.append("WATCHDOG=1")
            await post.send(lines)
            lines = []
            with trio.move_on_after(pause):
                await (worker.wait_ended() if stopped else worker.wait_stopping())


def _watchdog(environ: Mapping[str, str]) -> float | None:
    """Seconds within which systemd wants to hear that all is well; None if it does not."""
    pid = environ.get("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return None  # of whoever started this process
    microseconds = environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdecimal() and int(microseconds) else None


def _status(worker: Worker, health: WorkerHealth) -> str:
    if health.problems:
        return "; ".join(health.problems)
    counts = worker.statistics()
    served = ", ".join(worker.queues)
    return f"serves {served}: {counts.running} running, {counts.waiting} of them waiting"


class _Post:
    """Sends messages, and says once that it cannot."""

    def __init__(self, telling: trio.socket.SocketType, address: str) -> None:
        self._telling = telling
        self._address = address
        if address.startswith("@"):
            self._address = "\0" + address[1:]
        self._complained = False

    async def send(self, lines: list[str]) -> None:
        if not lines:
            return
        try:
            with trio.fail_after(PATIENCE):
                # A line's end would be the next line's beginning.
                message = "\n".join(" ".join(line.split("\n")) for line in lines)
                await self._telling.sendto(message.encode(), self._address)
        except (OSError, trio.TooSlowError) as error:
            if not self._complained:
                self._complained = True
                logger.warning("systemd cannot be told at NOTIFY_SOCKET: %s", error)

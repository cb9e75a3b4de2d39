"""What moves on the page: fragments that are sent as events while somebody looks.

A database is asked once for all who look at the same thing. Nothing runs while nobody
looks, so that the page needs no task of its own in the program it is mounted in.

A stream ends by itself after a while, and the browser opens another: a server that waits
for its connections before it stops never waits longer than that, and one that can say so,
`WebApp.stop`, not at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

T = TypeVar("T")

#: Seconds between looks.
EVERY = 2.0

#: How many times as long as a look took nothing is asked: what is slow is seldom.
SPARED = 9.0

#: Seconds for which an answer will do for others who ask the same.
FRESH = 1.0

#: Seconds that one stream lasts.
LASTS = 30.0

#: Milliseconds after which a browser opens the next.
AGAIN_AFTER = 500

#: Streams at once. Each costs a connection, and what it draws, every two seconds.
MOST_STREAMS = 100

#: Answers that are kept.
MOST_ANSWERS = 64


class Shared:
    """Answers that several visitors wait for, each asked for once."""

    def __init__(self) -> None:
        self._answers: OrderedDict[object, tuple[float, Any]] = OrderedDict()
        self._locks: dict[object, tuple[anyio.Lock, int]] = {}
        self._changes = 0

    def forget(self) -> None:
        """Let nobody be told what was so before something was done here."""
        self._answers.clear()
        self._changes += 1

    async def get(self, key: object, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a question that was asked a moment ago, or ask it."""
        lock, waiting = self._locks.get(key) or (anyio.Lock(), 0)
        self._locks[key] = lock, waiting + 1
        try:
            async with lock:
                found = self._answers.get(key)
                if found is not None and anyio.current_time() - found[0] < FRESH:
                    known: T = found[1]
                    return known
                changes = self._changes
                answer = await ask()
                if changes != self._changes:
                    return answer
                self._answers[key] = anyio.current_time(), answer
                self._answers.move_to_end(key)
                while len(self._answers) > MOST_ANSWERS:
                    self._answers.popitem(last=False)
                return answer
        finally:
            lock, waiting = self._locks[key]
            if waiting == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, waiting - 1


class Streams:
    """The streams that are open."""

    def __init__(self) -> None:
        self._open: set[anyio.CancelScope] = set()
        self.stopped = False

    @property
    def full(self) -> bool:
        """Whether there are as many as may be."""
        return len(self._open) >= MOST_STREAMS

    def stop(self) -> None:
        """End every stream, and open no more. Never blocks."""
        self.stopped = True
        for scope in tuple(self._open):
            scope.cancel()

    async def run(
        self, draw: Callable[[], Awaitable[str]], receive: Receive, send: Send
    ) -> None:
        """Answer a request with a stream of what ``draw`` returns, whenever that has changed."""
        start = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            # Proxies that gather what they pass on would gather for ever.
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        async with anyio.create_task_group() as group:
            group.start_soon(_until_gone, receive, group)
            with anyio.move_on_after(LASTS) as lasting:
                self._open.add(lasting)
                try:
                    if self.stopped:
                        lasting.cancel()
                    await _send_changes(draw, send)
                finally:
                    self._open.discard(lasting)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            group.cancel_scope.cancel()


async def _send_changes(draw: Callable[[], Awaitable[str]], send: Send) -> None:
    first = f"retry: {AGAIN_AFTER}\n\n"
    await send({"type": "http.response.body", "body": first.encode(), "more_body": True})
    last = None
    while True:
        began = anyio.current_time()
        drawn = await draw()
        took = anyio.current_time() - began
        # A comment finds out whether anybody is still there, and keeps proxies patient.
        said = event("live", drawn) if drawn != last else ": the same\n\n"
        last = drawn
        await send({"type": "http.response.body", "body": said.encode(), "more_body": True})
        await anyio.sleep(max(EVERY, SPARED * took))


async def _until_gone(receive: Receive, group: TaskGroup) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    group.cancel_scope.cancel()


def event(name: str, data: str) -> str:
    """Return an event of a stream, whatever newlines its data has."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"

"""Trio for tests that are not asynchronous themselves, such as state machines.

A thread runs the loop, so that its tasks and connections stay alive between calls.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Portal:
    """A Trio loop in a thread, as a context manager."""

    stack: AsyncExitStack
    """Left when the portal is."""

    def __init__(self) -> None:
        self._ready: SimpleQueue[None] = SimpleQueue()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="portal")

    def __call__(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Call an asynchronous function in the loop; return what it does, or raise it."""
        return trio.from_thread.run(partial(function, *args, **options), trio_token=self._token)

    def __enter__(self) -> Portal:
        self._thread.start()
        self._ready.get()
        return self

    def __exit__(self, *_: object) -> None:
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        for error in self._errors:
            raise error

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._errors.append(error)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with AsyncExitStack() as self.stack:
            self._ready.put(None)
            await self._stop.wait()

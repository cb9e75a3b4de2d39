"""What users call to cross between Trio and asyncio: `awa_trio.aio`.

Elsewhere: the loop itself, `asyncio_loop`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast

from trio import open_nursery

from .asyncio_loop import AsyncioLoop, inside, present_loop, require_trio_asyncio

T = TypeVar("T")


async def run(function: Callable[..., Awaitable[T]], /, *args: Any) -> T:
    """Call an asyncio function from Trio code; return what it returns.

    It runs in the asyncio loop of the worker, as a task of its own with a copy of the caller's
    context variables. Cancelling the caller cancels it, once, as asyncio does, and waits for
    its end: what it does then counts as done. Tasks that it starts and does not wait for are
    not the caller's: start them in an ``asyncio.TaskGroup``.

    Args:
      function: what to call; for keyword arguments, a `functools.partial`.
      args: what it takes.

    Raises:
      ConfigurationError: no worker runs this, nor `open_loop`; or trio-asyncio is missing.
      WrongEventLoop: this is asyncio code already; or the function awaits something of Trio.
      RuntimeError: it raised an ``asyncio.CancelledError``, and nobody had cancelled it.
      TypeError: it is no asynchronous function.
      BaseException: what it raises.
    """
    return cast("T", await present_loop().run(function, *args))


async def trio(function: Callable[..., Awaitable[T]], /, *args: Any) -> T:
    """Call a Trio function from asyncio code that a worker runs; return what it returns.

    Cancelling the asyncio task cancels it. `Job.flush_progress`, `Job.register_callback` and
    `Job.wait_for_callback` need no such call: they may be awaited from asyncio as they are.

    Args:
      function: what to call; for keyword arguments, a `functools.partial`.
      args: what it takes.

    Raises:
      ConfigurationError: no worker runs this, nor `open_loop`.
      WrongEventLoop: this is Trio code already; or the function awaits something of asyncio.
      TypeError: it is no asynchronous function.
      BaseException: what it raises.
    """
    return cast("T", await present_loop().on_trio(function, *args))


def opened(manager: AbstractAsyncContextManager[T], /) -> AbstractAsyncContextManager[T]:
    """Hold an asyncio context manager from Trio code, as a Trio context manager.

    For resources such as a session or a pool that asyncio handlers request. One asyncio task
    enters and leaves it; if that is cancelled meanwhile, or fails, so is the block.

    Args:
      manager: made by a call, not yet entered. If making it needs a running asyncio loop, put
          the call into an ``asynccontextmanager`` function.

    Raises:
      ConfigurationError: as `run`.
      BaseException: what the manager raises.
    """
    return present_loop().opened(manager)


@asynccontextmanager
async def open_loop() -> AsyncIterator[None]:
    """Open an asyncio loop for `run`, `trio` and `opened` in Trio code that no worker runs.

    For tests that call handlers themselves. Leaving the block cancels what is left in it.

    Raises:
      ConfigurationError: trio-asyncio is missing.
    """
    require_trio_asyncio()
    crashes: list[BaseException] = []
    loop = AsyncioLoop(crashes.append)
    raised: BaseException | None = None
    async with open_nursery() as nursery:
        nursery.start_soon(loop.serve)
        with inside(loop):
            try:
                yield
            except BaseException as error:
                raised = error
        loop.close()
    for crash in crashes:
        raise crash
    if raised is not None:
        raise raised

"""A thread in which an asynchronous client runs, and how others call it.

Elsewhere: what is called in it, `blocking`. Source: ADR 0032.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, TypeVar

import trio
from anyio.from_thread import BlockingPortal

from .._core.errors import ConfigurationError
from .client import Client

R = TypeVar("R")

#: What its thread is called.
_THREAD = "awa_trio.BlockingClient"


class Link:
    """A thread in which an asynchronous client runs, and how to call it.

    A daemon: a program that ends without closing its client ends all the same.
    """

    def __init__(self, connecting: Callable[[], AbstractAsyncContextManager[Client]]) -> None:
        self.client: Client
        self.portal: BlockingPortal
        self._connecting = connecting
        self._process = os.getpid()
        self._opened: Future[None] = Future()
        self._claim = threading.Lock()
        """Taken for good by the one thread that serves."""
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stopping = False
        self._scope = trio.CancelScope()
        self.over = False
        """Whether its thread has come to its end, for whatever reason."""

    def open(self) -> None:
        """Return when calls are possible.

        Nobody holds a lock meanwhile: a signal's handler may call, too, while what it has
        interrupted waits here, or is about to.

        Raises:
          AwaError: what `connect` raises.
          ConfigurationError: it was closed meanwhile.
        """
        if not self._claim.locked():
            threading.Thread(target=self._run, name=_THREAD, daemon=True).start()
        self._opened.result()

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return  # Of several that were started at once, one serves.
        self._thread = threading.current_thread()
        failure: BaseException = closed()
        try:
            trio.run(self._serve)
        except BaseException as error:
            # Of one that was opened nobody waits to hear; it is closed whatever happens.
            failure = error
        self.over = True
        if not self._opened.done():
            self._opened.set_exception(failure)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._stopping:
            self._cancel()
        with self._scope:
            async with self._connecting() as self.client, BlockingPortal() as self.portal:
                self._opened.set_result(None)
                await self.portal.sleep_until_stopped()

    def _refuse_another_process(self) -> None:
        if os.getpid() != self._process:
            raise ConfigurationError(
                "this was opened by the process that this one was forked from, and is that one's:"
                " open another here"
            )

    def start(self, function: Callable[[], Coroutine[Any, Any, R]]) -> Future[R]:
        """Begin to call an asynchronous function in the thread.

        Raises:
          ConfigurationError: the client is closed, or it is another process's.
        """
        self._refuse_another_process()
        try:
            return self.portal.start_task_soon(function)
        except RuntimeError:  # The portal has stopped.
            raise closed() from None

    def call(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Call an asynchronous function in the thread, and wait for what becomes of it.

        Interrupted, as by Ctrl-C, it cancels the call.

        Raises:
          ConfigurationError: as `start`; or the client was closed meanwhile.
        """
        future = self.start(function)
        try:
            return _result(future)
        finally:
            future.cancel()  # Nothing, where it is done.

    @contextmanager
    def held(self, manager: AbstractAsyncContextManager[R]) -> Iterator[R]:
        """Hold an asynchronous context manager of the thread's around a block here.

        If the client is closed meanwhile, what it holds is left as by an error.

        Raises:
          ConfigurationError: as `call`.
        """
        entered: Future[R] = Future()
        leaving = trio.Event()
        inside: list[BaseException] = []

        async def hold() -> bool:
            """Return whether the manager swallowed what was raised inside."""
            try:
                async with manager as value:
                    entered.set_result(value)
                    await leaving.wait()
                    for error in inside:
                        raise error
            except BaseException as error:
                if error not in inside:
                    raise
                return False
            return bool(inside)

        async def leave() -> None:
            leaving.set()

        left = self.start(hold)
        try:
            either: list[Future[Any]] = [entered, left]
            wait(either, return_when=FIRST_COMPLETED)
            if not entered.done():
                _result(left)
            try:
                yield entered.result()
            except BaseException as error:
                inside.append(error)
                if os.getpid() != self._process or not self._left(left, leave):
                    raise
            else:
                self._refuse_another_process()
                self._left(left, leave)
                _result(left)
        finally:
            if os.getpid() == self._process:
                left.cancel()  # Nothing, where it is done.

    def _left(self, left: Future[bool], leave: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Leave what is held; return whether it swallowed an error."""
        with suppress(ConfigurationError):  # Closed: it is being left.
            self.start(leave)
        wait([left])
        return not left.cancelled() and left.result()

    def stop(self) -> None:
        """Cancel what is under way, close the connections, end the thread; do not wait for it.

        From any thread, a signal's handler, or the collector of garbage.
        """
        self._stopping = True
        if not self._claim.locked() and self._claim.acquire(blocking=False):
            self._opened.set_exception(closed())  # Nobody has served, and nobody will.
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._cancel)

    def _cancel(self) -> None:
        self._scope.cancel(reason="awa_trio: the blocking client is closed")

    def close(self) -> None:
        """Do as `stop`, and wait for the end of it."""
        self.stop()
        wait([self._opened])
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()


def _result(future: Future[R]) -> R:
    """Wait for what becomes of a call.

    Raises:
      ConfigurationError: the client was closed meanwhile.
      BaseException: what the call raised.
    """
    try:
        return future.result()
    except CancelledError:
        raise _closed_meanwhile() from None


def closed() -> ConfigurationError:
    return ConfigurationError("this client is closed; make another")


def _closed_meanwhile() -> ConfigurationError:
    return ConfigurationError(
        "this client was closed while it was called: what was under way was cancelled, and a"
        " transaction rolled back"
    )

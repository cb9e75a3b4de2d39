"""An asyncio event loop inside Trio: opened when first used, closed after the last attempt.

trio-asyncio runs it; that is imported when it is first needed, because it changes what asyncio's own
functions do in the whole process. What crosses between the two is here: calls in both
directions, their results, and cancellation.

Elsewhere: what happens to code that is on the wrong side, `mixing`. Source: ADR 0033.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar, cast

import outcome
import trio

from .._core.errors import ConfigurationError, WrongEventLoop
from .._core.naming import name_of_function
from .._core.report import headline
from .mixing import in_a_sentence, on_asyncio

logger = logging.getLogger("awa_trio.worker")

T = TypeVar("T")
P = ParamSpec("P")

_MISSING = (
    "asyncio handlers and awa_trio.aio need trio-asyncio; install it with"
    " pip install 'awa-trio[asyncio]'"
)

#: Seconds between two warnings of what keeps the loop from closing.
REMIND_EVERY = 5.0

#: How often tasks are cancelled that others have started while they ended.
MOST_ROUNDS = 100


def require_trio_asyncio() -> None:
    """Make sure that trio-asyncio is installed, without importing it.

    Raises:
      ConfigurationError: it is not.
    """
    if find_spec("trio_asyncio") is None:
        raise ConfigurationError(_MISSING)


def _trio_asyncio() -> Any:
    try:
        # With Python 3.12 and later it defines what is deprecated. Where warnings are errors, an
        # import that failed half-way would leave its changes of asyncio to the whole process.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import trio_asyncio
    except ImportError as error:
        raise ConfigurationError(_MISSING) from error
    # Where no Trio runs, as in a handler's thread, it would make of asyncio.run a loop on a Trio
    # of its own. With a policy for everybody it gets out of the way there.
    faked = getattr(trio_asyncio._loop, "_FakedPolicy", None)
    if faked is not None and faked.policy is None:
        faked.policy = getattr(trio_asyncio._loop, "_original_policy", None)
    return trio_asyncio


class AsyncioLoop:
    """One asyncio loop, whose task is `serve`.

    Args:
      crashed: told of a KeyboardInterrupt or SystemExit that an asyncio task raised which
          nobody waits for.
    """

    def __init__(self, crashed: Callable[[BaseException], None]) -> None:
        self._crashed = crashed
        self._news = trio.Event()
        """Set when the loop is wanted, or will not be any more."""
        self._wanted = False
        self._closing = False
        self._opened = trio.Event()
        self._failure: BaseException | None = None
        """Why it could not be opened."""
        self._loop: Any = None
        self._waiting: set[trio.Event] = set()
        """Of those who wait for something that runs in it."""
        self.closed = trio.Event()
        """Set when `serve` has ended."""

    # ---- its life

    async def serve(self) -> None:
        """Open the loop when it is first wanted, and again if it ended, until `close`."""
        try:
            while True:
                while not (self._wanted or self._closing):
                    self._news = trio.Event()
                    await self._news.wait()
                if not self._wanted:
                    return
                self._wanted = False
                try:
                    await self._hold()
                finally:
                    self._loop = None
                    self._opened = trio.Event()
                    for waiting in self._waiting:
                        waiting.set()
        finally:
            self.closed.set()

    def close(self) -> None:
        """Close the loop: tasks that are left in it are cancelled, and waited for."""
        self._closing = True
        self._news.set()

    async def _hold(self) -> None:
        opened = self._opened
        try:
            opening = _trio_asyncio().open_loop()
        except BaseException as error:
            self._failure = error
            opened.set()
            return
        async with trio.open_nursery() as nursery:
            async with opening as loop:
                loop.set_exception_handler(self._unhandled)
                # For those who set another that fails, or none: trio-asyncio's own ends the loop.
                loop.default_exception_handler = partial(self._unhandled, loop)
                loop.set_task_factory(self._task)
                stop = loop.stop
                loop.stop = lambda waiter=None: self._stop(stop, waiter)
                loop._main_loop_one = self._surviving(loop._main_loop_one)
                self._loop = loop
                opened.set()
                try:
                    while not self._closing:
                        self._news = trio.Event()
                        await self._news.wait()
                finally:
                    nursery.start_soon(self._remind, loop)
                    with trio.CancelScope(shield=True):
                        await self._end_tasks(loop)
            nursery.cancel_scope.cancel()

    def _stop(self, stop: Callable[[Any], Any], waiter: Any) -> Any:
        """Refuse to stop the loop in the middle: whoever is in it would wait for ever."""
        if self.in_asyncio:
            raise RuntimeError("the asyncio loop is the worker's, and others use it too")
        return stop(waiter)

    def _surviving(
        self, step: Callable[..., Awaitable[None]]
    ) -> Callable[..., Awaitable[None]]:
        """Let the loop outlive what asyncio raises through it: it has tasks to end in an orderly way.

        trio-asyncio would wait for them for ever, with nothing left to run them.
        """

        async def one(*args: Any, **kwargs: Any) -> None:
            try:
                await step(*args, **kwargs)
            except (KeyboardInterrupt, SystemExit) as error:
                if type(error).__module__.startswith("trio_asyncio"):
                    raise  # its own way of saying that it stops
                self._crashed(error)

        return one

    async def _end_tasks(self, loop: Any) -> None:
        """Cancel what is left, and wait for it: trio-asyncio would raise what it raises."""
        for _ in range(MOST_ROUNDS):
            left = asyncio.all_tasks(loop)
            if not left:
                return
            ends = [trio.Event() for _ in left]
            for task, end in zip(left, ends, strict=True):
                task.add_done_callback(lambda _, end=end: end.set())  # type: ignore[misc]
                task.cancel()
            for end in ends:
                await end.wait()

    async def _remind(self, loop: Any) -> None:
        """Name what keeps the loop from closing."""
        while True:
            await trio.sleep(REMIND_EVERY)
            names = [
                getattr(task.get_coro(), "__qualname__", "?")
                for task in asyncio.all_tasks(loop)
            ]
            logger.warning(
                "the asyncio loop cannot close: tasks go on though they were cancelled: %s",
                ", ".join(sorted(names)),
            )

    def _unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        """What a task raised that nobody waited for, or a callback; trio-asyncio would end the loop."""
        error = context.get("exception")
        if error is None:
            logger.error("in the asyncio loop: %s", context.get("message", "something failed"))
        else:
            # asyncio's own words quote what may be arguments.
            logger.error("in the asyncio loop nobody waited for %s", headline(error))

    def _task(self, loop: Any, code: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task; what is Trio's in it is refused, and it cannot end the loop."""
        task: asyncio.Task[Any] = asyncio.Task(self._guarded(code, loop), loop=loop, **options)
        # Of one that was cancelled before it began, this was never begun either.
        task.add_done_callback(lambda _: code.close())
        return task

    def _guarded(self, code: Any, loop: Any) -> Coroutine[Any, Any, Any]:
        guarded: Any = self._run_guarded(code, loop)
        # By which tasks are named to people.
        guarded.__qualname__ = getattr(code, "__qualname__", guarded.__qualname__)
        named: Coroutine[Any, Any, Any] = guarded
        return named

    @trio.lowlevel.enable_ki_protection
    async def _run_guarded(self, code: Any, loop: Any) -> Any:
        # Ctrl-C is for the main task: here it would strike whoever's callback runs.
        return await on_asyncio(code, loop)

    # ---- from Trio

    async def run(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call an asyncio function in the loop from a Trio task; return what it returns.

        Cancelling the caller cancels it, once, as asyncio does, and waits for its end.

        Raises:
          ConfigurationError: trio-asyncio is not installed.
          WrongEventLoop: this is asyncio already.
          RuntimeError: it raised an asyncio.CancelledError, and nobody had cancelled it; or
              the loop has ended.
          BaseException: what it raises.
        """
        if self.in_asyncio:
            raise WrongEventLoop(
                f"awa_trio.aio.run({_name(function)}) is called from asyncio code:"
                " await the function itself"
            )
        loop = await self._ready()
        context = contextvars.copy_context()
        future: asyncio.Task[outcome.Outcome[Any]] = context.run(
            self._start, loop, function, args
        )
        done = trio.Event()
        future.add_done_callback(lambda _: done.set())
        self._waiting.add(done)
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            with trio.CancelScope(shield=True):
                await done.wait()
            if _was_cancelled(future):
                raise
        finally:
            self._waiting.discard(done)
        if not future.done():
            raise RuntimeError("the asyncio loop ended while this ran in it")
        if _was_cancelled(future):
            raise RuntimeError(
                f"{_name(function)} raised asyncio.CancelledError, and nobody had cancelled it"
            )
        return future.result().unwrap()

    async def _ready(self) -> Any:
        while self._loop is None:
            if self._closing:
                raise RuntimeError("the asyncio loop is closed")
            opened = self._opened
            self._wanted = True
            self._news.set()
            await opened.wait()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                self._opened = trio.Event()
                raise failure
        return self._loop

    def _start(
        self, loop: Any, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> asyncio.Task[outcome.Outcome[Any]]:
        """Make the task, in a context of its own in which this is the loop."""
        _trio_asyncio().current_loop.set(loop)
        return cast(
            "asyncio.Task[outcome.Outcome[Any]]", loop.create_task(_captured(function, args))
        )

    # ---- from asyncio

    @property
    def in_asyncio(self) -> bool:
        """Whether what runs now is a task of the loop."""
        return self._loop is not None and asyncio.current_task(self._loop) is not None

    async def on_trio(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call a Trio function from an asyncio task of the loop; return what it returns.

        Cancelling the caller cancels it.

        Raises:
          WrongEventLoop: this is no asyncio code, or not of this loop.
          BaseException: what it raises.
        """
        if not self.in_asyncio:
            raise WrongEventLoop(
                f"awa_trio.aio.trio({_name(function)}) is called from Trio code:"
                " await the function itself"
            )

        try:
            return await self._loop.trio_as_future(_called, function, args)
        except BaseException as error:
            told = in_a_sentence(error)
            if told is error:
                raise
            raise told from told.__cause__

    def anywhere(
        self, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a function that calls a Trio function from wherever it is called."""

        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if self.in_asyncio:
                bound = lambda: function(*args, **kwargs)  # noqa: E731
                return cast("T", await self.on_trio(bound))
            return await function(*args, **kwargs)

        return call

    def not_there(self, function: Callable[P, T], name: str) -> Callable[P, T]:
        """Return a function that is for Trio alone, and says so where asyncio calls it."""

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if self.in_asyncio:
                raise WrongEventLoop(
                    f"{name} works on Trio only, with a connection of Trio's; call that part of"
                    " the handler with awa_trio.aio.trio(function, ...)"
                )
            return function(*args, **kwargs)

        return call

    @asynccontextmanager
    async def opened(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Hold an asyncio context manager from a Trio task.

        Entered and left by one asyncio task, as those that hold timeouts or task groups need.
        """
        values: list[T] = []
        entered = trio.Event()
        leaving: list[asyncio.Future[BaseException | None]] = []
        failure: BaseException | None = None
        inside: BaseException | None = None
        swallowed = False

        async def hold() -> None:
            nonlocal swallowed
            leaving.append(asyncio.get_running_loop().create_future())
            thrown: BaseException | None = None
            try:
                async with manager as value:
                    values.append(value)
                    entered.set()
                    thrown = await leaving[0]
                    if thrown is not None:
                        raise thrown
                swallowed = True
            except BaseException as error:
                if error is not thrown:
                    raise

        async def run() -> None:
            nonlocal failure
            try:
                await self.run(hold)
            except trio.Cancelled:
                raise
            except BaseException as error:
                failure = error
                nursery.cancel_scope.cancel(reason="awa_trio: what aio.opened holds has failed")
            finally:
                entered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, name="awa:aio:opened")
            await entered.wait()
            if values:
                try:
                    yield values[0]
                except BaseException as error:
                    inside = error
                if leaving and not leaving[0].done():
                    # In asyncio's words, where it is a cancellation.
                    cut = isinstance(inside, trio.Cancelled)
                    leaving[0].set_result(asyncio.CancelledError() if cut else inside)
        if failure is not None:
            raise failure
        if inside is not None and not swallowed:
            raise inside


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return name_of_function(function)


def _was_cancelled(future: asyncio.Task[outcome.Outcome[Any]]) -> bool:
    """Whether a task that has ended did so by a cancellation."""
    if not future.done():
        return False
    if future.cancelled():
        return True
    ended = future.result()
    return isinstance(ended, outcome.Error) and isinstance(ended.error, asyncio.CancelledError)


async def _captured(
    function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
) -> outcome.Outcome[Any]:
    """Call a function; whatever it raises is a value, so that asyncio does nothing with it."""
    captured: outcome.Outcome[Any] = await outcome.acapture(_called, function, args)
    return captured


async def _called(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
    awaitable: object = function(*args)
    if not inspect.isawaitable(awaitable):
        raise TypeError(
            f"{_name(function)} is no asynchronous function: it returned a"
            f" {type(awaitable).__name__}, which cannot be awaited; call it directly"
        )
    return await awaitable


_current: ContextVar[AsyncioLoop] = ContextVar("awa_trio_asyncio_loop")


def present_loop() -> AsyncioLoop:
    """The loop of the worker that this task belongs to.

    Raises:
      ConfigurationError: it belongs to none.
    """
    try:
        return _current.get()
    except LookupError:
        raise ConfigurationError(
            "awa_trio.aio works in handlers and resources that a worker, work_one or drain runs;"
            " elsewhere put it inside: async with awa_trio.aio.open_loop()"
        ) from None


@contextmanager
def inside(loop: AsyncioLoop) -> Iterator[None]:
    """Let the tasks that begin in a block belong to a loop."""
    token = _current.set(loop)
    try:
        yield
    finally:
        _current.reset(token)

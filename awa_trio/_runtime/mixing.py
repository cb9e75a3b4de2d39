"""Code of one event loop that runs on the other: told so, in a sentence.

Trio and asyncio suspend in ways that the other does not know. Trio says so to what yields
something of asyncio's; here that is put in our words. An asyncio task that yields something of
Trio's has by then put itself on Trio's lists, and into its cancel scopes, in the name of the task
that runs the whole loop: that is undone in the same step, before anybody else runs.

Source: ADR 0033.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from types import coroutine
from typing import Any, TypeVar, cast

import outcome
import trio

from .._core.errors import WrongEventLoop
from .._core.outcome import leaves

T = TypeVar("T")

OF_ASYNCIO = (
    "this runs on Trio, and awaits something of asyncio: register the handler with"
    " @app.task(asyncio=True), or call that part of it with awa_trio.aio.run(function, ...)"
)
OF_TRIO = (
    "this runs on asyncio, and awaits something of Trio: leave asyncio=True out if all of the"
    " handler is Trio's, or call that part of it with awa_trio.aio.trio(function, ...)"
)

#: asyncio's own, which trio-asyncio replaces.
_running_loop: Callable[[], asyncio.AbstractEventLoop | None] = getattr(
    asyncio.events, "_c__get_running_loop", asyncio.events._get_running_loop
)

#: How often a coroutine is told before it is closed: its cleanup may await, too.
MOST_TOLD = 32


@coroutine
def on_asyncio(
    code: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop
) -> Generator[Any, Any, T]:
    """Run a coroutine on asyncio; what it awaits of Trio raises `WrongEventLoop` there.

    So does awaiting something of asyncio's inside a cancel scope or nursery of Trio's.
    """
    told = 0
    send: Callable[[Any], Any] = code.send
    value: Any = None
    task = trio.lowlevel.current_task()
    strays: list[trio.Nursery] = []
    try:
        while True:
            scopes, nurseries = _scopes(), list(task.child_nurseries)
            # As far as trio-asyncio is concerned this is known; not for those that had asyncio's own
            # get_running_loop from it before, such as psycopg.
            outside = _running_loop()
            asyncio._set_running_loop(loop)
            try:
                message = send(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                asyncio._set_running_loop(outside)
            # asyncio's coroutines yield futures, or nothing at all.
            of_asyncio = message is None or hasattr(message, "_asyncio_future_blocking")
            if of_asyncio and _scopes() is scopes:
                try:
                    value = yield message
                    send = code.send
                except BaseException as error:
                    send, value = code.throw, error
                continue
            told += 1
            wrong = WrongEventLoop(OF_TRIO)
            strays += [each for each in task.child_nurseries if each not in nurseries]
            send, value = code.throw, wrong
            if _let_go(task, message, strays, wrong):
                # A nursery that waits for its children raises it itself; and leaves its scope.
                send, value = code.send, outcome.Value(None)
            if told > MOST_TOLD:
                code.close()
                raise wrong
    finally:
        for stray in strays:
            with suppress(AttributeError, ValueError):
                cast("Any", task)._child_nurseries.remove(stray)


def _let_go(
    task: trio.lowlevel.Task,
    message: object,
    nurseries: Sequence[trio.Nursery],
    error: WrongEventLoop,
) -> bool:
    """Let nothing of Trio's wake the loop's task in the stead of what has stopped waiting.

    Returns:
      Whether it was a nursery that waited, and which has the error now.
    """
    nursery_waits = False
    for nursery in nurseries:
        nursery.cancel_scope.cancel(reason="awa_trio: a nursery opened by an asyncio task")
        if getattr(nursery, "_parent_waiting_in_aexit", False):
            nursery_waits = True
            cast("Any", nursery)._parent_waiting_in_aexit = False
            cast("Any", nursery)._closed = True
    abort = getattr(message, "abort_func", None)
    if abort is None:
        return False

    def say() -> None:
        raise error

    with suppress(BaseException):
        abort(say)
    for cell in getattr(abort, "__closure__", None) or ():
        # A thread that cannot be abandoned has it on a list of one, to report to it.
        if isinstance(cell.cell_contents, list) and cell.cell_contents == [task]:
            cell.cell_contents[0] = None
    return nursery_waits


def _scopes() -> object:
    """The cancel scopes that the present task is in; None if that cannot be known.

    Trio has no public way to ask.
    """
    return getattr(trio.lowlevel.current_task(), "_cancel_status", None)


#: What asyncio says, in some version, of what runs where none of its loops does; and what Trio says
#: of what one of its tasks has yielded.
_COMPLAINTS: dict[type, tuple[str, ...]] = {
    RuntimeError: (
        "no running event loop",
        "There is no current event loop",
        "You're within a Trio environment.",
    ),
    TypeError: ("trio.run received unrecognized yield message",),
}


def in_a_sentence(error: BaseException) -> BaseException:
    """Return what code on Trio raised, where it awaited something of asyncio's in our words.

    Each such error becomes a `WrongEventLoop` that is chained from it; everything else stays
    what it was, and groups keep their shape.
    """
    return _explained(error) if any(map(_complains, leaves(error))) else error


def _complains(error: BaseException) -> bool:
    complaints = _COMPLAINTS.get(type(error))
    return complaints is not None and str(error).startswith(complaints)


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        inside = [_explained(part) for part in error.exceptions]
        return BaseExceptionGroup(error.message, inside).with_traceback(error.__traceback__)
    if not _complains(error):
        return error
    told = WrongEventLoop(OF_ASYNCIO).with_traceback(error.__traceback__)
    told.__cause__ = error
    return told

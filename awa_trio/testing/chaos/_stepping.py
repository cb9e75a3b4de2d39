"""Run a handler await by await, and stop it for good after any of them.

A coroutine gives its event loop what it waits for, one value at a time. Whoever drives it in
between sees each of them come back before the handler does: where the handler would go on, a
killed process would not.
"""

from __future__ import annotations

import sysconfig
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

from ..._core.report import hidden

Passed = Callable[[str], Awaitable[None]]
"""Told of each await that has come back, by FILE:LINE; the handler goes on when it returns."""

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def stepped(
    handler: Callable[..., Coroutine[Any, Any, object]], passed: Passed
) -> Callable[..., Coroutine[Any, Any, object]]:
    """Return a handler that does the same, and calls ``passed`` after each of its awaits."""

    async def run(job: Any, **given: Any) -> object:
        result: object = await _drive(handler(job, **given), passed)
        return result

    return run


@types.coroutine
def _drive(
    coroutine: Coroutine[Any, Any, object], passed: Passed
) -> Generator[Any, Any, object]:
    resume: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            asked = resume(value)
        except StopIteration as end:
            return end.value
        line = line_of(coroutine)
        try:
            value = yield asked
            resume = coroutine.send
            yield from passed(line).__await__()
        except BaseException as error:
            resume, value = coroutine.throw, error


def line_of(coroutine: Any) -> str:
    """Say where the user's code waits, as FILE:LINE: the innermost line that is theirs."""
    found = None
    waiting = coroutine
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None and (found is None or _own(frame.f_code.co_filename)):
            found = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return found or "handler:0"


def _own(filename: str) -> bool:
    return not filename.startswith(_INSTALLED) and not hidden(filename)

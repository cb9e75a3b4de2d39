"""Tell observers, whatever they do.

Whoever has none holds no `Observers` at all, so that not being observed costs one
comparison with None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeAlias

from .._core.codec import Codec
from .._core.events import Enqueued, Event, Insert, Started, insert
from .._core.job import PreparedInsert, reserved_trace
from .._core.jsontext import name_of
from .._core.observer import Observer
from .._core.report import headline
from .._core.request import stamped
from .._seam.values import Enqueued as Inserted

logger = logging.getLogger("awa_trio.observers")

Block: TypeAlias = AbstractContextManager[object]


def listed(observers: object) -> tuple[Observer, ...]:
    """Return what was given as observers, each once.

    Raises:
      TypeError: it is no list, or something in it is no observer.
    """
    if isinstance(observers, str) or not isinstance(observers, Iterable):
        raise TypeError(
            "observers: give a list of instances of subclasses of awa.Observer, not"
            f" {name_of(observers)}"
        )
    # By identity: a class of attrs has an equality of its own, and no hash.
    given = tuple({id(one): one for one in observers}.values())
    for one in given:
        if not isinstance(one, Observer):
            raise TypeError(
                f"observers: give instances of subclasses of awa.Observer, not {one!r}"
            )
    return given


class Observers:
    """Several observers as one that never raises.

    Args:
      observers: each is told once, however often it is given.

    Raises:
      TypeError: one of them is none.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        given = listed(observers)
        self._observing = _overriding(given, "observe")
        self._attempting = _overriding(given, "attempt")
        self._enqueueing = _overriding(given, "enqueue")
        self._tracing = _overriding(given, "trace")

    def tell(self, event: Event) -> None:
        """Pass on a fact."""
        for observer in self._observing:
            try:
                observer.observe(event)
            except Exception as error:
                self._drop(observer, error)

    def attempt(self, started: Started) -> Blocks:
        """Return the block that an attempt is to run in."""
        return Blocks(self._attempting, lambda one: one.attempt(started), self._drop)

    def enqueue(self, jobs: Sequence[Insert]) -> Blocks:
        """Return the block that an insert is to run in."""
        return Blocks(self._enqueueing, lambda one: one.enqueue(jobs), self._drop)

    def trace(self) -> Mapping[str, str] | None:
        """The trace context of this moment, of the first observer that knows one."""
        for observer in self._tracing:
            try:
                found = observer.trace()
                if found:
                    return {str(name): str(value) for name, value in found.items()}
            except Exception as error:
                self._drop(observer, error)
        return None

    def _drop(self, observer: Observer, error: Exception) -> None:
        lists = (self._observing, self._attempting, self._enqueueing, self._tracing)
        if any(one is observer for watching in lists for one in watching):
            logger.error(
                "the observer %s raised %s, and is dropped: it is told nothing more",
                type(observer).__qualname__,
                headline(error),
            )
        self._observing, self._attempting, self._enqueueing, self._tracing = (
            tuple(one for one in watching if one is not observer) for watching in lists
        )


def said(error: BaseException) -> str:
    """Return what may be logged of a call that failed, or was not answered in time."""
    return getattr(error, "headline", "") or "no answer"


@contextmanager
def enqueueing(
    observers: Observers, codec: Codec, jobs: list[PreparedInsert]
) -> Iterator[list[PreparedInsert]]:
    """Open the observers' blocks around an insert; the jobs in the trace context inside."""
    with observers.enqueue([insert(job, None) for job in jobs]):
        reserved = reserved_trace(observers.trace())
        if reserved:
            jobs = [stamped(job, codec, reserved) for job in jobs]
        yield jobs


def told(jobs: Sequence[PreparedInsert], answers: Sequence[Inserted]) -> Enqueued:
    """Return what observers are told of an insert that committed."""
    return Enqueued(
        tuple(
            insert(job, answer.id) if answer.inserted else insert(job, None, answer.id)
            for job, answer in zip(jobs, answers, strict=True)
        )
    )


def observers_or_none(*given: Iterable[Observer]) -> Observers | None:
    """Return observers, or None if there are none.

    Raises:
      TypeError: as `listed`.
    """
    together = [observer for some in given for observer in listed(some)]
    return Observers(together) if together else None


def _overriding(observers: Iterable[Observer], method: str) -> tuple[Observer, ...]:
    return tuple(
        observer
        for observer in observers
        if getattr(type(observer), method, None) is not getattr(Observer, method)
    )


class Blocks:
    """The blocks of several observers, as one that neither raises nor swallows anything."""

    __slots__ = ("_drop", "_entered", "_observers", "_open")

    def __init__(
        self,
        observers: Iterable[Observer],
        open: Callable[[Observer], Block | None],  # noqa: A002
        drop: Callable[[Observer, Exception], None],
    ) -> None:
        self._observers = observers
        self._open = open
        self._drop = drop
        self._entered: list[tuple[Observer, Block]] = []

    def __enter__(self) -> None:
        for observer in self._observers:
            try:
                block = self._open(observer)
                if block is not None:
                    block.__enter__()
                    self._entered.append((observer, block))
            except Exception as error:
                self._drop(observer, error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for observer, block in reversed(self._entered):
            try:
                block.__exit__(kind, error, traceback)
            except Exception as raised:
                if raised is not error:
                    self._drop(observer, raised)

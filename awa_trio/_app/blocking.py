"""A client for code that is not asynchronous: the same one, in a thread with a Trio of its own.

Nothing of the client is written twice. Every method here is one of the asynchronous client's,
called in that thread, with what it takes, returns and raises. Source: ADR 0032.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, final

import sniffio
import trio
from psycopg.abc import QueryNoTemplate

from .._core.errors import WrongEventLoop
from .._core.observer import Observer
from .app import App
from .blocking_link import Link, closed
from .callbacks import Callbacks
from .client import Client, Transaction
from .connect import connect
from .connections import Opener
from .dead_letters import DeadLetters
from .jobs import Jobs
from .joining import check_app
from .queues import Queues
from .schedules import Schedules
from .workers import Workers

ClientT = TypeVar("ClientT")
P = ParamSpec("P")
R = TypeVar("R")


class _Blocking(Generic[ClientT]):
    """What has methods of a client, or of a part of one, that block.

    Args:
      reach: returns the thread of the asynchronous one, and that one.
    """

    def __init__(self, reach: Callable[[], tuple[Link, ClientT]]) -> None:
        self._reach = reach


def _blocking(
    method: Callable[Concatenate[ClientT, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Blocking[ClientT], P], R]:
    """Return a method that calls an asynchronous one, and waits for it."""

    def call(self: _Blocking[ClientT], /, *args: P.args, **kwargs: P.kwargs) -> R:
        _refuse_event_loop()
        link, target = self._reach()
        return link.call(functools.partial(method, target, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _refuse_event_loop() -> None:
    library = _event_loop_here()
    if library is None:
        return
    raise WrongEventLoop(
        f"a BlockingClient would block the event loop that runs here ({library}); use"
        " awa_trio.connect, which works on Trio and asyncio, or call it in a thread"
    )


def _event_loop_here() -> str | None:
    """Whose event loop this would block, also from a callback, where there is no task."""
    try:
        return sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        pass
    if trio.lowlevel.in_trio_run():
        return "trio"
    asyncio = sys.modules.get("asyncio")  # Nobody runs a loop of it who has not imported it.
    if asyncio is None:
        return None
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return None
    return "asyncio"


@final
class BlockingJobs(_Blocking[Jobs]):
    """Look at jobs, cancel them, retry them: ``client.jobs`` of a `BlockingClient`."""

    get = _blocking(Jobs.get)
    list = _blocking(Jobs.list)
    cancel = _blocking(Jobs.cancel)
    cancel_by_key = _blocking(Jobs.cancel_by_key)
    retry = _blocking(Jobs.retry)
    count = _blocking(Jobs.count)
    cancel_many = _blocking(Jobs.cancel_many)
    retry_many = _blocking(Jobs.retry_many)
    timeline = _blocking(Jobs.timeline)
    explain = _blocking(Jobs.explain)
    follow_ups = _blocking(Jobs.follow_ups)
    origin = _blocking(Jobs.origin)


@final
class BlockingDeadLetters(_Blocking[DeadLetters]):
    """Jobs that failed: ``client.dlq`` of a `BlockingClient`."""

    get = _blocking(DeadLetters.get)
    list = _blocking(DeadLetters.list)
    count = _blocking(DeadLetters.count)
    retry = _blocking(DeadLetters.retry)
    retry_many = _blocking(DeadLetters.retry_many)
    purge = _blocking(DeadLetters.purge)
    purge_many = _blocking(DeadLetters.purge_many)


@final
class BlockingCallbacks(_Blocking[Callbacks]):
    """Resolve what jobs wait for: ``client.callbacks`` of a `BlockingClient`."""

    resume = _blocking(Callbacks.resume)
    complete = _blocking(Callbacks.complete)
    fail = _blocking(Callbacks.fail)
    retry = _blocking(Callbacks.retry)
    heartbeat = _blocking(Callbacks.heartbeat)


@final
class BlockingQueues(_Blocking[Queues]):
    """Look at queues, pause and override them: ``client.queues`` of a `BlockingClient`."""

    list = _blocking(Queues.list)
    get = _blocking(Queues.get)
    pause = _blocking(Queues.pause)
    drain = _blocking(Queues.drain)
    resume = _blocking(Queues.resume)
    override = _blocking(Queues.override)
    reset = _blocking(Queues.reset)


@final
class BlockingSchedules(_Blocking[Schedules]):
    """Look at schedules, pause and trigger them: ``client.cron`` of a `BlockingClient`."""

    list = _blocking(Schedules.list)
    get = _blocking(Schedules.get)
    pause = _blocking(Schedules.pause)
    resume = _blocking(Schedules.resume)
    trigger = _blocking(Schedules.trigger)
    remove = _blocking(Schedules.remove)


@final
class BlockingWorkers(_Blocking[Workers]):
    """Look at workers: ``client.workers`` of a `BlockingClient`."""

    list = _blocking(Workers.list)


@final
class BlockingTransaction(_Blocking[Transaction]):
    """An open transaction; `BlockingClient.transaction` makes one."""

    enqueue = _blocking(Transaction.enqueue)
    enqueue_many = _blocking(Transaction.enqueue_many)

    def execute(
        self,
        query: QueryNoTemplate,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Run a statement of your own in the transaction; return its rows, if it has any.

        Raises:
          psycopg.Error: the database refused it, and the transaction with it.
        """
        _refuse_event_loop()
        link, transaction = self._reach()

        async def run() -> list[tuple[Any, ...]]:
            cursor = await transaction.connection.execute(query, parameters)
            return await cursor.fetchall() if cursor.description is not None else []

        return link.call(run)


@final
class BlockingClient(_Blocking[Client]):
    """A client for code that is not asynchronous: puts jobs in, looks at them, cancels them.

    The methods are those of `Client`, without ``await``, and so are those of its parts, such as
    ``client.jobs``. Any thread may call them, and several at once. Each call is bounded in
    time; one that Ctrl-C interrupts is cancelled.

    Nothing is opened before the first call. In a process that was forked afterwards the next
    call opens connections of that process's own. So a client can be made at import, where
    a server's workers share the module. Closing is optional; ``with`` does it, and so does the end of
    the last reference to it.

    To let a job and rows of your own commit together on a connection that you have already, use
    `awa_trio.enqueue`, or `awa_trio.bridge`, which need no client.

    Args:
      dsn: as for `connect`.
      app: likewise.
      pool_size: likewise.
      prepare: likewise.
      observers: likewise; called in the client's thread.

    Raises:
      ConfigurationError: the DSN cannot be parsed. What else `connect` raises, the first
          call does, and the next tries again.
      TypeError: a value is of another type.
    """

    def __init__(
        self,
        dsn: str = "",
        /,
        *,
        app: App | None = None,
        pool_size: int = 10,
        prepare: bool | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        check_app(app)
        Opener.of(dsn, prepare=prepare)  # says what is wrong with it where it is written
        self._connecting = functools.partial(
            connect, dsn, app=app, pool_size=pool_size, prepare=prepare, observers=observers
        )
        self._links: dict[str, Link] = {}
        """The one link, if there is one; a dict, whose setdefault is one step to threads and signals."""
        self._closed = False
        _clients.add(self)
        # One that nobody holds any more has nobody to close it.
        weakref.finalize(self, _abandon, self._links).atexit = False
        super().__init__(self._reached)
        self.jobs = BlockingJobs(self._part(lambda client: client.jobs))
        self.dlq = BlockingDeadLetters(self._part(lambda client: client.dlq))
        self.callbacks = BlockingCallbacks(self._part(lambda client: client.callbacks))
        self.queues = BlockingQueues(self._part(lambda client: client.queues))
        self.cron = BlockingSchedules(self._part(lambda client: client.cron))
        self.workers = BlockingWorkers(self._part(lambda client: client.workers))

    enqueue = _blocking(Client.enqueue)
    enqueue_many = _blocking(Client.enqueue_many)
    activity = _blocking(Client.activity)
    history = _blocking(Client.history)

    @contextmanager
    def transaction(self) -> Iterator[BlockingTransaction]:
        """Open a transaction in which jobs and rows of your own commit together.

        Leaving the block commits; an exception rolls back.

        Raises:
          DatabaseUnavailable: as `Client.transaction`.
          psycopg.Error: likewise.
          WrongEventLoop: it would block an event loop.
        """
        _refuse_event_loop()
        link, client = self._reach()
        with link.held(client.transaction()) as transaction:
            yield BlockingTransaction(lambda: (link, transaction))

    def close(self) -> None:
        """Cancel the calls under way, close the connections; no call is possible afterwards.

        What is cancelled in other threads raises ConfigurationError there, and their
        transactions are rolled back.
        """
        self._closed = True
        link = self._links.pop(_LINK, None)
        if link is not None:
            link.close()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _reached(self) -> tuple[Link, Client]:
        link = self._links.get(_LINK)
        if link is None or link.over:
            self._forget(link)
            self._refuse_closed()
            link = self._links.setdefault(_LINK, Link(self._connecting))
            self._refuse_closed()  # It may have been, since it was looked at.
        try:
            link.open()
        except Exception:
            self._forget(link)  # The next call tries again.
            raise
        return link, link.client

    def _refuse_closed(self) -> None:
        if self._closed:
            self.close()
            raise closed()

    def _forget(self, link: Link | None) -> None:
        if self._links.get(_LINK) is link:
            self._links.pop(_LINK, None)

    def _part(self, part: Callable[[Client], R]) -> Callable[[], tuple[Link, R]]:
        def reach() -> tuple[Link, R]:
            link, client = self._reached()
            return link, part(client)

        return reach

    def _forked(self) -> None:
        """In a child process there is no such thread, and the connections are the parent's."""
        _of_parents.extend(self._links.values())
        self._links.clear()


_LINK = "link"

_clients: weakref.WeakSet[BlockingClient] = weakref.WeakSet()

#: Links of a parent process, kept so that nothing of theirs is ever closed from here.
_of_parents: list[Link] = []


def _abandon(links: dict[str, Link]) -> None:
    for link in links.values():
        link.stop()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)

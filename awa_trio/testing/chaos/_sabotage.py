"""A client on the same jobs, whose workers meet faults at certain places.

What a worker does passes through its store: so that is where calls are counted, held, cut,
and answered no more. What a handler does in between is counted by `_stepping`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NoReturn, cast
from uuid import uuid4

import attrs
import psycopg
import trio
from psycopg.conninfo import make_conninfo

from ..._app.client import Backend, Client
from ..._app.connect import PgBackend
from ..._app.connections import Opener, require_trio
from ..._core.errors import ConfigurationError
from ..._seam.errors import Fenced, Transient
from ..._seam.protocol import Pulse, Store, WorkerStore
from ...pg import Pool
from ._outages import expire_leases
from ._points import Fault, Moment, Point

#: Calls after which something is different.
WRITES = frozenset(
    {
        "enqueue",
        "settle",
        "register_callback",
        "record_progress",
        "begin_waits",
        "end_waits",
        "answer_callback",
        "extend_callback",
    }
)

#: Of these, those that only a worker makes, for its own attempts: it can be told that it is
#: presumed dead, and does not try again.
OF_WORKERS = frozenset(
    {"claim", "settle", "register_callback", "record_progress", "begin_waits", "end_waits"}
)

#: The connections of a client that is to be broken: a handler's, and one to spare.
POOL = 4


class Sabotage:
    """Counts what passes, and strikes where it was told to.

    Args:
      where: the point at which, and what happens there; None to count only.
      hold: called for a worker that is to stand still; it goes on when that returns.
      shielded: whether who was killed stays so, whatever cancels them, until `end`.
    """

    def __init__(
        self,
        where: tuple[Point, Fault] | None,
        hold: Callable[[], Awaitable[object]],
        *,
        shielded: bool = False,
    ) -> None:
        self._where = where
        self._hold = hold
        self._shielded = shielded
        self._counts: Counter[str] = Counter()
        self._over = trio.Event()
        self.passed: list[Point] = []
        self.struck = trio.Event()
        """Set when it has struck."""
        self._killed = False

    def killed(self) -> bool:
        """Whether it has killed: nothing is answered any more."""
        return self._killed

    def end(self) -> None:
        """Let go of who was killed: whatever they try from now on is refused."""
        self._over.set()

    async def silence(self) -> None:
        """Nothing comes any more, until the end."""
        with trio.CancelScope(shield=self._shielded):
            await self._over.wait()

    async def _refuse(self, *, of_worker: bool) -> NoReturn:
        """What the dead try: no answer, until they may end; then one that ends them soon."""
        await self.silence()
        message = "killed by awa_trio.testing.chaos"
        raise Fenced(message) if of_worker else Transient(message)

    def _number(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what]

    async def _at(self, point: Point) -> None:
        """A point is passed."""
        self.passed.append(point)
        if self._where is None or self._where[0] != point or self.struck.is_set():
            return
        match self._where[1]:
            case Fault.KILL:
                self._killed = True
                self.struck.set()
                if point.in_handler:
                    await self.silence()
                    return
                await self._refuse(of_worker=point.what in OF_WORKERS)
            case Fault.FENCE:
                self.struck.set()
                with trio.CancelScope(shield=True):
                    await self._hold()
            case Fault.DISCONNECT:
                self.struck.set()
                raise Transient("the connection was lost (awa_trio.testing.chaos)")

    async def awaited(self, line: str) -> None:
        """A handler's await has come back."""
        if self.killed():
            await self.silence()
        await self._at(Point(line, self._number(line), Moment.AFTER))

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """A call of a store that writes."""
        if self.killed():
            await self._refuse(of_worker=name in OF_WORKERS)
        number = self._number(name)
        await self._at(Point(name, number, Moment.BEFORE))
        answer = await call()
        await self._at(Point(name, number, Moment.AFTER))
        return answer

    async def claim(self, claim: Callable[[], Awaitable[Any]]) -> Any:
        """A claim: of those that find nothing it depends on chance how many there are."""
        if self.killed():
            await self._refuse(of_worker=True)
        jobs = await claim()
        if self.killed():  # it was under way when that happened
            await self._refuse(of_worker=True)
        if jobs:
            await self._at(Point("claim", self._number("claim"), Moment.AFTER))
        return jobs

    async def other(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """A call that only looks, or that nobody counts."""
        if self.killed():
            await self._refuse(of_worker=False)
        return await call()


class SabotagedStore:
    """A store whose calls pass by a `Sabotage`."""

    def __init__(self, store: Any, sabotage: Sabotage) -> None:
        self._store = store
        self._sabotage = sabotage
        self.threaded_pulse = getattr(store, "threaded_pulse", False)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("now", "listen"):
            return found

        async def passing(*args: Any, **options: Any) -> Any:
            call = partial(found, *args, **options)
            if name in WRITES:
                return await self._sabotage.call(name, call)
            if name == "claim":
                return await self._sabotage.claim(call)
            return await self._sabotage.other(call)

        return passing

    @asynccontextmanager
    async def join(self, *args: Any) -> AsyncIterator[Any]:
        """A transaction of a handler's own, in which it completes its job."""
        async with self._store.join(*args) as joined:
            yield joined
            number = self._sabotage._number("commit")
            await self._sabotage._at(Point("commit", number, Moment.BEFORE))
        await self._sabotage._at(Point("commit", number, Moment.AFTER))

    @asynccontextmanager
    async def pulse(self) -> AsyncIterator[Pulse]:
        """A heartbeat that is silent when the worker is dead, in whatever thread it beats."""
        async with self._store.pulse() as pulse:
            yield _Pulse(pulse, self._sabotage)


class _Pulse:
    def __init__(self, pulse: Pulse, sabotage: Sabotage) -> None:
        self._pulse = pulse
        self._sabotage = sabotage

    async def beat(self, worker: int) -> bool:
        if self._sabotage.killed():
            await trio.sleep_forever()
        return await self._pulse.beat(worker)


class SabotagedBackend:
    """A client's ground, all of whose calls pass by a `Sabotage`."""

    def __init__(self, backend: Backend, sabotage: Sabotage) -> None:
        self._backend = backend
        self._sabotage = sabotage
        self.store = cast("Store", SabotagedStore(backend.store, sabotage))

    @asynccontextmanager
    async def worker_store(self) -> AsyncIterator[WorkerStore]:
        """Open a store for one worker."""
        async with self._backend.worker_store() as store:
            yield cast("WorkerStore", SabotagedStore(store, self._sabotage))

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Borrow a connection."""
        return self._backend.connection()


@asynccontextmanager
async def sabotaged(client: Client, sabotage: Sabotage) -> AsyncIterator[tuple[Client, str]]:
    """Open a client on the same jobs, with connections of its own; and what those are named."""
    backend = client._backend
    if not isinstance(backend, PgBackend):
        yield Client(SabotagedBackend(backend, sabotage), client._app, client._watching), ""
        return
    name = f"awa_chaos_{uuid4().hex[:12]}"
    opener = _named(backend._opener, name)
    hearing = backend._hearing and _named(backend._hearing, name)
    async with Pool(opener, size=POOL, name="the pool of a client to be broken") as pool:
        own = PgBackend(opener, hearing, pool)
        yield Client(SabotagedBackend(own, sabotage), client._app, client._watching), name


def _named(opener: Opener, name: str) -> Opener:
    return attrs.evolve(opener, conninfo=make_conninfo(opener.conninfo, application_name=name))


@asynccontextmanager
async def unreliable(client: Client, faults: Mapping[str, Fault]) -> AsyncIterator[Client]:
    """Open a client on the same jobs that breaks at one place, for `work_one`, `drain`, or a worker.

        async with chaos.unreliable(client, {"after settle#1": chaos.Fault.DISCONNECT}) as shaky:
            await drain(app, shaky)  # the answer of the first commit is lost

    Killed, neither it nor its workers are answered any more: run them in a cancel scope. Fenced,
    all workers that there are are presumed dead, and go on.

    Args:
      client: where the jobs are.
      faults: what happens, by the place where it does, as `Point` is printed; one.

    Raises:
      ConfigurationError: that is no place, or there is not one.
      WrongEventLoop: not called under Trio.
    """
    require_trio("unreliable")
    if len(faults) != 1:
        raise ConfigurationError(f"faults: give one place where to break, not {len(faults)}")
    [(text, fault)] = faults.items()
    sabotage = Sabotage((Point.parse(text), Fault(fault)), partial(expire_leases, client))
    async with sabotaged(client, sabotage) as (broken, _):
        try:
            yield broken
        finally:
            sabotage.end()

"""What can happen, each a value: a name, and what it does to the scene.

A fault strikes, lasts, and is over when its function returns. To add one, write the
function here, and decorate it; whoever is told to inflict all faults inflicts it too.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TypeAlias

import psycopg
import trio
from attrs import frozen

from .ground import no_disk, no_standby
from .places import Place
from .scene import LEASE, Scene

Act: TypeAlias = Callable[[Scene, Random], Awaitable[str]]
"""Does it; returns what it did, in a few words, for the report."""


@frozen
class Fault:
    """Something that can happen."""

    name: str
    act: Act
    standby: bool = False
    """Whether it needs a second server."""
    wal_disk: bool = False
    """Whether it needs a disk that can be full."""

    def impossible(self) -> str | None:
        """Why it cannot happen on this machine; None if it can."""
        return (no_standby() if self.standby else None) or (
            no_disk() if self.wal_disk else None
        )


FAULTS: dict[str, Fault] = {}


def _fault(name: str, *, standby: bool = False, wal_disk: bool = False) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        FAULTS[name] = Fault(name, act, standby, wal_disk)
        return act

    return add


def _longer_than_a_lease(chance: Random) -> float:
    return chance.uniform(1.2, 1.6) * LEASE


def _short_or_long(chance: Random) -> float:
    return chance.choice((chance.uniform(0.1, 0.5), _longer_than_a_lease(chance)))


# ---- Processes


@_fault("kill")
async def kill(scene: Scene, chance: Random) -> str:
    """A worker is gone from one moment to the next."""
    victims = chance.sample(scene.workers, chance.randint(1, len(scene.workers)))
    for worker in victims:
        worker.signal(signal.SIGKILL)
    return f"{len(victims)} of {len(scene.workers)} workers"


@_fault("zombie")
async def zombie(scene: Scene, chance: Random) -> str:
    """A worker stands still for longer than its lease, and goes on as if nothing had been."""
    worker = chance.choice(scene.workers)
    worker.signal(signal.SIGSTOP)
    try:
        await trio.sleep(_longer_than_a_lease(chance))
    finally:
        worker.signal(signal.SIGCONT)
    return worker.place.name


@_fault("clock")
async def clock(scene: Scene, chance: Random) -> str:
    """A worker's wall clock jumps by ten minutes, and later back."""
    worker, off = chance.choice(scene.workers), chance.choice((-600, 600))
    await worker.set_clock(off)
    try:
        await trio.sleep(_short_or_long(chance))
    finally:
        await worker.set_clock(0)
    return f"{worker.place.name}, {off:+d} s"


# ---- Connections


@_fault("terminate")
async def terminate(scene: Scene, chance: Random) -> str:
    """An operator ends sessions, while they run certain statements or whatever they run."""
    statement = chance.choice(("claim", "settle", "beat", "rescue", "enqueue", "LISTEN", ""))
    ended = 0

    def end() -> int:
        with scene.ground.primary.connect() as operator:
            row = operator.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                " AND application_name = 'awa_trio' AND query ILIKE %s",
                [f"%{statement}%"],
            ).fetchone()
        return int(row[0]) if row else 0

    for _ in range(chance.randint(1, 10)):
        ended += await trio.to_thread.run_sync(end)
        await trio.sleep(0.05)
    return f"{ended} sessions, {statement or 'any statement'}"


@_fault("exhaustion")
async def exhaustion(scene: Scene, chance: Random) -> str:
    """Somebody takes every connection there is, and the workers lose theirs."""
    taken: list[psycopg.Connection[object]] = []

    def take() -> None:
        # The workers try again and again, too: until nobody gets one.
        with contextlib.suppress(psycopg.OperationalError):
            while len(taken) < scene.ground.most_connections:
                taken.append(scene.ground.primary.connect("postgres"))

    def cut() -> None:
        taken[0].execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'awa_trio'"
        )

    try:
        await trio.to_thread.run_sync(take)
        await trio.to_thread.run_sync(cut)
        with trio.move_on_after(_short_or_long(chance)):
            while True:
                await trio.to_thread.run_sync(take)
                await trio.sleep(0.1)
    finally:
        for connection in taken:
            connection.close()
    return f"{len(taken)} idle connections"


# ---- The network


@asynccontextmanager
async def _on_some_ways(scene: Scene, chance: Random) -> AsyncIterator[list[Place]]:
    """Choose one of those who are connected, or all; afterwards everything passes again."""
    places = scene.places if chance.random() < 0.3 else [chance.choice(scene.places)]
    try:
        yield places
    finally:
        for place in places:
            place.heal()


def _told(places: list[Place], more: str = "") -> str:
    who = places[0].name if len(places) == 1 else "everybody"
    return f"{who}{more}"


@_fault("reset")
async def reset(scene: Scene, chance: Random) -> str:
    """Connections are reset, some times in a row."""
    async with _on_some_ways(scene, chance) as places:
        for _ in range(times := chance.randint(1, 5)):
            for place in places:
                place.all(lambda proxy: proxy.reset())
            await trio.sleep(0.1)
    return _told(places, f", {times} times")


@_fault("cut")
async def cut(scene: Scene, chance: Random) -> str:
    """The network is gone: connections are reset, and no new ones made."""
    async with _on_some_ways(scene, chance) as places:
        for place in places:
            place.all(lambda proxy: setattr(proxy, "refuses", True))
            place.all(lambda proxy: proxy.reset())
        await trio.sleep(seconds := _short_or_long(chance))
    return _told(places, f", {seconds:.1f} s")


@_fault("torn")
async def torn(scene: Scene, chance: Random) -> str:
    """A connection is reset in the middle of an answer, at some byte; and others after it."""
    async with _on_some_ways(scene, chance) as places:
        for _ in range(times := chance.randint(3, 10)):
            for place in places:
                place.all(lambda proxy: proxy.cut_after(chance.randint(1, 3000)))
            await trio.sleep(0.1)
    return _told(places, f", {times} times")


@_fault("black hole")
async def black_hole(scene: Scene, chance: Random) -> str:
    """Nothing comes through, and nobody is told; then all of it does."""
    async with _on_some_ways(scene, chance) as places:
        for place in places:
            place.all(lambda proxy: proxy.stall())
        await trio.sleep(seconds := _short_or_long(chance))
    return _told(places, f", {seconds:.1f} s")


@_fault("delay")
async def delay(scene: Scene, chance: Random) -> str:
    """Everything takes longer."""
    latency = chance.choice((0.02, 0.1, 0.3))
    async with _on_some_ways(scene, chance) as places:
        for place in places:
            place.all(lambda proxy: setattr(proxy, "latency", latency))
        await trio.sleep(chance.uniform(1, 2))
    return _told(places, f", {latency * 1000:.0f} ms each way")


# ---- The server


@_fault("server killed")
async def server_killed(scene: Scene, chance: Random) -> str:
    """PostgreSQL is killed, all of it, and started again."""
    await trio.to_thread.run_sync(scene.ground.primary.kill)
    await trio.sleep(seconds := _short_or_long(chance))
    await trio.to_thread.run_sync(scene.ground.primary.start)
    return f"down for {seconds:.1f} s"


@_fault("session killed")
async def session_killed(scene: Scene, chance: Random) -> str:
    """One of its processes is killed: it ends all sessions, and recovers by itself."""

    def pid() -> int | None:
        rows = scene.ground.primary.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'awa_trio' ORDER BY pid"
        )
        return chance.choice(rows)[0] if rows else None

    found = await trio.to_thread.run_sync(pid)
    if found is None:
        return "nobody"
    with contextlib.suppress(ProcessLookupError):
        os.kill(found, signal.SIGKILL)
    return "one session"


@_fault("promotion", standby=True)
async def promotion(scene: Scene, chance: Random) -> str:
    """The server dies for good, and its standby takes over; a new standby is made."""
    await trio.to_thread.run_sync(scene.ground.promote)
    await trio.to_thread.run_sync(scene.ground.follow)
    return f"{scene.ground.primary.folder.name} is the primary now"


@_fault("disk full", wal_disk=True)
async def disk_full(scene: Scene, chance: Random) -> str:
    """No WAL can be written any more, so PostgreSQL ends; until there is space, and it is started."""
    node = scene.ground.primary
    assert node.wal is not None
    ballast = node.wal.parent / "ballast"

    def fill() -> None:
        # Somebody's slot that nobody reads keeps all WAL: nothing of it is used again.
        node.execute("SELECT pg_create_physical_replication_slot('ballast', true)")
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 20))
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                node.execute("SELECT pg_logical_emit_message(false, '', repeat('x', 1000000))")

    def clear() -> None:
        ballast.unlink()
        node.revive()
        node.execute("SELECT pg_drop_replication_slot('ballast')", "CHECKPOINT")

    await trio.to_thread.run_sync(fill)
    await trio.sleep(seconds := _short_or_long(chance))
    await trio.to_thread.run_sync(clear)
    return f"for {seconds:.1f} s"

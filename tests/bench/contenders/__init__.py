"""The queues that are measured, each used as its documentation says to where speed matters.

A contender does four kinds of jobs, whose arguments are a whole number and a moment:

- ``nothing``, ``ping`` and ``stage_b`` do nothing but report that they have begun;
- ``stage_a`` lets a ``stage_b`` follow besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar, Protocol, TypeAlias

Handle: TypeAlias = Callable[[str, int, float], None]
"""Told of a job whose handler has begun: its kind, its number, and the moment it carries."""

Settled: TypeAlias = "Callable[[], int] | None"
"""How many jobs the worker knows to be durably completed; None if it cannot tell."""

KINDS = ("nothing", "ping", "stage_a", "stage_b")


class Producer(Protocol):
    """Puts jobs in."""

    async def one(self, kind: str, n: int, moment: float) -> None:
        """Enqueue a job in a transaction of its own."""
        ...

    async def many(self, kind: str, ns: Sequence[int], moment: float) -> None:
        """Enqueue jobs the fastest way there is."""
        ...


class Contender(Protocol):
    """One queue."""

    package: ClassVar[str]
    """Its name on the package index."""
    backend: ClassVar[str]
    """The event loop it runs on, as anyio calls it."""
    uvloop: ClassVar[bool]
    settings: ClassVar[Mapping[str, object]]
    """What is not left at its default."""
    bulk: ClassVar[int]
    """How many jobs one call of `Producer.many` takes."""
    completed: ClassVar[str | None]
    """SQL for rows of how many jobs were completed, and when that was committed; None if
    only the worker can tell."""
    analyze: ClassVar[bool]
    """Whether it needs an ANALYZE after it was filled to be fast."""
    share: ClassVar[Mapping[str, float]]
    """How many of a measure's jobs it is given, where it would take minutes for all."""

    async def install(self, dsn: str) -> None:
        """Create its schema."""
        ...

    def producing(self, dsn: str) -> AbstractAsyncContextManager[Producer]:
        """Open a producer."""
        ...

    def working(self, dsn: str, handle: Handle) -> AbstractAsyncContextManager[Settled]:
        """Run a worker in this process, until the block is left."""
        ...


#: By the names that the command line takes: module, class, title.
_KNOWN = {
    "canonical": ("ours", "Canonical", "awa_trio"),
    "segmented": ("ours", "Segmented", "awa_trio, segmented"),
    "awa-pg": ("awa_pg", "AwaPg", "awa-pg"),
    "procrastinate": ("procrastinate", "Procrastinate", "procrastinate"),
    "pgqueuer": ("pgqueuer", "PgQueuer", "pgqueuer"),
    "chancy": ("chancy", "Chancy", "chancy"),
}

ENGINES = ("canonical", "segmented")
"""Ours, by engine."""

PEERS = tuple(name for name in _KNOWN if name not in ENGINES)


def load(name: str) -> Contender:
    """Import a contender.

    Raises:
      ImportError: its packages are not installed.
    """
    module, of, _ = _KNOWN[name]
    made: Contender = getattr(import_module(f".{module}", __name__), of)()
    return made


def title(name: str) -> str:
    """Return how tables name it, with its version if it is another project's."""
    known = _KNOWN[name][2]
    return known if name in ENGINES else f"{known} {version(name)}"


def missing(name: str) -> str | None:
    """Return why a contender cannot be measured here; None if it can be."""
    try:
        if name not in ENGINES:
            version(name)
        load(name)
    except (PackageNotFoundError, ImportError) as error:
        return f"{name} is left out: {error}"
    return None

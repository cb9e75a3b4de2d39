"""What goes in comes out: any request that is accepted, at every limit, and any delay, through
the model and both engines; and what is past a limit is refused before it is sent, and by the
tables too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import awa_trio as awa
from awa_trio._core.backoff import MAX_BACKOFF, delay
from awa_trio._core.codec import Codec
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.request import EnqueueRequest, prepare
from awa_trio._core.settings import MAX_SECONDS
from awa_trio._seam.errors import StoreError
from awa_trio._seam.values import Want
from tests.core.test_codec import TYPED, exact
from tests.core.test_request import ANY, GOOD, OBJECTS
from tests.stores.contract import plan

from .portal import Portal
from .sides import MemorySide, Side, open_sides, same
from .test_machine import COMMON

S = JobState
codec = Codec()


class Stores:
    """The same call to each of them."""

    def __init__(self, portal: Portal, sides: list[Side]) -> None:
        self.portal = portal
        self.sides = sides

    def clear(self) -> None:
        for side in self.sides:
            self.portal(side.forget)

    def run(self, job: PreparedInsert) -> list[dict[str, Any]]:
        """Enqueue a job that is due, claim it, complete it; what each store made of it."""
        return [self.portal(self._run, side, job) for side in self.sides]

    async def _run(self, side: Side, job: PreparedInsert) -> dict[str, Any]:
        [made] = await side.store.enqueue([job])
        side.ids = [made.id]
        [row] = await side.store.get([made.id])
        found = side.row(row)
        if job.run_at is not None:
            found["run_at"] = row.run_at
        side.workers = [await side.store.register("runs it", 3600.0)]
        wants = [Want(job.queue, 1, 0.0)]
        for claimed in await side.store.claim(side.workers[0], wants, {job.kind: None}):
            found["claimed"] = (claimed.run_at >= row.run_at, claimed.raw_args)
            done = plan(claimed, S.COMPLETED)
            [settled] = await side.store.settle([done], worker=side.workers[0])
            assert settled.applied
        return found

    def refuses(self, job: PreparedInsert) -> list[bool]:
        """Whether the tables of each engine refuse a job."""
        return [
            self.portal(self._refuses, side, job)
            for side in self.sides
            if not isinstance(side, MemorySide)
        ]

    async def _refuses(self, side: Side, job: PreparedInsert) -> bool:
        refused = 0
        for jobs in ([job], [GOOD_JOB, job]):
            try:
                await side.store.enqueue(jobs)
            except StoreError:
                refused += 1
        return refused == 2

    def settle_in(self, seconds: float) -> list[float]:
        """Retry an attempt after so many seconds; in how many each store is to run it."""
        return [self.portal(self._settle_in, side, seconds) for side in self.sides]

    async def _settle_in(self, side: Side, seconds: float) -> float:
        worker = await side.store.register("runs it", 3600.0)
        await side.store.enqueue([PreparedInsert("k", "q", b"{}")])
        [claimed] = await side.store.claim(worker, [Want("q", 1, 0.0)], {"k": None})
        again = plan(claimed, S.RETRYABLE, seconds=seconds)
        [settled] = await side.store.settle([again], worker=worker)
        assert settled.applied
        [row] = await side.store.get([claimed.id])
        return (row.run_at - side.world.now()).total_seconds()


@pytest.fixture
def stores(canonical: str, segmented: str) -> Iterator[Stores]:
    with Portal() as portal:
        sides = portal(open_sides, portal.stack, awa.App(), canonical, segmented)
        yield Stores(portal, sides)


#: Bounded in the default suite; many more with ``-m slow``.
DEPTHS = [
    pytest.param(settings(COMMON, max_examples=60), id="some"),
    pytest.param(
        settings(COMMON, max_examples=3000, derandomize=False),
        id="many",
        marks=pytest.mark.slow,
    ),
]
each_depth = pytest.mark.parametrize("depth", DEPTHS)

# ---- arguments


@each_depth
def test_a_handler_gets_the_arguments_that_were_enqueued(
    stores: Stores, depth: settings
) -> None:
    @depth
    @given(TYPED, st.data())
    def check(typed: Any, data: st.DataObject) -> None:
        type_, values = typed
        value = data.draw(values)
        own = Codec()
        holder = attrs.make_class("Args", {"x": attrs.field(type=type_)})
        job = prepare(EnqueueRequest(holder(value)), own, kind="k")
        stores.clear()
        for found in stores.run(job):
            assert found["args"] == job.args
            back = own.decode(found["claimed"][1], holder)
            assert exact(back.x, value)

    check()


# ---- requests

#: At each limit, and just past it. Characters of four bytes: a limit is of characters.
NAMES = st.sampled_from([1, 199, 200]).map(lambda n: "\N{GRINNING FACE}" * n)
EDGES = st.fixed_dictionaries(
    {"kind": NAMES},
    optional={
        "queue": NAMES,
        "priority": st.sampled_from([1, 4]),
        "max_attempts": st.sampled_from([1, 1000]),
        "tags": st.sampled_from([[], ["t"] * 20, ["\N{GRINNING FACE}" * 200] * 20]),
        "metadata": st.sampled_from([{}, {"": ""}, {"\N{GRINNING FACE}": [[]] * 50}]),
        "run_at": st.sampled_from(
            [
                datetime.min.replace(tzinfo=UTC),
                datetime(1970, 1, 1, tzinfo=UTC),
                datetime.max.replace(tzinfo=UTC),
            ]
        ),
        "unique_opts": st.sampled_from([{}, {"states": 255}, {"states": 1}, {"states": 128}]),
        "ordering_key": NAMES,
        "limit_key": NAMES,
        "deadline": st.sampled_from([0, 5e-324, 1e-6, MAX_SECONDS]),
    },
)


@each_depth
def test_any_request_that_is_accepted_is_stored_as_it_is(
    stores: Stores, depth: settings
) -> None:
    @depth
    @given(OBJECTS, st.one_of(EDGES, GOOD, ANY))
    def check(args: Any, options: Any) -> None:
        try:
            job = prepare(EnqueueRequest(args, **options), codec)
        except awa.InvalidRequest:
            assume(False)
        stores.clear()
        model, *engines = stores.run(job)
        assert all(same(model, engine) for engine in engines), (model, engines)
        assert model["args"] == job.args
        assert model["tags"] == job.tags
        for option in (
            "kind",
            "queue",
            "priority",
            "max_attempts",
            "ordering_key",
            "limit_key",
        ):
            assert model[option] == getattr(job, option)
        assert model["deadline"] == job.deadline

    check()


GOOD_JOB = PreparedInsert("k", "q", b"{}")

#: What no request gets through with, as it would reach the tables.
PAST: dict[str, dict[str, Any]] = {
    "kind of nothing": {"kind": ""},
    "kind of 201": {"kind": "k" * 201},
    "queue of nothing": {"queue": ""},
    "queue of 201": {"queue": "k" * 201},
    "priority 0": {"priority": 0},
    "priority 5": {"priority": 5},
    "max_attempts 0": {"max_attempts": 0},
    "max_attempts 1001": {"max_attempts": 1001},
    "21 tags": {"tags": ("t",) * 21},
    "ordering key of nothing": {"ordering_key": ""},
    "ordering key of 201": {"ordering_key": "k" * 201},
    "limit key of nothing": {"limit_key": ""},
    "deadline below 0": {"deadline": -1e-9},
    "deadline of more than a year": {"deadline": MAX_SECONDS + 1},
    "deadline NaN": {"deadline": math.nan},
    "deadline infinite": {"deadline": math.inf},
    "metadata that are no object": {"metadata": b"[]"},
    "a key of 15 bytes": {"unique_key": b"k" * 15, "unique_states": 31},
    "a mask of nothing": {"unique_key": b"k" * 16, "unique_states": 0},
    "a mask of 256": {"unique_key": b"k" * 16, "unique_states": 256},
    "a NUL in the kind": {"kind": "k\0"},
    "args that are no JSON": {"args": b"{"},
}


def test_the_tables_refuse_what_no_request_gets_through_with(stores: Stores) -> None:
    accepted = [
        what
        for what, changes in PAST.items()
        if stores.refuses(attrs.evolve(GOOD_JOB, **changes)) != [True, True]
    ]
    assert accepted == []


# ---- delays


@each_depth
def test_any_delay_is_kept(stores: Stores, depth: settings) -> None:
    """What a backoff of a task's own may return, after any attempt, and what a handler may ask
    for, which is more."""
    own = st.one_of(st.none(), st.floats(), st.integers(), st.sampled_from([5e-324, 1e308]))

    @depth
    @given(st.integers(0, 10**6), st.floats(0, 1), own, st.floats(0, MAX_SECONDS))
    def check(attempt: int, fraction: float, returned: Any, asked: float) -> None:
        backoff = None if returned is None else lambda attempt: returned
        wanted = delay(attempt, fraction, backoff)
        assert 0 <= wanted <= MAX_BACKOFF
        stores.clear()
        for seconds in (wanted, asked):
            for kept in stores.settle_in(seconds):
                assert abs(kept - seconds) < 30

    check()

"""The segmented engine keeps the contract, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import trio

from awa_trio._app.connections import Opener
from awa_trio._pg.pool import Pool

from .contract import StoreContract
from .flow_contract import FlowContract
from .test_canonical import SHIFT, SqlWorld


class SegmentedWorld(SqlWorld):
    shift = (
        SHIFT
        + """
UPDATE awa.lane_jobs SET created_at = created_at - make_interval(secs => %(s)s);
UPDATE awa.lane_claims SET claimed_at = claimed_at - make_interval(secs => %(s)s);
UPDATE awa.lane_ends SET at = at - make_interval(secs => %(s)s);
UPDATE awa.segments SET opened_at = opened_at - make_interval(secs => %(s)s);
"""
    )


class TestSegmented(StoreContract, FlowContract):
    @pytest.fixture
    async def world(
        self, segmented: str, straight: Callable[[str], str], nursery: trio.Nursery
    ) -> AsyncIterator[SqlWorld]:
        opener = Opener.of(segmented, prepare=None)
        async with Pool(opener, size=4) as pool:
            hearing = Opener.of(straight(segmented), prepare=False)
            world = SegmentedWorld(pool, opener, hearing)
            ready = trio.Event()
            nursery.start_soon(world.store.listen, world.hear, ready.set)
            await ready.wait()
            yield world

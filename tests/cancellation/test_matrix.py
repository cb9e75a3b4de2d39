"""Every await of an attempt that writes, cut there, by each cause, in each shape of handler.

What must be true afterwards is in `ground`: the state of the job, its follow-ups, the rows
and jobs that the handler wrote by itself, the connections, the slot.
"""

from __future__ import annotations

import pytest

from .cells import SCRIPTS, cells
from .ground import Ground

#: Its worker listens on a connection that can be cut, too, and behind a pooler hears nothing.
pytestmark = pytest.mark.sessions

ENGINES = ["canonical", "segmented"]


@pytest.fixture(params=ENGINES)
def engine_dsn(request: pytest.FixtureRequest) -> str:
    dsn: str = request.getfixturevalue(request.param)
    return dsn


async def cut_all(dsn: str, script: str, *, every: bool) -> None:
    failures: list[str] = []
    cut, missed = 0, []
    async with Ground.open(dsn) as ground:
        points = await ground.points(script)
        found = sorted(cells(script, points, every=every), key=lambda cell: cell.shape)
        for cell in found:
            try:
                if await ground.cut(cell):
                    cut += 1
                else:
                    missed.append(str(cell))
            except AssertionError as error:
                failures.append(f"{cell}: {error}")
    print(f"{len(points)} points, {cut} cells cut, {len(missed)} not reached: {missed}")
    assert not failures, "\n".join(failures)
    assert len(missed) <= len(found) / 50


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    "engine", ["canonical", pytest.param("segmented", marks=pytest.mark.slow)]
)
async def test_cut_anywhere(request: pytest.FixtureRequest, engine: str, script: str) -> None:
    """For each point and each cause one shape, in turn."""
    await cut_all(request.getfixturevalue(engine), script, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
async def test_cut_anywhere_in_every_shape(engine_dsn: str, script: str) -> None:
    await cut_all(engine_dsn, script, every=True)

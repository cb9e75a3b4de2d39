"""Figures over time as shapes: in their box, whatever happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from awa_trio.web._plots import HEIGHT, Point, bars, lines, nice_top


@given(
    st.lists(st.tuples(st.integers(0, 119), st.floats(0, 1e7), st.floats(0, 1e7)), max_size=30),
    st.floats(1e-4, 1e8),
)
def test_whatever_happened_is_drawn_inside_the_box(
    happened: list[tuple[int, float, float]], least: float
) -> None:
    points = [Point(n, a, b, a, b) for n, a, b in sorted(happened)]
    top = nice_top(max([a + b for _, a, b in happened], default=0.0), least)
    assert top >= least
    for drawn in (bars(points, 0, 120, top), lines(points, 0, 120, top)):
        assert "nan" not in drawn
        assert "inf" not in drawn
        assert drawn.count("<svg") == 1
        for path in drawn.split(' d="')[1:]:
            for place in path.split('"')[0].replace("L", "M").split("M")[1:]:
                y = float(place.split("h")[0].split("H")[0].split()[-1])
                assert -1.1 <= y <= HEIGHT

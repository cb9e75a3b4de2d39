"""Figures over time as SVG: bars of how much was done, lines of how long it took.

The SVG has shapes only, in a box that is stretched to whatever room there is. Words and
numbers around it are HTML, which does not stretch, and is what is read aloud. Colours come
from the style sheet, by class.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from markupsafe import Markup

#: The box that everything is drawn in.
WIDTH, HEIGHT = 600.0, 100.0


@attrs.frozen
class Point:
    """What was so in one step of time."""

    number: int
    """Which step: so many since 1970."""
    completed: float
    """Jobs a second."""
    failed: float
    """Jobs a second."""
    typical: float | None
    """Seconds from due to start that half of the jobs did not exceed; None of no jobs."""
    slow: float | None
    """Seconds that 95 of 100 did not exceed; None of no jobs."""


def nice_top(greatest: float, least: float) -> float:
    """Return where a scale ends: 1, 2 or 5 times a power of ten, above everything."""
    top = 10.0**-6
    while True:
        for factor in (1, 2, 5):
            if top * factor >= max(greatest, least):
                return top * factor
        top *= 10


def bars(points: Sequence[Point], first: int, steps: int, top: float) -> Markup:
    """Draw what was done as bars: what completed, and on it what failed."""
    width = WIDTH / steps
    completed, failed = [], []
    for point in points:
        left = (point.number - first) * width
        height = _up(point.completed, top)
        more = _up(point.completed + point.failed, top) - height
        # A bar that is there at all is seen.
        if point.completed > 0:
            height = max(height, 1.0)
            completed.append(_bar(left, HEIGHT - height, width, height))
        if point.failed > 0:
            more = max(more, 1.0)
            failed.append(_bar(left, HEIGHT - height - more, width, more))
    return _svg(
        f'<path class="ok" d="{"".join(completed)}"/><path class="ko" d="{"".join(failed)}"/>'
    )


def lines(points: Sequence[Point], first: int, steps: int, top: float) -> Markup:
    """Draw how long jobs waited for their start as lines: typically, and of the slow ones."""
    return _svg(
        _line("slow", [(p.number, p.slow) for p in points], first, steps, top)
        + _line("typical", [(p.number, p.typical) for p in points], first, steps, top)
    )


def _line(
    name: str, values: Sequence[tuple[int, float | None]], first: int, steps: int, top: float
) -> str:
    """A line where steps follow each other, and a dot where one stands alone."""
    width = WIDTH / steps
    runs: list[list[tuple[float, float]]] = []
    last = None
    for number, value in values:
        if value is None:
            continue
        place = ((number - first + 0.5) * width, HEIGHT - _up(value, top))
        # A step or two without a job is no gap: the line goes on.
        if last is None or number - last > _GAP:
            runs.append([])
        runs[-1].append(place)
        last = number
    drawn = []
    for run in runs:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        kind = "line" if len(run) > 1 else "line dot"
        end = "" if len(run) > 1 else "h0.01"
        drawn.append(f'<path class="{kind} {name}" d="{path}{end}"/>')
    return "".join(drawn)


#: Steps between two that a line may skip.
_GAP = 3


def _up(value: float, top: float) -> float:
    return min(value / top, 1.0) * HEIGHT


def _bar(left: float, upper: float, width: float, height: float) -> str:
    # A gap between bars, where there is room for one.
    gap = width * 0.2 if width > 3 else 0
    return (
        f"M{left + gap / 2:.1f} {upper:.1f}h{width - gap:.1f}v{height:.1f}h-{width - gap:.1f}z"
    )


def _svg(inside: str) -> Markup:
    grid = "".join(
        f'<path class="grid" d="M0 {y:g}H{WIDTH:g}"/>' for y in (0, HEIGHT / 2, HEIGHT)
    )
    # Numbers and fixed words only, all of them made here.
    return Markup(  # noqa: S704
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" aria-hidden="true"'
        f' focusable="false">{grid}{inside}</svg>'
    )

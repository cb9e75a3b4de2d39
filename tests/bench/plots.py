"""Plots as SVG: plain text, legible on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from .figures import short

_XML = 'xmlns="http://www.w3.org/2000/svg"'
_WIDTH = 720
_LABELS = 200
_FONT = 'font-family="system-ui, sans-serif" font-size="13"'
_OURS, _THEIRS, _INK, _GRID = "#1f6f8b", "#b8bfc6", "#24292f", "#e3e6e9"

#: For lines: ours first.
_COLOURS = ("#1f6f8b", "#5aa9a3", "#c2571a", "#7a5195", "#8a8f94", "#b58900")


def bars(title: str, rows: Sequence[tuple[str, float, bool]]) -> str:
    """Draw horizontal bars, from zero.

    Args:
      title: what they show, with the unit.
      rows: for each bar its label, its length, and whether it is ours.
    """
    most = max((value for _, value, _ in rows), default=0) or 1
    room = _WIDTH - _LABELS - 90
    parts = []
    for number, (label, value, ours) in enumerate(rows):
        y = 44 + 28 * number
        length = max(value / most * room, 1)
        parts += [
            _text(_LABELS - 8, y + 15, label, anchor="end", bold=ours),
            _rectangle(_LABELS, y, length, 20, _OURS if ours else _THEIRS),
            _text(_LABELS + length + 6, y + 15, short(value), bold=ours),
        ]
    return _page(title, 44 + 28 * len(rows) + 12, parts)


def lines(title: str, series: Mapping[str, Sequence[float]], *, below: str) -> str:
    """Draw lines over 1, 2, 3 and so on, from zero.

    Args:
      title: what they show, with the unit.
      series: the values, by what they are of; ours first.
      below: what is counted along the bottom.
    """
    top, left, height, room = 44, 70, 260, _WIDTH - 70 - 190
    most = _round_up(max((value for values in series.values() for value in values), default=1))
    steps = max((len(values) for values in series.values()), default=1) - 1 or 1
    parts = []
    for quarter in range(5):
        y = top + height * quarter / 4
        parts += [
            f'<line x1="{left}" y1="{y}" x2="{left + room}" y2="{y}" stroke="{_GRID}"/>',
            _text(left - 8, y + 4, short(most * (4 - quarter) / 4), anchor="end"),
        ]
    ends = []
    for (name, values), colour in zip(series.items(), _COLOURS, strict=False):
        points = [
            (left + room * n / steps, top + height * (1 - value / most))
            for n, value in enumerate(values)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        ends.append((points[-1][1], name, colour))
    lowest = -math.inf
    for y, name, colour in sorted(ends):
        lowest = max(y, lowest + 16)  # Labels of lines that end together must not overlap.
        parts.append(_text(left + room + 8, lowest + 4, name, colour=colour))
    parts.append(_text(left + room / 2, top + height + 26, below, anchor="middle"))
    return _page(title, top + height + 40, parts)


def _round_up(value: float) -> float:
    if value <= 0:
        return 1
    step = 10.0 ** math.floor(math.log10(value)) / 2
    return float(math.ceil(value / step) * step)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    bold: bool = False,
    colour: str = _INK,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="2" fill="{colour}"/>'


def _page(title: str, height: float, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg {_XML} viewBox="0 0 {_WIDTH} {height:.0f}" role="img" {_FONT}>',
            f"<title>{escape(title)}</title>",
            _rectangle(0, 0, _WIDTH, height, "#ffffff"),
            _text(16, 26, title, bold=True),
            *parts,
            "</svg>",
            "",
        ]
    )

"""The page of figures in the documentation: all that is between its markers, and the plots."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from . import plots, tables
from .tables import Results, Table

BEGIN, END = "<!-- figures: written by a command, with --write -->", "<!-- end of figures -->"


def rewrite(page: str, figures: str) -> str:
    """Replace what is between the markers of a page.

    Raises:
      ValueError: they are not there.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN if not begin else END}")
    return f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}"


def figures(
    facts: Sequence[str], all_tables: Sequence[Table], pictures: Mapping[str, str]
) -> str:
    """Write what goes between the markers.

    Args:
      facts: what they depend on, a sentence each.
      all_tables: in order; the first stands before the plots.
      pictures: descriptions of the plots, by path.
    """
    images = "\n\n".join(f"![{of}]({path})" for path, of in pictures.items())
    first, *rest = map(tables.markdown, all_tables)
    return "\n\n".join(part for part in (" ".join(facts), first, images, *rest) if part)


#: Bar charts: file, measure, key, title.
_BARS = (
    ("drain", "drain", "per_s", "Drain, one worker process: jobs a second"),
    ("pairs", "pairs", "per_s", "A followed by B: pairs a second"),
    ("pickup", "pickup500", "p95_ms", "Pickup at 500 jobs a second: 95th percentile, ms"),
    ("wal", "drain", "wal_all_b", "WAL a job, from enqueue to completion: bytes"),
)


def pictures(
    results: Results, ours: Sequence[str], names: Sequence[str], titles: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Draw what there are figures for; return descriptions and SVG, by file name."""
    drawn = {}
    for file, measure, key, title in _BARS:
        rows = [
            (titles[name], statistics.median(found), name in ours)
            for name in names
            if (found := tables.known(results.get(measure, {}).get(name, ()), key))
        ]
        if rows:
            drawn[f"{file}.svg"] = title, plots.bars(title, rows)
    series = {
        titles[name]: measured["waves"]
        for name in names
        for measured in results.get("waves", {}).get(name, ())[:1]
        if measured is not None
    }
    if series:
        title = "Waves of a drain, while a session holds an old snapshot: jobs a second"
        drawn["waves.svg"] = title, plots.lines(title, series, below="wave")
    return drawn

"""Tables, plots and the page: from results to text."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from . import contenders, own, page, plots, shared, tables
from .__main__ import chosen, merged, show
from .tables import Table

TITLES = {"canonical": "awa_trio", "peer": "peer 1.0", "other": "other 2.0"}
RESULTS: dict[str, dict[str, list[dict[str, Any] | None]]] = {
    "drain": {
        "canonical": [{"per_s": 3000.0, "wal_all_b": 500.0}, {"per_s": 1500.0}],
        "peer": [{"per_s": 1000.0, "wal_all_b": 1000.0}, {"per_s": 500.0}],
        "other": [None, None],
    },
    "waves": {
        "canonical": [{"jobs": 30, "waves": [100.0, 110.0, 90.0], "last_by_first": 0.9}],
        "peer": [{"jobs": 30, "waves": [100.0, 60.0, 20.0], "last_by_first": 0.2}],
        "other": [None],
    },
    "staged-1": {"canonical": [{"per_s": 700.0, "postgres_us": 40.0}]},
}
KEPT = {
    "facts": {
        "server_version": "15",
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": "512MB",
        "fdatasync_ms": "0.10",
        "python": "3.11",
        "cores": "2",
    },
    "repeats": 2,
    "quick": False,
    "ours": ["canonical"],
    "titles": TITLES,
    "settings": {name: {"limit": 7} for name in TITLES},
    "results": RESULTS,
}


def test_what_is_compared_is_set_beside_the_best_of_the_others() -> None:
    table = tables.compared(RESULTS, ["canonical"], ["peer", "other"], TITLES)
    assert table.header == ("", "awa_trio", "ratio", "best of the others")
    assert ("drain, one worker, jobs/s", "2,250", "3", "750 (peer 1.0)") in table.rows
    assert (
        "WAL per job, enqueued and drained, B",
        "500",
        "0.5",
        "1,000 (peer 1.0)",
    ) in table.rows
    assert len(table.rows) == 3


def test_without_peers_there_are_figures_and_no_ratios() -> None:
    table = tables.compared(RESULTS, ["canonical"], [], TITLES)
    assert ("drain, one worker, jobs/s", "2,250", "-", "-") in table.rows


def test_a_contender_that_failed_has_no_row() -> None:
    drain, cost, waves = tables.by_contender(RESULTS, list(TITLES), TITLES)
    assert [row[0] for row in drain.rows] == ["awa_trio", "peer 1.0"]
    assert cost.rows[1][4] == "1,000"
    assert waves.rows[1] == ("peer 1.0", "30", "100", "60", "20", "0.2")


def test_what_is_ours_alone_has_the_columns_it_has_figures_for() -> None:
    [table] = tables.own(
        RESULTS, {"Staging": {"staged-1": "1 follow-up", "held": "none"}}, ["canonical"], TITLES
    )
    assert table.header == ("", "jobs/s", "PostgreSQL µs")
    assert table.rows == (("1 follow-up", "700", "40"),)


def test_two_engines_have_a_row_each() -> None:
    results = {"staged-1": {name: [{"per_s": 1.0}] for name in contenders.ENGINES}}
    titles = {"canonical": "a", "segmented": "b"}
    [table] = tables.own(results, {"S": {"staged-1": "x"}}, contenders.ENGINES, titles)
    assert [row[0] for row in table.rows] == ["x, a", "x, b"]


def test_markdown_has_as_many_cells_in_each_row() -> None:
    text = tables.markdown(Table("T", ("", "a", "b"), (("x", "1", "2"),)))
    assert text == "### T\n\n|  | a | b |\n|---|---:|---:|\n| x | 1 | 2 |"


def test_every_figure_is_of_a_measure_that_there_is() -> None:
    figures = [*tables.COMPARED, *(f for _, columns in tables.BY_CONTENDER for f in columns)]
    assert {figure.measure for figure in figures} <= set(shared.MEASURES)
    assert set(shared.MEASURES).isdisjoint(own.MEASURES)


def test_measures_are_chosen_by_name_beginning_or_group() -> None:
    assert chosen(["drain"]) == ["drain"]
    assert chosen(["pickup", "enqueue"]) == ["enqueue", "pickup50", "pickup500", "pickup2000"]
    assert chosen(["claims"]) == [name for name in own.MEASURES if name.startswith("claim")]
    assert set(chosen(None)) == {*shared.MEASURES, *own.MEASURES}
    with pytest.raises(SystemExit, match="no measure is named nonsense"):
        chosen(["nonsense"])


def test_a_later_run_replaces_whole_measures() -> None:
    later = {**KEPT, "results": {"drain": {"canonical": [{"per_s": 1.0}]}}}
    results = merged([KEPT, later])["results"]
    assert results["drain"] == {"canonical": [{"per_s": 1.0}]}
    assert results["waves"] == RESULTS["waves"]


def test_bars_are_as_long_as_their_values() -> None:
    svg = ET.fromstring(plots.bars("A & B", [("x", 10, True), ("y < z", 5, False)]))
    rectangles = svg.findall("{*}rect")[1:]
    long, short = (float(found.attrib["width"]) for found in rectangles)
    assert long == pytest.approx(2 * short, rel=0.01)
    texts = [found.text for found in svg.findall("{*}text")]
    assert texts == ["A & B", "x", "10", "y < z", "5"]


def test_lines_rise_with_their_values_and_their_names_do_not_overlap() -> None:
    drawn = plots.lines("T", {"a": [0, 5, 10], "b": [10, 10, 10]}, below="wave")
    svg = ET.fromstring(drawn)
    first, second = (
        [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        for line in svg.findall("{*}polyline")
    )
    assert first[0] > first[1] > first[2]
    assert second == [first[2]] * 3
    names = [float(t.attrib["y"]) for t in svg.findall("{*}text") if t.text in ("a", "b")]
    assert abs(names[0] - names[1]) >= 16


def test_plots_of_nothing_are_whole() -> None:
    ET.fromstring(plots.bars("T", []))
    ET.fromstring(plots.lines("T", {}, below="x"))


def test_what_is_shown_has_a_plot_of_each_kind() -> None:
    shown = show(KEPT)
    assert {"drain.svg", "wal.svg", "waves.svg"} == set(shown.pictures)
    assert "Medians of 2 rounds" in shown.facts[1]
    text = page.figures(shown.facts, shown.tables, {"benchmarks/drain.svg": "A drain"})
    assert "![A drain](benchmarks/drain.svg)" in text
    assert "limit 7" in text


def test_a_page_is_rewritten_between_its_markers() -> None:
    old = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    new = page.rewrite(old, "new")
    assert new == f"before\n{page.BEGIN}\n\nnew\n\n{page.END}\nafter\n"
    assert page.rewrite(new, "new") == new
    with pytest.raises(ValueError, match="the page has no"):
        page.rewrite("before", "new")


def test_our_page_has_the_markers() -> None:
    from .__main__ import PAGE

    page.rewrite(PAGE.read_text(), "anything")

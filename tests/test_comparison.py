"""The comparison says of us what is so: what it claims is shown somewhere, and nothing is denied that is here."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import awa_trio as awa

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "comparison.md"
OTHERS = ["awa-pg", "procrastinate", "pgqueuer", "chancy", "Oban", "River"]

#: What says that a feature is here, for each that is, or was, not.
HERE: dict[str, Callable[[], bool]] = {
    "Handlers of asyncio libraries": lambda: find_spec("awa_trio.aio") is not None,
    "… of SQLAlchemy, Django, asyncpg": lambda: find_spec("awa_trio.bridge") is not None,
    "Refuse or wait when a queue is too deep": lambda: hasattr(awa, "QueueFull"),
    "At once, over all workers": lambda: hasattr(awa, "QueueStatus"),
    "So many a second, over all workers": lambda: hasattr(awa, "Rate"),
    "Pause a queue everywhere": lambda: hasattr(awa, "QueueStatus"),
    "Periodic jobs, once over all workers": lambda: hasattr(awa.App, "cron"),
    "… in a time zone": lambda: hasattr(awa.App, "cron"),
    "… and what was missed while all were down": lambda: hasattr(awa.App, "cron"),
    "Why has this job not run?": lambda: hasattr(awa.Jobs, "explain"),
    "Web page": lambda: find_spec("awa_trio.web") is not None,
    "Health probes": lambda: find_spec("awa_trio.health") is not None,
    "Ways to break one's own handlers in tests": lambda: (
        find_spec("awa_trio.testing.chaos") is not None
    ),
}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.count("|") == 9]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] and set(row[0]) != {"-"}]


ROWS = rows()
OURS = {row[0]: row[1] for row in ROWS}


def test_every_table_has_all_seven() -> None:
    heads = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| | awa_trio |")
    ]
    assert heads == ["| | awa_trio | " + " | ".join(OTHERS) + " |"] * 6
    assert len(OURS) == len(ROWS) > 40


@pytest.mark.parametrize("feature", OURS)
def test_what_it_claims_of_us_is_shown_somewhere(feature: str) -> None:
    cell = OURS[feature]
    if cell in ("no", "not yet"):
        return
    [(_, target, anchor)] = re.findall(r"\[([^\]]+)\]\(([^)#]+)(#[^)]+)?\)", cell)
    shown = (PAGE.parent / target).resolve()
    assert shown.is_file()
    if anchor:
        titles = re.findall(r"^#+ (.*)$", shown.read_text(), re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert anchor.removeprefix("#") in slugs


@pytest.mark.parametrize("feature", HERE)
def test_what_it_denies_is_not_here(feature: str) -> None:
    said = OURS[feature] not in ("no", "not yet")
    assert said == HERE[feature](), f"{PAGE.name} is behind on: {feature}"


def test_not_yet_is_said_only_of_what_is_watched() -> None:
    assert {feature for feature, cell in OURS.items() if cell == "not yet"} <= set(HERE)


def test_the_others_have_the_words_of_the_legend() -> None:
    for feature, _, *cells in ROWS:
        if feature != "Handlers on":
            assert all(re.match(r"(yes|no|partly|paid|\?)(: .+)?$", cell) for cell in cells)
        assert len(cells) == len(OTHERS)

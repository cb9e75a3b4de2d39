"""TLC, on each model: its invariants hold, and each does not once a rule is broken."""

from __future__ import annotations

import pytest

from . import tlc
from .models import CASES, DEEP, Case


def checked(case: Case) -> tlc.Checked:
    try:
        tlc.java()
    except tlc.NoTLC as reason:
        pytest.skip(str(reason))
    # One thread, unless it takes minutes: the tests beside it want the other core.
    return case.check(workers=2 if case.deep else 1, seconds=600 if case.deep else 120)


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in DEEP)],
    ids=lambda case: case.id,
)
def test_it_says_what_is_expected(case: Case) -> None:
    done = checked(case)
    assert done.violated == case.violated, done.output
    if case.violated is None:
        assert done.code == tlc.OK, done.output
    else:
        assert done.code == tlc.SAFETY
        assert len(done.trace) > 1, "the beginning is no violation"
    readme = (tlc.MODELS / "README.md").read_text()
    if case.violated is None:
        assert done.distinct == case.states
        row = case.row(done)
        assert (f"| {case.model.module} {row}" if case.deep else row) in readme
    else:
        assert f"| {case.name} | `{case.violated}` is violated |" in readme


def test_every_rule_is_broken_once() -> None:
    """A constant that no case turns guards nothing that is known."""
    for model in {id(case.model): case.model for case in CASES}.values():
        broken = {name for c in CASES if c.model is model and c.violated for name in c.changes}
        assert {name for name, value in model.constants.items() if value == "TRUE"} <= broken


def test_every_invariant_is_violated_once() -> None:
    for model in {id(case.model): case.model for case in CASES}.values():
        violated = {case.violated for case in CASES if case.model is model}
        assert set(model.invariants) - {"TypeOK", "Recoverable"} <= violated


def test_what_is_explored_is_counted() -> None:
    assert all((c.states is None) == (c.violated is not None) for c in (*CASES, *DEEP))

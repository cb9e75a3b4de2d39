"""Everything happens once, on both engines; and at length, if one has the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from awa_trio._app.schema import Engine

from . import report, tracing
from .__main__ import chosen, main
from .bugs import BUGS
from .faults import FAULTS, Fault
from .run import Plan, run


def survives(plan: Plan, folder: Path) -> None:
    """Run it; say how to repeat it if anything is contradicted."""
    outcome = run(plan, folder)
    found = report.figures(outcome)
    told = "\n".join((report.command(outcome), *report.lines(found)))
    print(told)
    assert found["violations"] == {}, told
    assert {name: kind["survived"] for name, kind in found["faults"].items()} == {
        fault.name: plan.rounds for fault in plan.faults
    }, told
    # It was no run in which nothing happened.
    assert found["acknowledged"] > 10, told
    assert found["states"]["completed"] > found["acknowledged"], told


def possible() -> list[Fault]:
    return [fault for fault in FAULTS.values() if fault.impossible() is None]


@pytest.mark.parametrize(
    "engine", [Engine.CANONICAL, pytest.param(Engine.SEGMENTED, marks=pytest.mark.slow)]
)
def test_whatever_happens(engine: Engine, tmp_path: Path) -> None:
    """Each fault once, in an order that is this one's."""
    survives(Plan(46, engine, possible(), rate=1.5, most_connections=60), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("name", FAULTS)
def test_each_kind_many_times(name: str, engine: Engine, seed: int, tmp_path: Path) -> None:
    if (why := FAULTS[name].impossible()) is not None:
        pytest.skip(why)
    survives(Plan(seed, engine, [FAULTS[name]], rounds=5), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", Engine)
def test_everything_many_times(engine: Engine, tmp_path: Path) -> None:
    survives(Plan(47, engine, possible(), rounds=5, workers=4, producers=3), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", Engine)
def test_a_run_is_a_behaviour_of_the_model(engine: Engine, tmp_path: Path) -> None:
    if (why := tracing.impossible()) is not None:
        pytest.skip(why)
    survives(Plan(48, engine, possible(), rate=1.5, trace=True), tmp_path)


#: What brings each bug out, and whether it takes a replay to see it in so short a run.
BROUGHT_OUT = {
    "no guards": (["kill"] * 3, True),
    "eager rescue": (["kill"] * 3, True),
    "no follow-ups": (["kill"], False),
    "no keys": (["kill"], False),
    "no rescue": (["kill"] * 3, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("bug", BUGS)
def test_a_broken_product_is_found_out(bug: str, engine: Engine, tmp_path: Path) -> None:
    faults, trace = BROUGHT_OUT[bug]
    if trace and (why := tracing.impossible()) is not None:
        pytest.skip(why)
    strike = [FAULTS[name] for name in faults]
    outcome = run(Plan(51, engine, strike, rate=1.5, trace=trace, planted=bug), tmp_path)
    found = report.figures(outcome)
    print(report.command(outcome), *report.lines(found), sep="\n")
    assert found["violations"]


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no fault is named 'flood'; there are kill, zombie"):
        chosen("kill,flood")


def test_the_command_reports_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And replays it, where that is possible."""
    saved = tmp_path / "figures"
    arguments = "--seed 1 --engine canonical --rounds 2 --faults kill --workers 2 --rate 1"
    trace = ["--trace"] if tracing.impossible() is None else []
    assert main([*arguments.split(), "--save", str(saved), *trace]) == 0
    told = capsys.readouterr().out
    assert "seed 1, canonical" in told
    assert "all 9 invariants hold" in told
    assert not trace or "fit the model" in told
    assert '"survived": 2' in saved.read_text()

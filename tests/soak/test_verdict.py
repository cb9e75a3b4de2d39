"""The verdict: what is flat passes, and each kind of growth is found."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from .verdict import BOUNDS, Bound, Sample, judge, slope

#: About what an hour's soak sees.
LEVELS = {
    "memory": 50 * 2**20, "objects": 58_000, "tasks": 52, "fds": 23, "threads": 5,
    "connections": 9, "in_transaction": 0, "due": 2, "rows": 5_000, "size": 5 * 2**20,
    "dead": 5_000, "cpu_per_job": 0.002, "p50": 0.008, "p95": 0.02, "machine": 0.0008,
    "p50_relative": 10, "p95_relative": 25,
}  # fmt: skip


def samples(grow: Callable[[str, float], float] = lambda name, hours: 0.0) -> list[Sample]:
    """An hour of noise around each level, and on top of it what ``grow`` says."""
    dice = Random(5)
    made: list[Sample] = []
    for n in range(240):
        hours = n / 240
        sample: dict[str, float | None] = {"seconds": 3600 * hours}
        for name, level in LEVELS.items():
            noise = level * dice.uniform(-0.04, 0.04)
            # A busy machine, now and then.
            spike = (
                level * 5
                if name.startswith(("p50", "p95", "due")) and dice.random() < 0.05
                else 0
            )
            sample[name] = level + noise + spike + grow(name, hours)
        made.append(sample)
    return made


def grown(made: list[Sample]) -> list[str]:
    return [finding.bound.name for finding in judge(made) if finding.grows]


def test_there_is_a_level_for_each_bound() -> None:
    assert set(LEVELS) == {bound.name for bound in BOUNDS}


def test_noise_is_flat() -> None:
    assert grown(samples()) == []


def test_what_grows_to_its_size_in_the_warm_up_is_flat() -> None:
    def fills(name: str, hours: float) -> float:
        return -LEVELS[name] * 0.9 * max(0.0, 1 - hours / 0.15)

    assert grown(samples(fills)) == []


JUDGED = [bound for bound in BOUNDS if bound.judged]


@pytest.mark.parametrize("bound", JUDGED, ids=lambda bound: bound.name)
def test_a_leak_is_found(bound: Bound) -> None:
    """Twice what is allowed, in the hour: bytes of each job, or a descriptor every few minutes."""
    leak = 2 * max(bound.rise, bound.share * LEVELS[bound.name]) / 0.8

    def leaks(name: str, hours: float) -> float:
        return leak * hours if name == bound.name else 0.0

    assert grown(samples(leaks)) == [bound.name]


@pytest.mark.parametrize("bound", JUDGED, ids=lambda bound: bound.name)
def test_a_step_is_found(bound: Bound) -> None:
    """Such as a connection that each of a few reconnections leaves behind."""
    step = 2 * max(bound.rise, bound.share * LEVELS[bound.name]) + 1e-9

    def steps(name: str, hours: float) -> float:
        return step if name == bound.name and hours > 0.7 else 0.0

    assert grown(samples(steps)) == [bound.name]


def test_a_slope_is_that_of_most_pairs() -> None:
    line = [(float(n), 3.0 + 2.0 * n) for n in range(1000)]
    assert slope(line) == pytest.approx(2.0)
    line[500] = (500.0, 1e9)
    assert slope(line) == pytest.approx(2.0)


def test_a_busier_machine_is_no_growth() -> None:
    def busier(name: str, hours: float) -> float:
        return LEVELS[name] * 5 * hours if name in ("p50", "p95", "machine") else 0.0

    assert grown(samples(busier)) == []


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="run it longer"):
        judge(samples()[:7])


def test_what_could_not_be_seen_is_left_out() -> None:
    made = [
        {**sample, "p50_relative": None} if n % 2 else sample
        for n, sample in enumerate(samples())
    ]
    assert grown(made) == []

"""What a settlement writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from awa_trio._core.errors import FollowUpError, TerminalError
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.outcome import (
    Cut,
    Leave,
    Settlement,
    ToAvailable,
    ToCancelled,
    ToCompleted,
    ToFailed,
    ToRetryable,
    ToScheduled,
    ToWaiting,
)
from awa_trio._core.plan import FollowUpSpec, Outcome, Plan, Transition, plan
from awa_trio._core.report import MAX_REPORT_CHARS

S = JobState


@attrs.frozen
class Row:
    id: int = 7
    run_lease: int = 3
    state: JobState = S.RUNNING
    kind: str = "a"
    attempt: int = 3
    max_attempts: int = 25


def insert(name: object) -> PreparedInsert:
    if not isinstance(name, str):
        raise TypeError(f"cannot prepare {name!r}")
    return PreparedInsert(name, "q", b"{}")


def make(
    settlement: Settlement,
    *specs: FollowUpSpec,
    job: Row = Row(),
    args: Callable[[], object] = lambda: "args",
    backoff: Callable[[int], float] | None = None,
) -> Plan:
    def registered(outcome: Outcome) -> Sequence[FollowUpSpec]:
        return [spec for spec in specs if spec.outcome is outcome]

    made = plan(
        settlement,
        job,
        args=args,
        specs=registered,
        prepare=insert,
        fraction=0.0,
        backoff=backoff,
    )
    assert made is not None
    return made


def completed(function: Callable[..., object]) -> FollowUpSpec:
    return FollowUpSpec(Outcome.COMPLETED, function)


def exhausted(function: Callable[..., object]) -> FollowUpSpec:
    return FollowUpSpec(Outcome.EXHAUSTED, function)


STAGED = (insert("staged 1"), insert("staged 2"))


@pytest.mark.parametrize(
    ("settlement", "to", "changes"),
    [
        (ToCompleted(), S.COMPLETED, {}),
        (ToRetryable(60.0, None), S.RETRYABLE, {"seconds": 60.0}),
        (ToRetryable(None, "e"), S.RETRYABLE, {"seconds": 8.0, "error": "e"}),
        (ToScheduled(60.0), S.SCHEDULED, {"seconds": 60.0, "attempt": 2}),
        (ToAvailable(2), S.AVAILABLE, {"seconds": 0.0, "attempt": 2}),
        (ToCancelled("why"), S.CANCELLED, {"error": "cancelled: why"}),
        (ToWaiting("t"), S.WAITING_EXTERNAL, {"token": "t"}),
        (ToFailed("e"), S.FAILED, {"error": "e"}),
    ],
)
def test_a_settlement_is_one_guarded_move(
    settlement: Settlement, to: JobState, changes: dict[str, Any]
) -> None:
    expected = attrs.evolve(Transition(7, 3, S.RUNNING, to, 3), **changes)
    assert make(settlement).move == expected


def test_to_leave_is_to_write_nothing() -> None:
    assert (
        plan(
            Leave(Cut.LEASE_LOST),
            Row(),
            args=str,
            specs=lambda o: [],
            prepare=insert,
            fraction=0.0,
        )
        is None
    )


def test_registered_follow_ups_come_before_staged_ones() -> None:
    made = make(
        ToCompleted(STAGED),
        completed(lambda args, job: ["spec 1", "spec 2"]),
        completed(lambda args, job: "spec 3"),
        completed(lambda args, job: None),
        exhausted(lambda args, job, error: "not this"),
    )
    assert [i.kind for i in made.inserts] == [
        "spec 1",
        "spec 2",
        "spec 3",
        "staged 1",
        "staged 2",
    ]


def test_a_follow_up_function_gets_the_args_and_the_row() -> None:
    row = Row()
    seen: list[tuple[object, ...]] = []
    make(ToCompleted(), completed(lambda *facts: seen.append(facts)), job=row)
    make(ToFailed("boom"), exhausted(lambda *facts: seen.append(facts)), job=row)
    assert seen == [("args", row), ("args", row, "boom")]


def broken(*facts: object) -> object:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(completed(broken), id="raises"),
        pytest.param(completed(lambda args, job: 5), id="returns what cannot be enqueued"),
        pytest.param(completed(lambda args, job: ["fine", 5]), id="returns half of it"),
        pytest.param(completed(lambda: "no parameters"), id="takes nothing"),
    ],
)
def test_a_follow_up_that_cannot_be_made_fails_the_attempt_and_keeps_nothing(
    spec: FollowUpSpec,
) -> None:
    made = make(
        ToCompleted(STAGED),
        completed(lambda args, job: "earlier"),
        spec,
        exhausted(lambda args, job, error: "alarm"),
    )
    assert made.move.to_state is S.FAILED
    assert made.move.error is not None
    assert "registered follow-up" in made.move.error
    assert [i.kind for i in made.inserts] == ["alarm"]
    assert isinstance(made.settlement, ToFailed)
    assert isinstance(made.settlement.error, FollowUpError)


def test_a_raising_follow_up_of_a_failure_is_left_out_and_the_others_are_not() -> None:
    made = make(
        ToFailed(TerminalError("e")),
        exhausted(broken),
        exhausted(lambda args, job, error: "alarm"),
    )
    assert made.move.to_state is S.FAILED
    assert [i.kind for i in made.inserts] == ["alarm"]
    assert len(made.left_out) == 1
    assert isinstance(made.left_out[0].__cause__, ZeroDivisionError)


def test_arguments_that_cannot_be_decoded_leave_the_follow_up_of_the_failure_out() -> None:
    made = make(
        ToFailed("undecodable"),
        exhausted(lambda args, job, error: "alarm"),
        args=lambda: 1 // 0,
    )
    assert (made.move.to_state, made.inserts) == (S.FAILED, ())


@pytest.mark.parametrize(
    "settlement", [ToRetryable(1.0, None), ToScheduled(1.0), ToCancelled("c")]
)
def test_other_settlements_have_no_follow_ups_yet(settlement: Settlement) -> None:
    made = make(settlement, completed(lambda *a: "x"), exhausted(lambda *a: "y"))
    assert made.inserts == ()


def test_a_broken_backoff_function_does_not_keep_the_job_from_being_settled() -> None:
    made = make(ToRetryable(None, ValueError("why it failed")), backoff=lambda attempt: 1 / 0)
    assert made.move.seconds == 8.0
    assert made.move.error is not None
    assert "why it failed" in made.move.error
    assert "ZeroDivisionError" in made.move.error


def test_a_recorded_error_is_bounded() -> None:
    made = make(ToFailed(ValueError("x" * 10**6)))
    assert made.move.error is not None
    assert len(made.move.error) == MAX_REPORT_CHARS

"""What a settlement writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from awa_trio._core.errors import FollowUpError, TerminalError
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.outcome import (
    CancelRequested,
    Cut,
    Ended,
    Leave,
    Lost,
    Orphaned,
    Raised,
    Refused,
    Rescued,
    RetryRequested,
    Returned,
    Settlement,
    ToAvailable,
    ToCancelled,
    ToCompleted,
    ToFailed,
    ToRetryable,
    ToScheduled,
    ToWaiting,
)
from awa_trio._core.plan import (
    FollowUpSpec,
    IfBroken,
    Outcome,
    Plan,
    Transition,
    if_broken,
    outcome_of,
    plan,
    transition,
)
from awa_trio._core.report import MAX_REPORT_CHARS
from awa_trio._core.results import Completed

S = JobState
O = Outcome  # noqa: E741
DONE = Returned(Completed())


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
    ended: Ended = DONE,
    dead_letters: bool = False,
) -> Plan:
    def registered(outcome: Outcome) -> Sequence[FollowUpSpec]:
        return [spec for spec in specs if spec.outcome is outcome]

    made = plan(
        settlement,
        job,
        ended=ended,
        args=args,
        specs=registered,
        prepare=insert,
        fraction=0.0,
        backoff=backoff,
        dead_letters=dead_letters,
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
        (ToAvailable(2), S.AVAILABLE, {"attempt": 2}),
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


@pytest.mark.parametrize("state", list(S))
def test_a_job_that_had_started_keeps_its_place(state: JobState) -> None:
    made = transition(ToAvailable(0), Row(state=state), fraction=0.0)
    started = state in (S.RUNNING, S.WAITING_EXTERNAL)
    assert made.seconds == (None if started else 0.0)


def test_to_leave_is_to_write_nothing() -> None:
    assert (
        plan(
            Leave(Cut.LEASE_LOST),
            Row(),
            ended=DONE,
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


# ---- which outcome a settlement fires

RESCUED = Rescued(Lost.STALE_WORKER)
RAISED = Raised(ValueError("why"))


@pytest.mark.parametrize(
    ("ended", "settlement", "outcome"),
    [
        (DONE, ToCompleted(), O.COMPLETED),
        (DONE, ToRetryable(60.0, None), O.RETRIED),
        (RAISED, ToRetryable(None, "e"), O.RETRIED),
        (RESCUED, ToRetryable(None, "e"), O.RESCUED),
        (RAISED, ToFailed("e"), O.EXHAUSTED),
        (RESCUED, ToFailed("e"), O.EXHAUSTED),
        (Refused(ValueError()), ToFailed("e"), O.EXHAUSTED),
        (DONE, ToCancelled("c"), O.CANCELLED),
        (CancelRequested("c"), ToCancelled("c"), O.CANCELLED),
        (DONE, ToWaiting("t"), O.WAITING_FOR_CALLBACK),
        (DONE, ToScheduled(60.0), None),
        (Orphaned(), ToAvailable(0), None),
        (RetryRequested(), ToAvailable(0), None),
        (DONE, Leave(Cut.CANCELLED), None),
    ],
)
def test_a_settlement_fires_one_outcome_or_none(
    ended: Ended, settlement: Settlement, outcome: Outcome | None
) -> None:
    assert outcome_of(ended, settlement) is outcome


@pytest.mark.parametrize(
    ("ended", "settlement", "outcome", "added"),
    [
        (DONE, ToCompleted(), O.COMPLETED, ()),
        (RAISED, ToRetryable(None, "boom"), O.RETRIED, ("boom", 8.0)),
        (DONE, ToRetryable(60.0, None), O.RETRIED, ("", 60.0)),
        (RAISED, ToFailed("boom"), O.EXHAUSTED, ("boom",)),
        (DONE, ToCancelled("why"), O.CANCELLED, ("why",)),
        (DONE, ToWaiting("token"), O.WAITING_FOR_CALLBACK, ("token",)),
        (RESCUED, ToRetryable(None, "e"), O.RESCUED, ("stale_worker",)),
        (Rescued(Lost.DEADLINE), ToRetryable(None, "e"), O.RESCUED, ("deadline",)),
    ],
)
def test_each_outcome_adds_its_facts_and_no_other_is_called(
    ended: Ended, settlement: Settlement, outcome: Outcome, added: tuple[object, ...]
) -> None:
    called: list[tuple[Outcome, tuple[object, ...]]] = []

    def spec(of: Outcome) -> FollowUpSpec:
        return FollowUpSpec(of, lambda *facts: called.append((of, facts)))

    row = Row()
    make(settlement, *map(spec, Outcome), job=row, ended=ended)
    assert called == [(outcome, ("args", row, *added))]
    assert len(outcome.parameters) == 2 + len(added)


@pytest.mark.parametrize(
    ("ended", "outcome", "policy"),
    [
        (DONE, O.COMPLETED, IfBroken.FAIL),
        (RAISED, O.RETRIED, IfBroken.FAIL),
        (DONE, O.CANCELLED, IfBroken.FAIL),
        (DONE, O.WAITING_FOR_CALLBACK, IfBroken.FAIL),
        (RAISED, O.EXHAUSTED, IfBroken.LEAVE_OUT),
        (RESCUED, O.RESCUED, IfBroken.LEAVE_OUT),
        (RESCUED, O.EXHAUSTED, IfBroken.LEAVE_OUT),
        (CancelRequested("c"), O.CANCELLED, IfBroken.REFUSE),
        (CancelRequested("c"), O.EXHAUSTED, IfBroken.REFUSE),
    ],
)
def test_who_ended_it_decides_what_a_broken_follow_up_does(
    ended: Ended, outcome: Outcome, policy: IfBroken
) -> None:
    assert if_broken(ended, outcome) is policy


@pytest.mark.parametrize(
    ("ended", "settlement", "outcome"),
    [
        (RAISED, ToRetryable(None, ValueError("why")), O.RETRIED),
        (DONE, ToRetryable(60.0, None), O.RETRIED),
        (DONE, ToCancelled("why"), O.CANCELLED),
        (DONE, ToWaiting("token"), O.WAITING_FOR_CALLBACK),
    ],
)
def test_an_attempt_whose_follow_up_cannot_be_made_fails_with_the_follow_ups_of_that(
    ended: Ended, settlement: Settlement, outcome: Outcome
) -> None:
    made = make(
        settlement,
        FollowUpSpec(outcome, broken),
        FollowUpSpec(outcome, lambda *facts: "another of this outcome"),
        exhausted(lambda args, job, error: "alarm"),
        ended=ended,
        dead_letters=True,
    )
    assert [i.kind for i in made.inserts] == ["alarm"]
    assert (made.move.to_state, made.move.seconds) == (S.FAILED, None)
    assert made.move.error is not None
    assert "registered follow-up" in made.move.error
    assert ("why" in made.move.error) == (ended is RAISED)
    assert made.move.dead_letter == "follow_up_error"
    assert made.left_out == ()


def test_a_rescue_is_made_without_what_cannot_be_made() -> None:
    made = make(
        ToRetryable(None, "rescued"),
        FollowUpSpec(O.RESCUED, broken),
        FollowUpSpec(O.RESCUED, lambda args, job, reason: "told"),
        ended=RESCUED,
    )
    assert (made.move.to_state, [i.kind for i in made.inserts]) == (S.RETRYABLE, ["told"])
    assert len(made.left_out) == 1


def test_a_client_is_told() -> None:
    spec = FollowUpSpec(O.CANCELLED, broken)
    with pytest.raises(FollowUpError) as caught:
        make(ToCancelled("c"), spec, ended=CancelRequested("c"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.function == f"{broken.__module__}.broken"


def test_only_a_failure_is_a_dead_letter_and_only_where_they_are_kept() -> None:
    for settlement in (ToCompleted(), ToRetryable(1.0, "e"), ToCancelled("c"), ToWaiting("t")):
        assert make(settlement, dead_letters=True).move.dead_letter is None
    assert make(ToFailed("e"), dead_letters=True).move.dead_letter == "attempts_exhausted"
    assert make(ToFailed("e"), dead_letters=False).move.dead_letter is None


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

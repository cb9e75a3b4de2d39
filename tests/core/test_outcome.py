"""How an attempt ends decides what becomes of its job: ADR-046's table, as literals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.errors import (
    CallbackInvalid,
    StagingTooMany,
    TerminalError,
    UndecodableArgs,
)
from awa_trio._core.job import PreparedInsert
from awa_trio._core.outcome import (
    Abandoned,
    CancelRequested,
    Cut,
    DeadlineExceeded,
    Detached,
    Ended,
    Interrupted,
    Leave,
    Lost,
    Orphaned,
    Raised,
    Rescued,
    Resolution,
    Resolved,
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
    leaves,
    settle,
)
from awa_trio._core.results import Cancel, Completed, RetryAfter, Snooze, WaitForCallback
from awa_trio._core.staging import Sealed


@attrs.frozen
class J:
    attempt: int
    max_attempts: int


B = PreparedInsert("stage_b", "default", b'{"item_id": 7}')
POISON = StagingTooMany(16)
TERMINAL = TerminalError("no such item")
BUG = KeyError("item")
OTHER = ValueError("x")
FRESH = J(attempt=1, max_attempts=25)
LAST = J(attempt=25, max_attempts=25)
ONLY = J(attempt=1, max_attempts=1)


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("", errors)


@pytest.mark.parametrize(
    ("ended", "job", "expected"),
    [
        pytest.param(Returned(Completed()), FRESH, ToCompleted((B,)), id="completed"),
        pytest.param(Returned(RetryAfter(60)), FRESH, ToRetryable(60, None), id="retry after"),
        pytest.param(Returned(Snooze(60)), FRESH, ToScheduled(60), id="snooze"),
        pytest.param(
            Returned(Snooze(60)), LAST, ToScheduled(60), id="snooze on the last attempt"
        ),
        pytest.param(Returned(Cancel("gone")), FRESH, ToCancelled("gone"), id="cancel"),
        pytest.param(Returned(WaitForCallback("t")), FRESH, ToWaiting("t"), id="parked"),
        pytest.param(Raised(BUG), FRESH, ToRetryable(None, BUG), id="error"),
        pytest.param(Raised(BUG), LAST, ToFailed(BUG), id="error on the last attempt"),
        pytest.param(Raised(TERMINAL), FRESH, ToFailed(TERMINAL), id="terminal error"),
        pytest.param(
            Raised(RetryAfter(5)), FRESH, ToRetryable(5, None), id="raised retry after"
        ),
        pytest.param(Raised(Snooze(5)), FRESH, ToScheduled(5), id="raised snooze"),
        pytest.param(Raised(Cancel("x")), FRESH, ToCancelled("x"), id="raised cancel"),
        pytest.param(Raised(WaitForCallback("t")), FRESH, ToWaiting("t"), id="raised wait"),
        pytest.param(
            Rescued(Lost.STALE_WORKER),
            FRESH,
            ToRetryable(None, "rescued: the worker stopped beating and is presumed dead"),
            id="rescued",
        ),
        pytest.param(
            Rescued(Lost.DEADLINE),
            LAST,
            ToFailed("rescued: its deadline passed and its worker did not settle it"),
            id="rescued on the last attempt",
        ),
        pytest.param(
            Rescued(Lost.CALLBACK_TIMEOUT),
            FRESH,
            ToRetryable(None, "callback timed out"),
            id="callback timed out",
        ),
        pytest.param(
            Rescued(Lost.CALLBACK_TIMEOUT),
            LAST,
            ToFailed("callback timed out"),
            id="callback timed out on the last attempt",
        ),
        pytest.param(Detached("t"), ONLY, ToWaiting("t"), id="waits on without a handler"),
        pytest.param(
            Resolved(Resolution.RESUME),
            J(3, 25),
            ToAvailable(2),
            id="resumed without a handler",
        ),
        pytest.param(
            Resolved(Resolution.COMPLETE), FRESH, ToCompleted(), id="completed from outside"
        ),
        pytest.param(
            Resolved(Resolution.FAIL, "no"), FRESH, ToFailed("no"), id="failed from outside"
        ),
        pytest.param(
            Resolved(Resolution.RETRY), LAST, ToAvailable(0), id="retried from outside"
        ),
        pytest.param(Orphaned(), J(3, 25), ToAvailable(2), id="orphaned"),
        pytest.param(Abandoned(Cut.SHUTDOWN), J(3, 25), ToAvailable(2), id="shutdown"),
        pytest.param(Abandoned(Cut.LEASE_LOST), FRESH, Leave(Cut.LEASE_LOST), id="lease lost"),
        pytest.param(Abandoned(Cut.CANCELLED), FRESH, Leave(Cut.CANCELLED), id="admin cancel"),
        pytest.param(Abandoned(Cut.SUPERSEDED), FRESH, Leave(Cut.SUPERSEDED), id="superseded"),
        pytest.param(
            CancelRequested("why"), FRESH, ToCancelled("why"), id="cancelled by others"
        ),
        pytest.param(RetryRequested(), LAST, ToAvailable(0), id="retried by others"),
    ],
)
def test_an_ending_has_one_settlement(ended: Ended, job: J, expected: Settlement) -> None:
    assert settle(ended, Sealed((B,), callback="t"), job) == expected


@pytest.mark.parametrize("registered", [None, "another"])
def test_parking_takes_the_callback_that_the_attempt_registered(registered: str | None) -> None:
    for ended in (Returned(WaitForCallback("t")), Raised(WaitForCallback("t"))):
        settlement = settle(ended, Sealed((B,), callback=registered), FRESH)
        assert isinstance(settlement, ToFailed)
        assert isinstance(settlement.error, CallbackInvalid)
        assert "job.register_callback()" in str(settlement.error)


def test_retry_after_on_the_last_attempt_fails() -> None:
    settlement = settle(Returned(RetryAfter(60)), Sealed(), LAST)
    assert isinstance(settlement, ToFailed)
    assert "max_attempts_exhausted" in str(settlement.error)


def test_a_poisoned_completion_fails_with_the_staging_error() -> None:
    assert settle(Returned(Completed()), Sealed((B,), POISON), FRESH) == ToFailed(POISON)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (RetryAfter(9), ToRetryable(9, None)),
        (Snooze(9), ToScheduled(9)),
        (Cancel("x"), ToCancelled("x")),
    ],
)
def test_poison_acts_only_on_a_completion(result: RetryAfter, expected: Settlement) -> None:
    assert settle(Returned(result), Sealed((B,), POISON), FRESH) == expected
    assert settle(Raised(result), Sealed((B,), POISON), FRESH) == expected


def test_a_deadline_is_a_failed_attempt_that_says_so() -> None:
    settlement = settle(Abandoned(Cut.DEADLINE, after=30.0), Sealed((B,)), FRESH)
    assert isinstance(settlement, ToRetryable)
    assert isinstance(settlement.error, DeadlineExceeded)
    assert str(settlement.error) == "the deadline of 30 s passed"
    assert isinstance(settle(Abandoned(Cut.DEADLINE), Sealed(), LAST), ToFailed)


def test_a_deadline_keeps_what_the_cleanup_raised() -> None:
    settlement = settle(Abandoned(Cut.DEADLINE, BUG), Sealed(), FRESH)
    assert isinstance(settlement, ToRetryable)
    assert isinstance(settlement.error, DeadlineExceeded)
    assert settlement.error.cleanup is BUG


def test_a_shutdown_fails_a_job_that_may_only_be_tried_once() -> None:
    settlement = settle(Abandoned(Cut.SHUTDOWN), Sealed(), ONLY)
    assert isinstance(settlement, ToFailed)
    assert isinstance(settlement.error, Interrupted)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([BUG, TERMINAL], ToFailed),
        ([group(RetryAfter(1)), group(group(UndecodableArgs("x")))], ToFailed),
        ([RetryAfter(1), Cancel("c"), Snooze(9)], ToCancelled("c")),
        ([RetryAfter(1), RetryAfter(9), Snooze(5)], ToRetryable(9, None)),
        ([RetryAfter(1), group(Snooze(9)), RetryAfter(5)], ToScheduled(9)),
        ([RetryAfter(1)], ToRetryable(1, None)),
        ([RetryAfter(1), BUG], ToRetryable),
        ([Cancel("c"), BUG], ToRetryable),
        ([WaitForCallback("t")], ToRetryable),
        ([WaitForCallback("t"), RetryAfter(1)], ToRetryable),
        ([WaitForCallback("t"), Cancel("c")], ToRetryable),
        ([BUG, OTHER], ToRetryable),
    ],
)
def test_a_group_of_exceptions_has_one_meaning(
    errors: Sequence[BaseException], expected: Settlement | type
) -> None:
    error = group(*errors)
    settlement = settle(Raised(error), Sealed((B,)), FRESH)
    if isinstance(expected, type):
        assert isinstance(settlement, expected)
        assert getattr(settlement, "error", None) is error
    else:
        assert settlement == expected


def test_leaves_are_left_to_right() -> None:
    assert list(leaves(group(BUG, group(OTHER, group(TERMINAL)), POISON))) == [
        BUG,
        OTHER,
        TERMINAL,
        POISON,
    ]


ASKED: list[BaseException] = [RetryAfter(1), Snooze(1), Cancel("x"), WaitForCallback("t")]
RESULTS: list[Any] = [Completed(), *ASKED]
ERRORS: st.SearchStrategy[BaseException] = st.recursive(
    st.sampled_from([BUG, TERMINAL, KeyboardInterrupt(), *ASKED]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda e: group(*e)),
    max_leaves=6,
)
ENDS: st.SearchStrategy[Ended] = st.one_of(
    st.sampled_from(RESULTS).map(Returned),
    ERRORS.map(Raised),
    st.builds(Abandoned, st.sampled_from(Cut), st.none() | ERRORS),
    st.sampled_from(Lost).map(Rescued),
    st.just(Orphaned()),
    st.just(CancelRequested("x")),
    st.just(RetryRequested()),
)


@given(
    ended=ENDS,
    sealed=st.builds(
        Sealed,
        st.lists(st.just(B), max_size=16).map(tuple),
        st.sampled_from([None, POISON]),
    ),
    job=st.sampled_from([FRESH, LAST, ONLY]),
)
def test_only_a_clean_completion_keeps_follow_ups(ended: Ended, sealed: Sealed, job: J) -> None:
    settlement = settle(ended, sealed, job)
    clean = ended == Returned(Completed()) and sealed.poison is None
    assert isinstance(settlement, ToCompleted) == clean
    if isinstance(settlement, ToCompleted):
        assert settlement.follow_ups == sealed.follow_ups

"""Why a job is a dead letter."""

from __future__ import annotations

import pytest

from awa_trio._core.dead_letters import DeadLetterReason, dead_letter_reason
from awa_trio._core.errors import (
    CallbackInvalid,
    FollowUpError,
    StagingInvalid,
    StagingSealed,
    TerminalError,
    UndecodableArgs,
)
from awa_trio._core.outcome import (
    TIMED_OUT,
    Abandoned,
    Cut,
    DeadlineExceeded,
    Ended,
    Interrupted,
    Lost,
    Raised,
    Refused,
    Rescued,
    Resolution,
    Resolved,
    Returned,
)
from awa_trio._core.results import Completed, RetryAfter, WaitForCallback

R = DeadLetterReason


def raised(error: BaseException) -> tuple[Ended, BaseException]:
    return Raised(error), error


@pytest.mark.parametrize(
    ("ended", "error", "reason"),
    [
        (*raised(TerminalError("no")), R.TERMINAL_ERROR),
        (*raised(ExceptionGroup("", [ValueError(), TerminalError("no")])), R.TERMINAL_ERROR),
        (*raised(ValueError("no")), R.ATTEMPTS_EXHAUSTED),
        (Returned(RetryAfter(1)), "RetryAfter on the last attempt", R.ATTEMPTS_EXHAUSTED),
        (Abandoned(Cut.DEADLINE), DeadlineExceeded("it passed", None), R.ATTEMPTS_EXHAUSTED),
        (Abandoned(Cut.SHUTDOWN), Interrupted("it stopped", None), R.INTERRUPTED),
        (Returned(Completed()), StagingInvalid("args"), R.POISONED),
        (*raised(StagingSealed()), R.POISONED),
        (*raised(UndecodableArgs("args")), R.UNDECODABLE),
        (Returned(Completed()), FollowUpError("f"), R.FOLLOW_UP_ERROR),
        (
            Raised(ValueError()),
            ExceptionGroup("", [ValueError(), FollowUpError("f")]),
            R.FOLLOW_UP_ERROR,
        ),
        (Rescued(Lost.STALE_WORKER), "rescued", R.RESCUED),
        (Rescued(Lost.DEADLINE), "rescued", R.RESCUED),
        (Rescued(Lost.CALLBACK_TIMEOUT), TIMED_OUT, R.CALLBACK_TIMEOUT),
        (Resolved(Resolution.FAIL, "no"), "no", R.CALLBACK_FAILED),
        (Returned(WaitForCallback("t")), CallbackInvalid("no"), R.CALLBACK_INVALID),
        (*raised(CallbackInvalid("caught by nobody")), R.CALLBACK_INVALID),
        (Refused(ValueError()), ValueError(), R.REFUSED),
        (Refused(ValueError()), TerminalError(), R.REFUSED),
    ],
)
def test_a_failure_has_one_word(
    ended: Ended, error: BaseException | str, reason: DeadLetterReason
) -> None:
    assert dead_letter_reason(ended, error) is reason


def test_the_words_are_stable() -> None:
    """They are in databases and dashboards: adding one is fine, changing one is not."""
    assert {
        "terminal_error", "attempts_exhausted", "rescued", "callback_timeout", "poisoned",
        "undecodable", "follow_up_error", "interrupted", "refused",
    } <= {reason.value for reason in R}  # fmt: skip

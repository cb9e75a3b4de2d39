"""Why a job has not run, from facts; what stores read is in `tests.test_inspecting`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from awa_trio._core.explaining import Facts, Reason, explain
from awa_trio._core.instants import count
from awa_trio._core.job import JobDetails, JobState

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def job(state: JobState = JobState.AVAILABLE, **changes: Any) -> JobDetails:
    facts: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(JobDetails))
    facts |= {"id": 7, "kind": "k", "queue": "q", "priority": 2, "attempt": 1}
    facts |= {
        "max_attempts": 3,
        "run_lease": 1,
        "raw_args": b"{}",
        "errors": [],
        "state": state,
    }
    facts |= {"raw_created_at": count(NOW - 2 * MINUTE), "raw_run_at": count(NOW - MINUTE)}
    if state.terminal:
        facts["finalized_at"] = NOW
    return JobDetails(**facts | changes)


def reasons(subject: JobDetails, **facts: Any) -> list[Reason]:
    told = {"alive": 1, "serving": 1, "knowing": 1} | facts
    found = explain(Facts(subject, NOW, **told))
    assert found
    for one in found:
        assert one.text
        assert one.advice
        assert not one.text.endswith(".")
    return [one.reason for one in found]


RUNNING = job(JobState.RUNNING, worker_id=3, attempted_at=NOW - MINUTE)
WAITING = job(JobState.WAITING_EXTERNAL, callback_token="t", callback_until=NOW + MINUTE)
ANSWERED = job(JobState.WAITING_EXTERNAL, callback_token="t")
BEAT = {"worker": "host:1", "silent": 1.0, "lease": 30.0, "fenced": False}
MASK_OF_RUNNING: dict[str, Any] = {
    "unique_key": b"0" * 16,
    "unique_states": JobState.RUNNING.bit,
}


@pytest.mark.parametrize(
    ("subject", "facts", "expected"),
    [
        (job(), {}, [Reason.ABOUT_TO_RUN]),
        (job(), {"ahead": 3}, [Reason.BEHIND_OTHERS]),
        (job(), {"serving": 0, "knowing": 0}, [Reason.NO_WORKER]),
        (job(), {"alive": 0, "serving": 0, "knowing": 0}, [Reason.NO_WORKER]),
        (job(), {"knowing": 0, "ahead": 1}, [Reason.KIND_UNKNOWN, Reason.BEHIND_OTHERS]),
        (job(ordering_key="a"), {"head": 7}, [Reason.ABOUT_TO_RUN]),
        (job(ordering_key="a"), {"head": 6}, [Reason.NOT_THE_HEAD]),
        (job(ordering_key="a"), {"head": 7, "taken_by": 5}, [Reason.ORDERING_KEY_TAKEN]),
        # Its own key, which it has, is in nobody's way.
        (RUNNING, BEAT | {"taken_by": 7, "head": 8}, [Reason.RUNNING]),
        (RUNNING, BEAT | {"silent": 31.0}, [Reason.WORKER_LOST, Reason.RUNNING]),
        (RUNNING, BEAT | {"fenced": True}, [Reason.WORKER_LOST, Reason.RUNNING]),
        (RUNNING, {"alive": 0}, [Reason.WORKER_LOST, Reason.RUNNING]),
        (WAITING, {}, [Reason.WAITS_FOR_CALLBACK]),
        (ANSWERED, {}, [Reason.WAITS_FOR_CALLBACK]),
        (job(raw_run_at=count(NOW + MINUTE)), {"ahead": 3}, [Reason.NOT_DUE]),
        (
            job(JobState.RETRYABLE, raw_run_at=count(NOW + MINUTE)),
            {"knowing": 0},
            [Reason.RETRIES_LATER, Reason.KIND_UNKNOWN],
        ),
        (job(**MASK_OF_RUNNING), {"holder": 4}, [Reason.UNIQUE_KEY_HELD]),
        (job(**MASK_OF_RUNNING), {}, [Reason.ABOUT_TO_RUN]),
        *((job(state), {"alive": 0, "ahead": 9}, [Reason.SETTLED]) for state in JobState if state.terminal),
    ],
)  # fmt: skip
def test_the_foremost_reason_comes_first(
    subject: JobDetails, facts: dict[str, Any], expected: list[Reason]
) -> None:
    assert reasons(subject, **facts) == expected


def test_where_counting_ended_is_said() -> None:
    [found] = explain(Facts(job(), NOW, 1, 1, 1, ahead=50, most=50))
    assert found.text.startswith("at least 50 others")


def test_a_retry_that_would_be_refused_is_not_advised() -> None:
    held = job(JobState.FAILED, unique_key=b"0" * 16, unique_states=31)
    [found] = explain(Facts(held, NOW, 1, 1, 1, holder=9))
    assert found.job_id == 9
    assert "jobs retry" not in found.advice

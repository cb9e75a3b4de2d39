"""What may be waited for, what may be answered, and who is told what."""

from __future__ import annotations

import math
from typing import Any

import pytest

import awa_trio as awa
from awa_trio._core.callbacks import (
    MAX_PAYLOAD_BYTES,
    Registered,
    answer_of,
    check_timeout,
    encode_payload,
    finds,
    goes_to_handler,
    guard,
    read_answer,
)
from awa_trio._core.job import JobDetails, JobState
from awa_trio._core.outcome import TIMED_OUT, Resolution
from awa_trio._core.plan import Plan, Transition
from awa_trio._store.memory.rows import EPOCH
from awa_trio._store.memory.store import MemoryStore

S = JobState


@pytest.mark.parametrize("seconds", [1, 1.5, 3600, 365 * 86_400])
def test_a_timeout_is_a_second_to_a_year(seconds: float) -> None:
    assert check_timeout(seconds) == seconds


@pytest.mark.parametrize(
    "seconds",
    [
        *(0, 0.5, -1, math.inf, -math.inf, math.nan, 400 * 86_400, None, "60", True),
        *(pytest.param(10**400, id="huge"), pytest.param(-(10**5000), id="huge negative")),
    ],
)
def test_a_callback_never_waits_for_ever_nor_not_at_all(seconds: object) -> None:
    with pytest.raises(
        awa.CallbackInvalid,
        match=r"^timeout: give (1 to 31,557,600 seconds|seconds, as a number), not",
    ):
        check_timeout(seconds)


@pytest.mark.parametrize(
    "payload", [None, True, 0, -1.5, "", 'é\n"', [], [[None]], {}, {"a": {"b": [1, "x"]}}]
)
def test_a_payload_is_any_json_value_and_comes_back(payload: object) -> None:
    raw = answer_of('a "token"', encode_payload(payload, awa.Codec()))
    assert read_answer(raw) == awa.CallbackAnswer('a "token"', payload)


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        (math.nan, "payload: NaN"),
        ({"a": [1, math.inf]}, r"payload\.a\[1\]: infinity"),
        ({"secret": (1,)}, r"payload\.secret: tuple"),
        ({1: 2}, "payload.*str keys"),
        ("\0", "payload: U\\+0000"),
        (2**64, "payload: an integer"),
        (object(), "payload: object"),
    ],
)
def test_a_payload_that_would_not_come_back_is_refused(payload: object, where: str) -> None:
    with pytest.raises(awa.InvalidRequest, match=where):
        encode_payload(payload, awa.Codec())


def test_a_payload_of_64_KiB_is_taken_and_one_byte_more_is_not() -> None:
    fits = "é" * ((MAX_PAYLOAD_BYTES - 2) // 2)
    assert encode_payload(fits, awa.Codec())
    with pytest.raises(awa.InvalidRequest, match="65,536 bytes"):
        encode_payload(fits + "x", awa.Codec())


def test_neither_token_nor_payload_is_in_what_is_printed() -> None:
    answer = awa.CallbackAnswer("canary", {"canary": 1})
    assert "canary" not in repr(answer) + str(answer)
    assert "canary" not in str(awa.WaitForCallback("canary"))


def test_an_attempt_waits_once_for_its_latest_callback() -> None:
    mine = Registered()
    with pytest.raises(awa.CallbackInvalid, match="latest"):
        mine.begin("a")
    with mine.registering():
        with pytest.raises(awa.CallbackInvalid, match="registers"):
            mine.begin("a")
        with pytest.raises(awa.CallbackInvalid, match="registers"), mine.registering():
            pass
        mine.token = "a"
    with pytest.raises(awa.CallbackInvalid, match="latest"):
        mine.begin("b")
    mine.begin("a")
    with pytest.raises(awa.CallbackInvalid, match="one at a time"):
        mine.begin("a")
    with pytest.raises(awa.CallbackInvalid, match="would replace"), mine.registering():
        pass
    mine.end(answered=False)
    mine.begin("a")
    mine.end(answered=True)
    with pytest.raises(awa.CallbackInvalid, match="once"):
        mine.begin("a")


async def a_job(**changes: Any) -> JobDetails:
    from awa_trio._core.job import PreparedInsert

    store = MemoryStore(lambda: 0.0)
    [made] = await store.enqueue([PreparedInsert("k", "q", b"{}")])
    [job] = await store.get([made.id])
    for name, value in ({"callback_token": "t", "callback_until": EPOCH} | changes).items():
        setattr(job, name, value)
    return job


async def test_only_an_unanswered_callback_is_found() -> None:
    assert finds(await a_job()).id == 1
    for nobody in (None, await a_job(callback_token=None, callback_until=None)):
        with pytest.raises(awa.CallbackNotFound):
            finds(nobody)
    with pytest.raises(awa.CallbackAlreadyResolved) as caught:
        finds(await a_job(callback_until=None))
    assert caught.value.job_id == 1
    failed = awa.JobError(TIMED_OUT, 1, EPOCH, True)
    with pytest.raises(awa.CallbackNotFound):
        finds(await a_job(callback_until=None, state=S.FAILED, errors=[failed]))


@pytest.mark.parametrize("how", Resolution)
@pytest.mark.parametrize("state", [S.RUNNING, S.WAITING_EXTERNAL])
@pytest.mark.parametrize("worker", [7, None])
async def test_only_a_resume_goes_to_the_handler_and_only_if_there_may_be_one(
    how: Resolution, state: JobState, worker: int | None
) -> None:
    job = await a_job(state=state, worker_id=worker)
    if how is Resolution.RETRY and state is S.RUNNING:
        with pytest.raises(awa.InvalidTransition, match="once it waits"):
            goes_to_handler(how, job)
        return
    assert goes_to_handler(how, job) == (how is Resolution.RESUME and worker is not None)


def test_a_guarded_plan_applies_only_to_its_callback() -> None:
    plan = Plan(Transition(1, 1, S.WAITING_EXTERNAL, S.COMPLETED, 1))
    move = guard(plan, "t", answer=b"1", output=b"2").move
    assert (move.token, move.answer, move.output) == ("t", b"1", b"2")

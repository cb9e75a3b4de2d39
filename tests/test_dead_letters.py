"""Dead letters, and follow-ups of what a client does, as a program meets them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from attrs import frozen

import awa_trio as awa
from awa_trio._app import dead_letters
from awa_trio.testing import drain

from .engines import ENGINES, client_on

S = awa.JobState
app = awa.App()
app.queue("plain", dead_letters=False)


@frozen
class Charge:
    n: int


@frozen
class Refund:
    n: int
    why: str


@app.task(max_attempts=1)
async def charge(job: awa.Job[Charge]) -> None:
    if job.args.n < 0:
        raise awa.TerminalError("negative")
    raise ValueError("no")


@app.task(queue="refunds")
async def refund(job: awa.Job[Refund]) -> None: ...


@app.on_cancelled(Charge)
def refund_it(args: Charge, job: awa.JobRow, reason: str) -> Refund:
    return Refund(args.n, reason)


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


async def bury(client: awa.Client, *ns: int, **options: Any) -> list[int]:
    """Charges that fail."""
    answers = [await client.enqueue(Charge(n), **options) for n in ns]
    await drain(app, client)
    return [answer.id for answer in answers]


# ---- dead letters


async def test_they_are_the_jobs_that_failed_newest_first(client: awa.Client) -> None:
    ids = await bury(client, -1, 1, -2)
    ids += await bury(client, 2, queue="plain")
    dlq = client.dlq
    assert [j.id for j in await dlq.list()] == [ids[2], ids[1], ids[0]]
    assert [j.id for j in await dlq.list(reason="attempts_exhausted")] == [ids[1]]
    terminal = awa.DeadLetterReason.TERMINAL_ERROR
    assert [j.id for j in await dlq.list(reason=terminal, limit=1)] == [ids[2]]
    assert [j.id for j in await dlq.list(before_id=ids[2], kind="charge")] == ids[1::-1]
    assert await dlq.list(queue="refunds") == []
    with pytest.raises(
        ValueError, match="there is no reason 'boredom'; there are terminal_error,"
    ):
        await dlq.list(reason="boredom")
    with pytest.raises(ValueError, match="limit: give a whole number from 1"):
        await dlq.list(limit=0)

    dead = await dlq.get(ids[0])
    assert (dead.state, dead.dead_letter) == (S.FAILED, terminal)
    assert (dead.args_json, dead.attempt, len(dead.errors)) == ({"n": -1}, 1, 1)
    assert (await client.jobs.get(ids[3])).state is S.FAILED


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "\0"}, ValueError, r"kind: U\+0000"),
        ({"queue": 5}, TypeError, "queue: give a str, not int"),
        ({"reason": 5}, ValueError, "reason: there is no reason 5; there are terminal_error"),
        ({"before_id": "5"}, TypeError, "before_id: give a whole number from 1 on, not str"),
        ({"limit": "x"}, TypeError, "limit: give a whole number from 1 to .*, not str"),
        ({"limit": 0}, ValueError, "limit: give a whole number from 1"),
    ],
)
async def test_a_list_of_what_cannot_be_is_refused(
    client: awa.Client, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await client.dlq.list(**options)


@pytest.mark.parametrize("method", ["get", "retry", "purge"])
async def test_an_id_that_cannot_be_one_is_refused(client: awa.Client, method: str) -> None:
    call = getattr(client.dlq, method)
    for job_id in ("5", None, True, 5.0):
        with pytest.raises(TypeError, match="job_id: give an int, not"):
            await call(job_id)
    for job_id in (0, -1, 2**63):
        with pytest.raises(awa.JobNotFound):
            await call(job_id)


@pytest.mark.parametrize("method", ["retry_many", "purge_many"])
async def test_everything_is_said_by_true_and_nothing_else(
    client: awa.Client, method: str
) -> None:
    [job_id] = await bury(client, -1)
    for slip in ("no", 1, None):
        with pytest.raises(TypeError, match="everything: give a bool, not"):
            await getattr(client.dlq, method)(everything=slip)
    with pytest.raises(TypeError, match="kind: give a str, not int"):
        await getattr(client.dlq, method)(kind=5)
    assert [job.id for job in await client.dlq.list()] == [job_id]


Call = Callable[[awa.Client, int], Any]


@pytest.mark.parametrize(
    "call",
    [
        lambda client, job_id: client.dlq.get(job_id),
        lambda client, job_id: client.dlq.retry(job_id),
        lambda client, job_id: client.dlq.purge(job_id),
    ],
    ids=["get", "retry", "purge"],
)
async def test_what_is_no_dead_letter_is_left_alone(client: awa.Client, call: Call) -> None:
    [failed] = await bury(client, 1, queue="plain")
    with pytest.raises(awa.InvalidTransition, match=f"job {failed} is failed, and no dead"):
        await call(client, failed)
    with pytest.raises(awa.JobNotFound, match="no job 999"):
        await call(client, 999)
    assert (await client.jobs.get(failed)).state is S.FAILED


async def test_one_is_retried_elsewhere_at_another_time(client: awa.Client) -> None:
    [dead] = await bury(client, 1)
    at = datetime(2999, 1, 1, tzinfo=UTC)
    await client.dlq.retry(dead, run_at=at, priority=4, queue="later")
    job = await client.jobs.get(dead)
    assert (job.state, job.run_at, job.priority, job.queue) == (S.SCHEDULED, at, 4, "later")
    assert (job.attempt, job.run_lease, len(job.errors)) == (0, 1, 1)
    with pytest.raises(awa.InvalidTransition, match="is scheduled, and no dead letter"):
        await client.dlq.retry(dead)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run_at": datetime(2999, 1, 1)}, "run_at: give a timezone-aware"),  # noqa: DTZ001
        ({"priority": 5}, "priority: give a whole number from 1 to 4"),
        ({"queue": ""}, "queue: give 1 to 200 characters"),
        ({"queue": "\0"}, "queue"),
    ],
)
async def test_what_a_request_may_not_say_a_retry_may_not_either(
    client: awa.Client, changes: dict[str, Any], problem: str
) -> None:
    [dead] = await bury(client, 1)
    with pytest.raises(awa.InvalidRequest, match=problem):
        await client.dlq.retry(dead, **changes)
    if "queue" in changes:
        changes = {"to_queue": changes["queue"]}
    with pytest.raises(awa.InvalidRequest, match=problem):
        await client.dlq.retry_many(everything=True, **changes)
    assert (await client.dlq.get(dead)).state is S.FAILED


async def test_a_retry_that_needs_a_key_another_job_holds_is_refused(
    client: awa.Client,
) -> None:
    [dead] = await bury(client, 1, unique_opts={})
    holder = await client.enqueue(Charge(1), unique_opts={})
    with pytest.raises(awa.UniqueConflict) as caught:
        await client.dlq.retry(dead)
    assert (caught.value.job_id, caught.value.holder_id) == (dead, holder.id)
    assert await client.dlq.retry_many(everything=True) == 0
    assert (await client.dlq.get(dead)).dead_letter == "attempts_exhausted"
    assert await client.jobs.cancel(holder.id)
    await client.dlq.retry(dead)
    assert (await client.jobs.get(dead)).state is S.AVAILABLE


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
async def test_many_are_retried_in_transactions_of_their_own(
    client: awa.Client, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", chunk)
    ids = await bury(client, 1, -1, 2, -2, 3)
    keyed = await bury(client, 4, unique_opts={})
    await client.enqueue(Charge(4), unique_opts={})
    assert await client.dlq.retry_many(reason="attempts_exhausted") == 3
    assert [j.id for j in await client.dlq.list()] == [*keyed, ids[3], ids[1]]
    assert await client.dlq.retry_many(everything=True, to_queue="later", priority=1) == 2
    found = await client.jobs.list(queue="later")
    assert [(j.id, j.priority, j.state) for j in found] == [
        (ids[3], 1, S.AVAILABLE),
        (ids[1], 1, S.AVAILABLE),
    ]
    assert [j.id for j in await client.dlq.list()] == keyed


@pytest.mark.parametrize("chunk", [2, 3, 1000])
async def test_they_are_purged(
    client: awa.Client, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", chunk)
    ids = await bury(client, 1, 2, 3, -1, -2, -3)
    await client.dlq.purge(ids[0])
    with pytest.raises(awa.JobNotFound):
        await client.jobs.get(ids[0])
    assert await client.dlq.purge_many(reason="terminal_error") == 3
    assert await client.dlq.purge_many(kind="refund") == 0
    assert [j.id for j in await client.dlq.list()] == [ids[2], ids[1]]
    assert await client.dlq.purge_many(everything=True) == 2
    assert await client.dlq.list() == []


@pytest.mark.parametrize("method", ["retry_many", "purge_many"])
async def test_many_need_a_filter_or_an_explicit_everything(
    client: awa.Client, method: str
) -> None:
    [dead] = await bury(client, 1)
    many = getattr(client.dlq, method)
    with pytest.raises(ValueError, match=f"{method}: give queue=, kind= or reason=; or every"):
        await many()
    with pytest.raises(ValueError, match="not both"):
        await many(kind="charge", everything=True)
    assert (await client.dlq.get(dead)).state is S.FAILED


async def test_jobs_retry_takes_a_dead_letter_out_too(client: awa.Client) -> None:
    [dead] = await bury(client, 1)
    await client.jobs.retry(dead)
    assert (await client.jobs.get(dead)).dead_letter is None
    assert await client.dlq.list() == []


def test_they_are_there_on_asyncio(migrated: str) -> None:
    async def main() -> None:
        async with awa.connect(migrated, app=app) as client:
            assert await client.dlq.list() == []
            assert await client.dlq.retry_many(everything=True) == 0
            job = await client.enqueue(Charge(1))
            assert await client.jobs.cancel(job.id)
            assert [j.kind for j in await client.jobs.list()] == ["refund", "charge"]

    anyio.run(main, backend="asyncio")


# ---- what follows a client's cancel


async def test_cancelling_enqueues_what_is_registered(client: awa.Client) -> None:
    job = await client.enqueue(Charge(5))
    assert await client.jobs.cancel(job.id, reason="changed my mind")
    [refund] = await client.jobs.list(kind="refund")
    assert refund.args_json == {"n": 5, "why": "changed my mind"}
    assert refund.triggered_by == job.id
    assert not await client.jobs.cancel(job.id)
    assert len(await client.jobs.list(kind="refund")) == 1


async def test_who_cannot_know_the_follow_ups_is_told_so(client: awa.Client) -> None:
    """No app, or one that only declares the kind, or does not know it."""
    job = await client.enqueue(Charge(5))
    declaring = awa.App()
    declaring.declare(Charge)
    for stranger, why in (
        (None, "because this client has no app"),
        (declaring, "because the app of this client does not run it"),
        (awa.App(), "because the app of this client does not run it"),
    ):
        other = awa.Client(client._backend, stranger)
        with pytest.raises(awa.FollowUpsUnknown, match=why) as caught:
            await other.jobs.cancel(job.id)
        assert caught.value.kind == "charge"
        assert "without_follow_ups=True" in str(caught.value)
        assert (await client.jobs.get(job.id)).state is S.AVAILABLE
    assert await awa.Client(client._backend, None).jobs.cancel(job.id, without_follow_ups=True)
    assert await client.jobs.list(kind="refund") == []
    # It has ended: there is nothing to leave out.
    assert not await awa.Client(client._backend, None).jobs.cancel(job.id)


async def test_an_app_that_registers_what_follows_need_not_run_it(client: awa.Client) -> None:
    job = await client.enqueue(Charge(5))
    following = awa.App()
    following.declare(Charge)
    following.declare(Refund)
    following.on_cancelled(Charge)(refund_it)
    assert await awa.Client(client._backend, following).jobs.cancel(job.id)
    assert len(await client.jobs.list(kind="refund")) == 1


HUGE = 10**5000

#: What the driver or PostgreSQL would refuse in words of their own, if it came to them.
NO_LABELS: list[Any] = [5, True, b"x", ["x"], "a\0b", "\ud800"]


@pytest.mark.parametrize("value", NO_LABELS, ids=repr)
@pytest.mark.parametrize("parameter", ["queue", "kind", "reason"])
async def test_a_filter_that_is_no_text_is_refused_by_name(
    client: awa.Client, parameter: str, value: Any
) -> None:
    for call in (client.dlq.list, client.dlq.retry_many, client.dlq.purge_many):
        with pytest.raises((TypeError, ValueError), match=f"^{parameter}: ") as caught:
            await call(**{parameter: value})
        assert type(caught.value) in (TypeError, ValueError)


async def test_a_reason_that_is_none_is_refused_with_those_that_are(client: awa.Client) -> None:
    with pytest.raises(ValueError, match="there is no reason 'boredom'; there are terminal_e"):
        await client.dlq.purge_many(reason="boredom")


@pytest.mark.parametrize("parameter", ["limit", "before_id"])
@pytest.mark.parametrize(
    "value",
    [0, -1, True, 1.5, "5", 2**63, HUGE],
    ids=lambda v: str(v)[:9] if v is not HUGE else "huge",
)
async def test_a_page_that_is_none_is_refused_by_name(
    client: awa.Client, parameter: str, value: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{parameter}: give a"):
        await client.dlq.list(**{parameter: value})


@pytest.mark.parametrize("call", ["get", "retry", "purge"])
async def test_an_id_that_no_job_can_have(client: awa.Client, call: str) -> None:
    for never in (0, -1, 2**63, HUGE):
        with pytest.raises(awa.JobNotFound):
            await getattr(client.dlq, call)(never)
    for other in (None, True, 1.5, "5"):
        with pytest.raises(TypeError, match=r"^job_id: give an int"):
            await getattr(client.dlq, call)(other)


@pytest.mark.parametrize("everything", ["no", "False", 1, None, [0]], ids=repr)
async def test_everything_is_said_by_true_and_by_nothing_else(
    client: awa.Client, everything: Any
) -> None:
    [job_id] = await bury(client, 1)
    for many in (client.dlq.purge_many, client.dlq.retry_many):
        with pytest.raises(TypeError, match=r"^everything: give a bool"):
            await many(everything=everything)
    assert (await client.dlq.get(job_id)).id == job_id


async def test_leaving_follow_ups_out_is_said_by_true_and_by_nothing_else(
    client: awa.Client,
) -> None:
    job_id = (await client.enqueue(Charge(1))).id
    with pytest.raises(TypeError, match=r"^without_follow_ups: give a bool"):
        await client.jobs.cancel(job_id, without_follow_ups="no")  # type: ignore[arg-type]
    assert (await client.jobs.get(job_id)).state is S.AVAILABLE

"""Assertions find what was meant, and show what was there instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import frozen

import awa_trio as awa
from awa_trio.testing import (
    HandlerJob,
    assert_enqueued,
    assert_not_enqueued,
    assert_not_staged,
    assert_staged,
    drain,
    work_one,
)

from ..engines import ENGINES, client_on

app = awa.App()
app.queue("fast")
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@frozen
class Crawl:
    pages: int


@frozen
class Index:
    page: int
    words: dict[str, int]


@app.task
async def crawl(job: awa.Job[Crawl]) -> None:
    for page in range(job.args.pages):
        job.enqueue_on_completion(
            Index(page, {"trio": page, "awa": 1}),
            queue="fast",
            priority=1,
            tags=["a", "b"],
            metadata={"from": {"site": "x", "page": page}},
            ordering_key="x",
            limit_key="customer 7",
            unique_opts={},
            run_at=LATER if page else None,
        )


@app.task(kind="indexing", queue="slow")
async def index(job: awa.Job[Index]) -> None: ...


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


async def crawled(pages: int) -> HandlerJob[Crawl]:
    job = HandlerJob(Crawl(pages), app=app)
    await crawl(job)
    return job


#: What of page 1 is like.
LIKE: list[dict[str, Any]] = [
    {},
    {"args": {"page": 1}},
    {"args": {"words": {"trio": 1}}},
    {"queue": "fast", "priority": 1, "max_attempts": 25, "args": {"page": 1}},
    {"tags": ["b"]},
    {"metadata": {"from": {"page": 1}}},
    {"ordering_key": "x", "limit_key": "customer 7", "unique": True, "deadline": None},
    {"run_at": LATER},
]
UNLIKE: list[tuple[dict[str, Any], str]] = [
    ({"args": {"page": 2}}, "args.page 1, not 2"),
    ({"args": {"page": True}}, "args.page 1, not true"),
    ({"args": {"words": {"go": 1}}}, "args.words has no 'go'"),
    ({"queue": "slow"}, 'queue "fast", not "slow"'),
    ({"tags": ["c"]}, "tags ['a', 'b'] lack 'c'"),
    ({"metadata": {"from": {"site": "y"}}}, 'metadata.from.site "x", not "y"'),
    ({"unique": False}, "unique true, not false"),
    ({"run_at": datetime(2101, 1, 1, tzinfo=UTC)}, "run_at datetime.datetime(2100, "),
    ({"deadline": 5}, "deadline null, not 5"),
]


@pytest.mark.parametrize("like", LIKE, ids=str)
async def test_what_a_handler_staged_is_found(like: dict[str, Any]) -> None:
    job = await crawled(2)
    assert Index(1, {"trio": 1, "awa": 1}) in [
        s.args for s in assert_staged(job, Index, **like)
    ]


@pytest.mark.parametrize(("unlike", "said"), UNLIKE, ids=str)
async def test_a_failure_says_what_was_wrong_about_each(
    unlike: dict[str, Any], said: str
) -> None:
    job = await crawled(2)
    with pytest.raises(
        AssertionError, match="nothing like this was staged: indexing"
    ) as caught:
        assert_staged(job, Index, **unlike)
    assert said in str(caught.value)
    assert_not_staged(job, Index, **unlike)


async def test_what_is_in_a_store_is_found_on_every_engine(client: awa.Client) -> None:
    await client.enqueue(Crawl(2))
    await assert_enqueued(client, Crawl(2), queue="default", run_at=None, unique=False)
    await assert_not_staged(client)
    worked = await work_one(app, client)
    assert worked is not None
    for like in LIKE:
        found = await assert_staged(client, Index, by=worked.job.id, **like)
        assert 1 in [job.args_json["page"] for job in found]
        assert len(await assert_enqueued(client, "indexing", **like)) == len(found)
    for unlike, said in UNLIKE:
        with pytest.raises(AssertionError) as caught:
            await assert_enqueued(client, Index, **unlike)
        assert said in str(caught.value)
        await assert_not_enqueued(client, Index, **unlike)
    await assert_enqueued(client, times=3)
    await assert_staged(client, times=2)
    await assert_not_staged(client, by=worked.job.id + 999)
    await drain(app, client)
    [done] = await assert_enqueued(client, Index, args={"page": 0})
    assert done.state is awa.JobState.COMPLETED


async def test_a_failure_shows_the_nearest_first() -> None:
    job = await crawled(3)
    with pytest.raises(AssertionError) as caught:
        assert_staged(job, Index(2, {"trio": 2, "awa": 1}), queue="fast", priority=3)
    assert str(caught.value).splitlines() == [
        'nothing like this was staged: indexing  args={"page": 2, "words": {"trio": 2, "awa": 1}}  queue="fast"  priority=3',
        "there were, nearest first:",
        '  indexing  args={"page": 2, "words": {"trio": 2, "awa": 1}}  queue=\'fast\'',
        "    priority 1, not 3",
        '  indexing  args={"page": 0, "words": {"trio": 0, "awa": 1}}  queue=\'fast\'',
        "    args.page 0, not 2; args.words.trio 0, not 2; priority 1, not 3",
        '  indexing  args={"page": 1, "words": {"trio": 1, "awa": 1}}  queue=\'fast\'',
        "    args.page 1, not 2; args.words.trio 1, not 2; priority 1, not 3",
    ]
    with pytest.raises(AssertionError, match="this was not to be staged: indexing") as caught:
        assert_not_staged(job, Index, args={"page": 2})
    assert str(caught.value).count("args=") == 2, "only what was not to be"
    with pytest.raises(AssertionError, match="3 like this were staged, not 2: indexing"):
        assert_staged(job, Index, times=2)


async def test_a_failure_says_if_there_was_nothing_and_is_never_endless() -> None:
    with pytest.raises(AssertionError, match="was staged: indexing\nthere was none at all"):
        assert_staged(await crawled(0), Index)
    with pytest.raises(AssertionError, match=r"\n  and 5 more$"):
        assert_staged(await crawled(15), Crawl)


async def test_what_a_handler_enqueued_in_its_own_transaction() -> None:
    job = HandlerJob(Crawl(1), app=app)
    async with job.complete_in(None) as tx:
        await tx.enqueue(Index(1, {}))
    assert [e.args for e in assert_enqueued(job, Index(1, {}), times=1)] == [Index(1, {})]
    assert_not_enqueued(job, Crawl)
    assert_not_staged(job)


@pytest.mark.parametrize(
    ("what", "options", "said"),
    [
        ({"page": 1}, {}, r"arguments alone are args="),
        (Index, {"args": 1}, "args: give a part of them, as a dict"),
        (Index, {"qeue": "fast"}, "qeue: there is no such option; there are queue, priority"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    what: object, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        assert_staged(await crawled(1), what, **options)


async def test_neither_a_job_nor_a_client() -> None:
    with pytest.raises(TypeError, match="give a Client or a HandlerJob to look at"):
        assert_enqueued([], Index)  # type: ignore[call-overload]

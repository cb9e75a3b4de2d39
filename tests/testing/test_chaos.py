"""`awa_trio.testing.chaos` finds what is wrong with a handler, and nothing where all is right."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio.testing import assert_enqueued, assert_staged, chaos, drain, memory_client
from awa_trio.testing.chaos import Fault, Moment, Point

from . import shop
from .shop import Book, Pay, Ship, rows

virtual = pytest.mark.virtual_time
ROOT = Path(__file__).parents[2]


async def begin(client: awa.Client) -> None:
    await client.enqueue(Pay(7))


async def check(client: awa.Client) -> None:
    [paid] = await assert_enqueued(client, Pay)
    assert paid.state is awa.JobState.COMPLETED
    [shipped] = await assert_staged(client, Ship(7), by=paid.id, times=1)
    assert shipped.state is awa.JobState.COMPLETED


# ---- in memory, in virtual time


@virtual
async def test_a_handler_that_stages_survives_everything_everywhere() -> None:
    survey = await chaos.crash_everywhere(
        shop.app, memory_client(shop.app), begin, check, resources={awa.Client: None}
    )
    places = [str(point) for point in survey.points]
    assert {"after claim#1", "before settle#1", "after settle#2"} <= set(places)
    assert len([place for place in places if "shop.py:" in place]) >= 3
    assert survey.crashes > 20
    assert survey.missed == ()


class Bank:
    """A service that does what it is told, as often as it is told."""

    def __init__(self) -> None:
        self.charged: list[int] = []

    async def charge(self, order: int) -> None:
        await trio.sleep(0.1)
        self.charged.append(order)
        await trio.sleep(0.1)


def careless(bank: Bank, *, enqueues: bool = False) -> tuple[awa.App, list[awa.Client]]:
    """An app that forgets that it may be killed between two things."""
    app = awa.App()
    client: list[awa.Client] = []

    @app.task(kind="pay", args=Pay)
    async def pay(job: awa.Job[Pay], own: awa.Client) -> None:
        if enqueues:
            await own.enqueue(Ship(job.args.order), unique_opts=None)
            await trio.sleep(1)
        else:
            await bank.charge(job.args.order)

    @app.resource
    async def own() -> AsyncIterator[awa.Client]:
        yield client[0]

    @app.task(kind="ship", args=Ship)
    async def ship(job: awa.Job[Ship]) -> None: ...

    return app, client


@virtual
async def test_what_is_done_twice_is_found_and_named_by_its_line() -> None:
    bank = Bank()
    app, _ = careless(bank)

    async def start(client: awa.Client) -> None:
        bank.charged.clear()
        await client.enqueue(Pay(7))

    async def once(client: awa.Client) -> None:
        assert bank.charged == [7], f"charged {len(bank.charged)} times"

    survey = chaos.crash_everywhere(
        app, memory_client(app), start, once, resources=lambda client: {awa.Client: client}
    )
    with pytest.raises(chaos.Broken) as caught:
        await survey
    [first, *lines] = str(caught.value).splitlines()
    assert first.endswith("crashes broke what must hold:")
    assert "  kill before settle#1: AssertionError: charged 2 times" in lines
    # After the charge and not before it.
    source = Path(__file__).read_text().splitlines()
    charge = next(n for n, line in enumerate(source, 1) if "self.charged.append(order)" in line)
    assert any(f"after test_chaos.py:{charge + 1}#1" in line for line in lines)
    assert not any(f"test_chaos.py:{charge - 1}#" in line for line in lines)
    assert isinstance(caught.value.__cause__, AssertionError)
    assert "charged 2 times" in str(caught.value.__cause__)


@virtual
async def test_one_line_of_a_failure_can_be_run_again() -> None:
    bank = Bank()
    app, _ = careless(bank, enqueues=True)

    async def once(client: awa.Client) -> None:
        await assert_enqueued(client, Ship, times=1)

    def run(**options: Any) -> Coroutine[Any, Any, chaos.Survey]:
        return chaos.crash_everywhere(
            app,
            memory_client(app),
            begin,
            once,
            resources=lambda client: {awa.Client: client},
            **options,
        )

    with pytest.raises(chaos.Broken, match=r"2 like this were enqueued, not 1"):
        await run(only="kill after enqueue#1")
    await run(only="kill before enqueue#1")
    with pytest.raises(chaos.Broken, match="1 of 1 crashes"):
        await run(only=["disconnect after enqueue#1"])
    refused: list[dict[str, object]] = [
        {"only": "kill after nothing#1"},
        {"most": 3},
        {"faults": []},
    ]
    for options in refused:
        with pytest.raises(awa.ConfigurationError, match="crashes to run"):
            await run(**options)


@virtual
async def test_a_killed_handler_does_nothing_more_until_all_is_checked() -> None:
    app = awa.App()
    cleaned: list[int] = []
    at_check: list[int] = []

    @app.task(kind="pay", args=Pay, deadline=5)
    async def pay(job: awa.Job[Pay]) -> None:
        try:
            await trio.sleep(1)  # it is killed here
        finally:
            cleaned.append(job.attempt)

    async def note(client: awa.Client) -> None:
        await trio.sleep(3600)  # long after its deadline, and its lease
        at_check[:] = cleaned

    async def start(client: awa.Client) -> None:
        cleaned.clear()
        await client.enqueue(Pay(1))

    source = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(source, 1) if text.endswith("# it is killed here"))
    await chaos.crash_everywhere(
        app,
        memory_client(app),
        start,
        note,
        only=f"kill after test_chaos.py:{line}#1",
    )
    assert at_check == [2], "the one that took over"
    assert cleaned == [2, 1]


@virtual
async def test_children_that_stage_and_attempts_that_fail_are_crashed_too() -> None:
    app = awa.App()
    app.task(kind="ship", args=Ship)(ship_it)

    @app.task(kind="pay", args=Pay)
    async def pay(job: awa.Job[Pay]) -> None:
        async def child() -> None:
            await trio.sleep(1)
            job.enqueue_on_completion(Ship(job.args.order))

        job.nursery.start_soon(child)
        await trio.sleep(2)
        if job.attempt == 1:
            raise ConnectionError

    await chaos.crash_everywhere(app, memory_client(app), begin, check)


async def ship_it(job: awa.Job[Ship]) -> None: ...


async def test_an_ordinary_function_is_crashed_around_its_thread() -> None:
    app = awa.App()
    app.task(kind="ship", args=Ship)(ship_it)

    @app.task(kind="pay", args=Pay)
    def pay(job: awa.Job[Pay]) -> None:
        job.enqueue_on_completion(Ship(job.args.order))

    survey = await chaos.crash_everywhere(
        app, memory_client(app), begin, check, faults=[Fault.KILL]
    )
    assert not any(point.in_handler for point in survey.points)
    assert survey.crashes == 6


@virtual
async def test_a_job_with_one_attempt_does_not_survive_and_that_is_said() -> None:
    app = awa.App()
    app.task(kind="ship", args=Ship)(ship_it)

    @app.task(kind="pay", args=Pay, max_attempts=1)
    async def pay(job: awa.Job[Pay]) -> None:
        job.enqueue_on_completion(Ship(job.args.order))

    with pytest.raises(chaos.Broken, match=r"kill after claim#1: AssertionError") as caught:
        await chaos.crash_everywhere(app, memory_client(app), begin, check)
    assert "kill after settle#1" not in str(caught.value)


@virtual
async def test_what_pytest_raises_says_after_what() -> None:
    begun = 0

    async def fail(client: awa.Client) -> None:
        nonlocal begun
        begun += 1
        if begun > 1:
            pytest.fail("no")

    with pytest.raises(BaseExceptionGroup) as caught:
        await chaos.crash_everywhere(
            shop.app, memory_client(shop.app), begin, fail, resources={awa.Client: None}
        )
    assert caught.value.__notes__ == ["raised after kill after claim#1"]


@virtual
async def test_jobs_that_never_end_are_named() -> None:
    app = awa.App()

    @app.task(kind="pay", args=Pay)
    async def pay(job: awa.Job[Pay]) -> object:
        return awa.Snooze(100)

    with pytest.raises(AssertionError, match=r"after 250 s .* not come to an end: 1 \(pay, "):
        await chaos.crash_everywhere(app, memory_client(app), begin, check, patience=250)


@virtual
async def test_a_database_with_jobs_in_it_is_left_alone() -> None:
    client = memory_client(shop.app)
    await client.enqueue(Pay(1))
    with pytest.raises(awa.ConfigurationError, match="all jobs are removed between runs"):
        await chaos.crash_everywhere(shop.app, client, begin, check)
    assert len(await client.jobs.list()) == 1


@virtual
async def test_callbacks_are_resolved_meanwhile() -> None:
    app = awa.App()

    @app.task(kind="pay", args=Pay)
    async def pay(job: awa.Job[Pay]) -> None:
        token = await job.register_callback(timeout=100)
        job.set_output(await job.wait_for_callback(token))

    async def answer(client: awa.Client) -> None:
        while True:
            await trio.sleep(1)
            for job in await client.jobs.list(state="waiting_external"):
                assert job.callback_token is not None
                with contextlib.suppress(awa.CallbackError):
                    await client.callbacks.resume(job.callback_token, "yes")

    async def answered(client: awa.Client) -> None:
        [job] = await client.jobs.list()
        assert (job.state, job.output) == (awa.JobState.COMPLETED, "yes")

    survey = await chaos.crash_everywhere(
        app, memory_client(app), begin, answered, meanwhile=answer
    )
    assert {"register_callback", "begin_waits", "end_waits"} <= {p.what for p in survey.points}


# ---- one fault, by hand


@virtual
async def test_the_answer_of_a_commit_is_lost_and_nothing_happens_twice() -> None:
    client = memory_client(shop.app)
    await begin(client)
    resources = {awa.Client: client}
    async with chaos.unreliable(client, {"after settle#1": Fault.DISCONNECT}) as shaky:
        await drain(shop.app, shaky, resources=resources)
    await check(client)


@virtual
async def test_the_lease_of_a_running_job_is_lost() -> None:
    """What the handler staged is discarded, whatever it does afterwards."""
    app = awa.App()
    attempts: list[int] = []

    @app.task(kind="pay", args=Pay)
    async def pay(job: awa.Job[Pay]) -> None:
        attempts.append(job.attempt)
        job.enqueue_on_completion(Ship(job.args.order))
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    app.declare(Ship, queue="elsewhere")
    client = memory_client(app)
    await begin(client)
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        await trio.sleep(5)
        assert await chaos.expire_leases(client) == 1
        await trio.sleep(60)
        worker.stop()
    assert attempts == [1, 2]
    await assert_staged(client, Ship, times=1)


@virtual
async def test_a_store_in_memory_has_no_connections_to_cut() -> None:
    with pytest.raises(awa.ConfigurationError, match="no connections to cut"):
        await chaos.cut_connections(memory_client())


@pytest.mark.parametrize(
    "faults", [{}, {"settle": Fault.KILL}, {"during settle#1": Fault.KILL}]
)
@virtual
async def test_what_is_no_place_is_refused(faults: dict[str, Fault]) -> None:
    with pytest.raises(awa.ConfigurationError, match=r"place|no point"):
        async with chaos.unreliable(memory_client(), faults):
            pass


@pytest.mark.parametrize("text", ["after settle#1", "before commit#12", "after shop.py:41#2"])
def test_a_point_is_read_as_it_is_printed(text: str) -> None:
    point = Point.parse(text)
    assert str(point) == text
    assert point.in_handler == ("shop.py" in text)
    assert point.moment in Moment


# ---- on PostgreSQL


@asynccontextmanager
async def booking(dsn: str) -> AsyncIterator[awa.Client]:
    rows(dsn, "CREATE TABLE booked (n int)")
    async with awa.connect(dsn, app=shop.app) as client:
        yield client


@pytest.mark.sessions
@pytest.mark.parametrize("engine", ["canonical", "segmented"])
async def test_rows_and_jobs_commit_together_on_every_engine(
    engine: str, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue(engine)

    async def book(client: awa.Client) -> None:
        rows(dsn, "TRUNCATE booked")
        await client.enqueue(Book(7))

    async def booked(client: awa.Client) -> None:
        [job] = await assert_enqueued(client, Book)
        assert job.state is awa.JobState.COMPLETED
        await assert_staged(client, Ship, by=job.id, times=1)
        assert rows(dsn, "SELECT n FROM booked") == [(7,)]

    async with booking(dsn) as client:
        survey = await chaos.crash_everywhere(
            shop.app,
            client,
            book,
            booked,
            resources=lambda breaking: {awa.Client: breaking},
            only=[
                "kill before commit#1",
                "kill after commit#1",
                "fence after commit#1",
                "disconnect after commit#1",
                "kill after settle#1",
            ],
        )
    assert survey.missed == ()
    assert survey.crashes == 5


@pytest.mark.slow
@pytest.mark.sessions
@pytest.mark.parametrize("engine", ["canonical", "segmented"])
async def test_everything_everywhere_on_every_engine(
    engine: str, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue(engine)

    async def both(client: awa.Client) -> None:
        rows(dsn, "TRUNCATE booked")
        await client.enqueue_many([Book(7), Pay(8)])

    async def done(client: awa.Client) -> None:
        await assert_enqueued(client, Ship(7), times=1)
        await assert_enqueued(client, Ship(8), times=1)
        assert rows(dsn, "SELECT n FROM booked") == [(7,)]
        assert {job.state for job in await client.jobs.list()} == {awa.JobState.COMPLETED}

    async with booking(dsn) as client:
        survey = await chaos.crash_everywhere(
            shop.app, client, both, done, resources=lambda b: {awa.Client: b}
        )
    assert len(survey.missed) <= survey.crashes / 10


@pytest.mark.sessions
async def test_a_process_kills_itself_at_a_place_and_others_carry_on(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    async with booking(migrated) as client:
        survey = await chaos.crash_everywhere(
            shop.app,
            client,
            begin,
            check,
            resources=lambda breaking: {awa.Client: breaking},
            only="kill after settle#1",
            program="tests.testing.shop:app",
        )
    assert (survey.crashes, survey.missed) == (1, ())


@pytest.mark.sessions
async def test_a_process_is_killed_by_hand(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    async with booking(migrated) as client:
        async with chaos.worker_process("tests.testing.shop:app", migrated) as process:
            await begin(client)
            with trio.fail_after(30):
                while not await client.jobs.list(kind="ship", state="completed"):
                    await trio.sleep(0.01)
            process.kill()
            assert await process.wait() == -signal.SIGKILL
        await check(client)
        with pytest.raises(awa.ConfigurationError, match="could not start: exit code 1"):
            async with chaos.worker_process("tests.testing.shop:nothing", migrated):
                pass
        async with awa.connect(migrated) as other:
            await other.jobs.list()
            assert await chaos.cut_connections(client) >= 1
            with pytest.raises(awa.DatabaseUnavailable, match="terminating connection"):
                await other.jobs.list()
            await other.jobs.list()

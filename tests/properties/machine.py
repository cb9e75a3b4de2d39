"""Everything that can be done to a queue, in any order, to the model and to both engines.

The store in memory is the model: small enough to be read and believed. After each step the
answer, every job and every unique key must be the same in all three.

Workers are here by steps, so that anything may happen between the claim of a job and its
settlement: what ends an attempt goes through the functions of a worker (`Planner`,
`Upkeep`), and clients' calls through a `Client`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import awa_trio as awa
from awa_trio._core.job import JobState, PreparedInsert
from awa_trio._core.outcome import (
    Abandoned,
    Cut,
    Detached,
    Ended,
    Orphaned,
    Raised,
    Returned,
)
from awa_trio._core.plan import Plan, annotate
from awa_trio._core.staging import Sealed
from awa_trio._seam.values import Wait, Want

from .portal import Portal
from .sides import CLOSE, Error, JobId, Operation, Side, differences, same

S = JobState
F = TypeVar("F", bound=Callable[..., None])


@frozen
class Plain:
    n: int


@frozen
class Watched:
    """Follow-ups are registered for whatever becomes of it."""

    n: int


@frozen
class Note:
    what: str
    n: int


app = awa.App()


def slowly(attempt: int) -> float:
    """A backoff that no example outlasts by itself."""
    return 500.0 * attempt


@app.task(queue="a", backoff=slowly)
async def plain(job: awa.Job[Plain]) -> None: ...


@app.task(queue="b", backoff=slowly, priority=3, max_attempts=2)
async def watched(job: awa.Job[Watched]) -> None: ...


app.declare(Note, queue="notes")
app.queue("b", dead_letters=False)


def _note(what: str) -> Any:
    return lambda args, job, *facts: awa.EnqueueRequest(Note(what, args.n)).unique()


for register, outcome in (
    (app.on_completed, "completed"),
    (app.on_retried, "retried"),
    (app.on_exhausted, "exhausted"),
    (app.on_cancelled, "cancelled"),
    (app.on_waiting_for_callback, "waiting"),
    (app.on_rescued, "rescued"),
):
    register(Watched)(_note(outcome))

KINDS = ("plain", "watched", "note")
QUEUES = ("a", "b", "notes")

# ---- values. Few of each, so that they meet.

jobs = st.integers(0, 9)
workers = st.integers(0, 2)
queues = st.sampled_from(QUEUES)
some_queues = st.one_of(
    st.just(list(QUEUES)), st.lists(queues, min_size=1, max_size=3, unique=True)
)
some_kinds = st.one_of(
    st.just(list(KINDS)),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
)
maybe = st.booleans

#: The default; while it waits; while it runs; for ever; when it is over.
masks = st.sampled_from([31, 0b11, 0b100, 255, 0b110_1000])
unique = st.one_of(
    st.just({}),
    st.builds(
        lambda states, by_queue, by_args: {
            "states": states,
            "by_queue": by_queue,
            "by_args": by_args,
        },
        masks,
        maybe(),
        maybe(),
    ),
)
whens = st.sampled_from([None, None, None, 1000.0, -1000.0])
delays = st.sampled_from([0.0, 300.0, 1000.0, 86_400.0])

options = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["a", "b"]),
        "priority": st.integers(1, 4),
        "max_attempts": st.integers(1, 3),
        "unique_opts": unique,
        "ordering_key": st.sampled_from([None, "x", "y"]),
        "limit_key": st.sampled_from([None, "x", "y"]),
        "deadline": st.sampled_from([0.0, 50.0, 5000.0]),
        "tags": st.sampled_from([["t"], ["t", "u"]]),
        "metadata": st.sampled_from([{}, {"m": 1}]),
    },
)


#: What is said of queues. Limits are such that no moment that steps lead to is near the one
#: at which a token comes.
said = st.sampled_from(
    [
        ("pause", None),
        ("drain", None),
        *[("resume", None)] * 4,
        ("max_per_key", 1),
        ("max_per_key", 2),
        ("max_per_key", None),
        ("rate", awa.Rate(1, per=950, burst=2)),
        ("rate", awa.Rate(1, per=950, burst=1)),
        *[("rate", None)] * 2,
    ]
)


@frozen
class Wish:
    """A job to enqueue, but for the moment, which each store has its own clock for."""

    args: object
    options: dict[str, Any]
    when: float | None

    def request(self, side: Side) -> awa.EnqueueRequest:
        return awa.EnqueueRequest(self.args, run_at=side.at(self.when), **self.options)


args = st.one_of(st.builds(Plain, st.integers(0, 2)), st.builds(Watched, st.integers(0, 1)))
wishes = st.builds(Wish, args, options, whens)


@frozen
class End:
    """How an attempt ends."""

    ended: Ended
    staged: tuple[Wish, ...] = ()
    poisoned: bool = False
    progress: bytes | None = None
    output: bytes | None = None


ends = st.one_of(
    st.builds(
        End,
        st.just(Returned(awa.Completed())),
        st.lists(wishes, max_size=3).map(tuple),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([None, b'{"percent":50}']),
        st.sampled_from([None, b'"done"']),
    ),
    st.builds(
        End,
        st.one_of(
            delays.map(lambda s: Returned(awa.RetryAfter(s))),
            delays.map(lambda s: Returned(awa.Snooze(s))),
            st.sampled_from(
                [
                    Returned(awa.Cancel("why")),
                    Raised(ValueError("no")),
                    Raised(awa.TerminalError("never")),
                    Abandoned(Cut.DEADLINE, after=50.0),
                    Abandoned(Cut.SHUTDOWN),
                    Orphaned(),
                ]
            ),
        ),
        progress=st.sampled_from([None, b'{"percent":50}']),
    ),
)


@frozen
class Step:
    """One thing that happens."""

    name: str
    values: dict[str, Any]
    needs: str


STEPS: list[st.SearchStrategy[Step]] = []


def step(
    weight: int = 1, *, needs: str = "", **values: st.SearchStrategy[Any]
) -> Callable[[F], F]:
    """Let a method be one of the things that happen, with values from these strategies.

    Not a rule of its own: of many rules Hypothesis leaves most out of an example, and lives
    without claims are dull.
    """

    def note(method: F) -> F:
        name = st.just(method.__name__)
        made = st.builds(Step, name, st.fixed_dictionaries(values), st.just(needs))
        STEPS.extend([made] * weight)
        return method

    return note


class Queue(RuleBasedStateMachine):
    """One life of a queue, in all stores at once."""

    #: Set by whoever runs it.
    portal: Portal
    sides: Sequence[Side]
    met: Counter[str]
    """What has happened in all lives: the states of jobs, and the errors."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[object, dict[str, Any]] = {}
        self.registered = 0
        self.alive: list[int] = []
        """Workers that nobody has said to be dead."""
        self.tokens: list[tuple[str, tuple[int, int]]] = []
        self.attempts: list[tuple[int, int, int]] = []
        """Of each attempt that nobody has ended: its job, its lease, its worker."""

    # ---- doing the same everywhere

    def all(self, operation: Operation) -> Any:
        """Do something in each store, and compare what comes of it; what the model answered."""
        results = [self.portal(side.do, operation) for side in self.sides]
        self.met["step"] += 1
        model, *engines = results
        for side, engine in zip(self.sides[1:], engines, strict=True):
            assert same(model, engine), "\n".join(
                [f"memory and {side.name} differ:", *differences(model, engine)]
            )
        answer, rows, _ = model
        assert isinstance(rows, list)
        self.rows = {row["job"]: row for row in rows}
        self.met.update({row["state"] for row in rows})
        if isinstance(answer, Error):
            self.met[answer.kind] += 1
        return answer

    @initialize()
    def begin(self) -> None:
        for side in self.sides:
            self.portal(side.forget)
        self.register()

    # ---- producers

    @step(4, many=st.lists(wishes, min_size=1, max_size=4))
    def enqueue(self, many: list[Wish]) -> None:
        self.all(lambda side: side.client.enqueue_many([one.request(side) for one in many]))

    @step(many=st.lists(wishes, min_size=1, max_size=2), commit=maybe())
    def transaction(self, many: list[Wish], commit: bool) -> None:
        self.all(lambda side: side.transact([one.request(side) for one in many], commit))

    # ---- workers

    @step()
    def register(self) -> None:
        async def register(side: Side) -> None:
            side.workers.append(await side.store.register("a worker", 500.0))

        self.all(register)
        self.alive.append(self.registered)
        self.registered += 1

    def _worker(self, number: int) -> int:
        """One that nobody has said to be dead; a new one, if there is none."""
        if not self.alive:
            self.register()
        return self.alive[-1 - number % len(self.alive)]

    @step(worker=workers, how=st.sampled_from(["beat", "beat", "lead", "lead", "unregister"]))
    def live(self, worker: int, how: str) -> None:
        number = self._worker(worker)
        match how:
            case "beat":
                if not self.all(lambda side: side.store.beat(side.workers[number])):
                    self.alive.remove(number)
            case "lead":
                self.all(lambda side: side.store.lead("duty", side.workers[number], 700.0))
            case _:
                self.all(lambda side: side.store.unregister(side.workers[number]))
                self.alive.remove(number)

    @step(
        5,
        worker=workers,
        queues=some_queues,
        kinds=some_kinds,
        most=st.integers(1, 4),
        ageing=st.sampled_from([0.0, 700.0]),
        deadline=st.sampled_from([0.0, 200.0]),
    )
    def claim(
        self,
        worker: int,
        queues: list[str],
        kinds: list[str],
        most: int,
        ageing: float,
        deadline: float,
    ) -> None:
        number = self._worker(worker)
        wants = [Want(queue, most, deadline, ageing) for queue in queues]

        async def claim(side: Side) -> object:
            claimed = await side.store.claim(side.workers[number], wants, dict.fromkeys(kinds))
            for job in claimed:
                side.claims[side.ids.index(job.id), job.run_lease] = job
            return claimed

        answer = self.all(claim)
        if isinstance(answer, Error):
            self.alive.remove(number)
        else:
            for row in answer:
                self.attempts.append((row["job"], row["run_lease"], number))

    @step(queues=some_queues, kinds=some_kinds)
    def next_due(self, queues: list[str], kinds: list[str]) -> None:
        """And what is due by now. A hint, which may come too early for jobs with keys, but never
        too late."""
        due: list[float | None] = []

        async def ask(side: Side) -> None:
            due.append(await side.store.next_due(queues, kinds))

        self.all(ask)
        self.all(lambda side: side.store.backlogs(queues, 100))
        model, *engines = due
        in_order = any(
            (row["ordering_key"] or row["limit_key"]) is not None and row["queue"] in queues
            for row in self.rows.values()
        )
        for engine in engines:
            if not in_order:
                assert same(model, engine), due
            elif model is not None:
                assert engine is not None, due
                assert engine < model + CLOSE, due

    def _attempt(self, number: int) -> tuple[int, int, int]:
        return self.attempts[-1 - number % len(self.attempts)]

    def _planned(self, side: Side, key: tuple[int, int], end: End) -> Plan | None:
        claimed = side.claims[key]
        staged: list[PreparedInsert] = []
        for wish in end.staged:
            staged.append(side.planner.prepare(wish.request(side), {}, claimed))
        latest = [token for token, of in self.tokens if of == key]
        sealed = Sealed(
            tuple(staged),
            awa.StagingInvalid("refused") if end.poisoned else None,
            latest[-1] if latest else None,
        )
        made = side.planner.plan(end.ended, claimed, sealed)
        if made is not None:
            annotate(made.move, progress=end.progress, output=end.output)
        return made

    @step(7, needs="attempts", first=jobs, end=ends, others=st.lists(ends, max_size=2))
    def end(self, first: int, end: End, others: list[End]) -> None:
        """A worker settles one of its attempts, or some in one set."""
        job, lease, worker = self._attempt(first)
        mine = [a for a in self.attempts if a[2] == worker and a[0] != job]
        # At most one plan for each job.
        attempts = {job: lease} | {j: le for j, le, _ in mine[: len(others)]}
        pairs = list(zip(attempts.items(), [end, *others], strict=False))

        async def settle(side: Side) -> object:
            plans = [self._planned(side, key, how) for key, how in pairs]
            made = [plan for plan in plans if plan is not None]
            return await side.store.settle(made, worker=side.workers[worker])

        self.all(settle)
        # A worker that has settled something does not settle it again, but for a lost answer.
        gone = {key for key, _ in pairs[1:]} | {(job, lease)}
        self.attempts = [a for a in self.attempts if (a[0], a[1]) not in gone]

    @step(needs="attempts", attempt=jobs, end=ends)
    def end_and_lose_the_answer(self, attempt: int, end: End) -> None:
        """The same plan twice: the second finds its guard gone."""
        job, lease, worker = self._attempt(attempt)

        async def settle(side: Side) -> object:
            made = self._planned(side, (job, lease), end)
            assert made is not None
            first = await side.store.settle([made], worker=side.workers[worker])
            again = await side.store.settle([made], worker=side.workers[worker])
            assert not again[0].applied
            return first

        self.all(settle)

    @step(needs="attempts", attempt=jobs)
    def record_progress(self, attempt: int) -> None:
        job, lease, worker = self._attempt(attempt)
        self.all(
            lambda side: side.store.record_progress(
                side.workers[worker], [(side.job(job), lease, b'{"percent":7}')]
            )
        )

    @step(needs="attempts", attempt=jobs)
    def what_it_runs(self, attempt: int) -> None:
        number = self._attempt(attempt)[2]

        async def ask(side: Side) -> object:
            running = await side.store.running(side.workers[number])
            answered = await side.store.answered(side.workers[number])
            return [sorted(found, key=lambda held: held.id) for found in (running, answered)]

        self.all(ask)

    # ---- callbacks

    @step(3, needs="attempts", attempt=jobs, timeout=st.sampled_from([100.0, 5000.0]))
    def register_callback(self, attempt: int, timeout: float) -> None:
        job, lease, worker = self._attempt(attempt)
        token = f"token {len(self.tokens)}"
        answer = self.all(
            lambda side: side.store.register_callback(
                side.workers[worker], side.job(job), lease, token, timeout
            )
        )
        if answer is True:
            self.tokens.append((token, (job, lease)))

    def _token(self, number: int) -> tuple[str, tuple[int, int]]:
        return self.tokens[-1 - number % len(self.tokens)]

    def _wait(self, token: int, call: str) -> None:
        named, key = self._token(token)
        found = [a[2] for a in self.attempts if (a[0], a[1]) == key]
        if not found:
            return
        [worker] = found

        async def wait(side: Side) -> object:
            asked = Wait(side.job(key[0]), key[1], named, 100.0)
            [waited] = await getattr(side.store, call)(side.workers[worker], [asked])
            if waited is not None:
                side.claims[key].state = S.WAITING_EXTERNAL if waited.waits else S.RUNNING
            return None if waited is None else (waited.waits, waited.answer)

        self.all(wait)

    @step(2, needs="tokens", token=jobs)
    def begin_wait(self, token: int) -> None:
        self._wait(token, "begin_waits")

    @step(2, needs="tokens", token=jobs)
    def end_wait(self, token: int) -> None:
        self._wait(token, "end_waits")

    @step(3, needs="tokens", token=jobs, how=st.sampled_from(["park", "detach"]))
    def park(self, token: int, how: str) -> None:
        """The handler returns `WaitForCallback`, or its worker stops while it waits."""
        named, key = self._token(token)
        found = [a for a in self.attempts if (a[0], a[1]) == key]
        if not found:
            return
        ended: Ended = Returned(awa.WaitForCallback(named))
        if how == "detach":
            ended = Detached(named)
        worker = found[0][2]

        async def settle(side: Side) -> object:
            made = self._planned(side, key, End(ended))
            assert made is not None
            return await side.store.settle([made], worker=side.workers[worker])

        self.all(settle)
        self.attempts.remove(found[0])

    @step(
        4,
        needs="tokens",
        token=jobs,
        how=st.sampled_from(["resume", "complete", "fail", "retry", "heartbeat", "unknown"]),
        unwatched=maybe(),
    )
    def resolve(self, token: int, how: str, unwatched: bool) -> None:
        named, _ = self._token(token)

        async def resolve(side: Side) -> object:
            callbacks = side.client.callbacks
            match how:
                case "resume":
                    return JobId(await callbacks.resume(named, {"x": 1}))
                case "complete":
                    return JobId(
                        await callbacks.complete(named, [1], without_follow_ups=unwatched)
                    )
                case "fail":
                    return JobId(
                        await callbacks.fail(named, "no", without_follow_ups=unwatched)
                    )
                case "retry":
                    return JobId(await callbacks.retry(named))
                case "heartbeat":
                    return JobId(await callbacks.heartbeat(named, 5000.0))
                case _:
                    return JobId(await callbacks.resume("no such token"))

        self.all(resolve)

    # ---- people

    @step(2, job=jobs, unwatched=maybe())
    def cancel(self, job: int, unwatched: bool) -> None:
        self.all(
            lambda side: side.client.jobs.cancel(side.job(job), without_follow_ups=unwatched)
        )

    @step(wish=wishes, unwatched=maybe())
    def cancel_by_key(self, wish: Wish, unwatched: bool) -> None:
        given: Any = dict(wish.options)
        opts = given.get("unique_opts")
        key: dict[str, Any] = {"unique_opts": {} if opts is None else opts}
        if opts is not None and opts.get("by_queue"):
            key["queue"] = given.get("queue", "a")

        async def cancel(side: Side) -> object:
            return JobId(
                await side.client.jobs.cancel_by_key(
                    wish.args, without_follow_ups=unwatched, **key
                )
            )

        self.all(cancel)

    @step(2, job=jobs)
    def retry(self, job: int) -> None:
        self.all(lambda side: side.client.jobs.retry(side.job(job)))

    @step(
        state=st.sampled_from([None, *S, [S.RUNNING, S.COMPLETED], [S.AVAILABLE, S.FAILED]]),
        kind=st.sampled_from([None, *KINDS]),
        queue=st.sampled_from([None, *QUEUES]),
        tag=st.sampled_from([None, "t", "u"]),
        before=st.one_of(st.none(), jobs),
        limit=st.sampled_from([1, 3, 1000]),
    )
    def list_jobs(
        self,
        state: Any,
        kind: str | None,
        queue: str | None,
        tag: str | None,
        before: int | None,
        limit: int,
    ) -> None:
        if before is not None:
            self.all(lambda side: side.client.jobs.get(side.job(before)))
        self.all(
            lambda side: side.client.jobs.list(
                state=state,
                kind=kind,
                queue=queue,
                tag=tag,
                before_id=None if before is None else side.job(before),
                limit=limit,
            )
        )

    # ---- dead letters

    @step(2, job=jobs, how=st.sampled_from(["get", "retry", "elsewhere", "later", "purge"]))
    def dead_letter(self, job: int, how: str) -> None:
        async def act(side: Side) -> object:
            dlq = side.client.dlq
            match how:
                case "get":
                    return await dlq.get(side.job(job))
                case "retry":
                    await dlq.retry(side.job(job))
                case "elsewhere":
                    await dlq.retry(side.job(job), queue="b", priority=1)
                case "later":
                    await dlq.retry(side.job(job), run_at=side.at(1000.0))
                case _:
                    await dlq.purge(side.job(job))
            return None

        self.all(act)

    @step(
        how=st.sampled_from(["list", "retry", "elsewhere", "purge"]),
        queue=st.sampled_from([None, "a", "b"]),
        reason=st.sampled_from([None, *awa.DeadLetterReason]),
    )
    def dead_letters(
        self, how: str, queue: str | None, reason: awa.DeadLetterReason | None
    ) -> None:
        everything = queue is None and reason is None

        async def act(side: Side) -> object:
            dlq = side.client.dlq
            match how:
                case "list":
                    return await dlq.list(queue=queue, reason=reason)
                case "retry":
                    return await dlq.retry_many(
                        queue=queue, reason=reason, everything=everything
                    )
                case "elsewhere":
                    return await dlq.retry_many(
                        queue=queue, reason=reason, everything=everything, to_queue="b"
                    )
                case _:
                    return await dlq.purge_many(
                        queue=queue, reason=reason, everything=everything
                    )

        self.all(act)

    # ---- queues

    @step(2, queue=queues, said=said)
    def say(self, queue: str, said: tuple[str, Any]) -> None:
        """Pause, drain, limit: what is said of a queue holds from the next claim on."""
        what, value = said

        async def say(side: Side) -> object:
            match what:
                case "pause" | "drain":
                    ours = side.client.queues
                    return await (ours.pause if what == "pause" else ours.drain)(queue)
                case "resume":
                    return await side.client.queues.resume(queue)
                case _:
                    changes: Any = {what: value}
                    await side.client.queues.override(queue, **changes)
                    return None

        self.all(say)

    # ---- time, and what it brings

    @step(3, seconds=st.sampled_from([400.0, 1100.0, 100_000.0]))
    def advance(self, seconds: float) -> None:
        self.all(lambda side: side.world.advance(seconds))

    @step(3, leads=maybe())
    def rescue(self, leads: bool) -> None:
        async def rescue(side: Side) -> object:
            side.upkeep.leads = leads
            await side.upkeep.rescue()
            return side.upkeep.rescued

        self.all(rescue)

    @step(failed=st.sampled_from([50.0, math.inf]), dead=st.sampled_from([50.0, math.inf]))
    def prune(self, failed: float, dead: float) -> None:
        """Of what failed and what was cancelled. Segments go as a whole, and so later than the
        completed jobs of the model: none is old enough, though segments may be closed."""
        ages = [-r["finalized_at"] for r in self.rows.values() if r["state"] == S.COMPLETED]
        kept = awa.Retention(
            completed=max(ages, default=1000.0) + 1000.0, failed=failed, dead_letters=dead
        )
        self.all(lambda side: side.store.prune(kept, 1000))

    # ---- and one after the other

    @rule(step=st.deferred(lambda: st.one_of(STEPS)))
    def do(self, step: Step) -> None:
        if step.needs and not self.attempts:
            if all(row["state"] != S.AVAILABLE for row in self.rows.values()):
                self.enqueue([Wish(Watched(0), {}, None)])
            self.claim(0, list(QUEUES), list(KINDS), 4, 0.0, 0.0)
        if not self.attempts and step.needs == "attempts":
            return
        if step.needs == "tokens" and not self.tokens:
            if not self.attempts:
                return
            self.register_callback(0, 5000.0)
            if not self.tokens:
                return
        getattr(self, step.name)(**step.values)

"""The traces of AwaWorkers that a history is.

Jobs are put into traces of some, by their IDs: what a set does to one of its jobs depends on
no other of them, and a state of the model is small, whatever the history's length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from attrs import define, field, frozen

from .history import Change, Planned, Transaction
from .staged import STATES, Step, Worker

#: How many IDs a trace is of.
JOBS_OF_A_TRACE = 50


@frozen(order=True)
class Job:
    """The ID of a job."""

    id: int

    def __str__(self) -> str:
        return f"job {self.id}"


#: A job, and the lease of an attempt at it.
Attempt: TypeAlias = tuple[Job, int]

Tell: TypeAlias = Callable[..., None]


@define
class Trace:
    """Steps of some jobs, numbered from 1."""

    steps: list[Step] = field(factory=list)
    jobs: dict[Job, int] = field(factory=dict)

    def text(self) -> str:
        """Return it as a TLA+ record."""
        steps = ",\n  ".join(self._value((step.action, *step.given)) for step in self.steps)
        return f"[jobs |-> {len(self.jobs)}, steps |-> <<\n  {steps}>>]"

    def _value(self, value: object) -> str:
        match value:
            case bool():
                return str(value).upper()
            case Job():
                return str(self.jobs.setdefault(value, len(self.jobs) + 1))
            case Worker():
                return str(value.id)
            case tuple():
                return f"<<{', '.join(map(self._value, value))}>>"
            case frozenset():
                return "{" + ", ".join(map(self._value, sorted(value))) + "}"
            case str():
                return f'"{value}"'
        return str(value)


def traces(history: Iterable[Transaction]) -> list[Trace]:
    """Return the traces that a history is, of transactions in the order of their commits."""
    transactions = list(history)
    settled: dict[int, Counter[tuple[int, Attempt]]] = {}
    for transaction in transactions:
        for worker, plan in plans_of_workers(transaction):
            counts = settled.setdefault(plan.job // JOBS_OF_A_TRACE, Counter())
            counts[worker, attempt(plan)] += 1
    narrators: dict[int, Narrator] = {}
    for transaction in transactions:
        about = {change.job // JOBS_OF_A_TRACE for change in transaction.changes}
        about |= {plan.job // JOBS_OF_A_TRACE for plan in transaction.plans}
        if transaction.fenced:
            about |= narrators.keys()
        for number in sorted(about):
            narrator = narrators.setdefault(
                number, Narrator(number, settled.get(number, Counter()))
            )
            narrator.tell(transaction)
    return [narrator.trace for narrator in narrators.values() if narrator.trace.steps]


def attempt(plan: Planned) -> Attempt:
    """Return the attempt that a plan is about."""
    return Job(plan.job), plan.lease


def plans_of_workers(transaction: Transaction) -> Iterator[tuple[int, Planned]]:
    """Yield those that end what workers run; not one whose callback has been answered."""
    for plan in transaction.plans:
        if (
            plan.worker is not None
            and plan.from_state == "running"
            and (plan.applied or not plan.expects_token)
        ):
            yield plan.worker, plan


@define
class Narrator:
    """Tells of some jobs, one transaction after another."""

    number: int
    """Which jobs: those whose ID, divided, is this."""
    to_come: Counter[tuple[int, Attempt]]
    """How often an attempt is still going to be settled by its worker."""
    trace: Trace = field(factory=Trace)
    _runs: dict[Attempt, Worker] = field(factory=dict)
    """Attempts that have not ended, as far as is known."""
    _fenced: set[int] = field(factory=set)

    def tell(self, transaction: Transaction) -> None:
        """Add the steps that a transaction is."""
        step = self._teller(transaction)
        mine = {
            c.job: c for c in transaction.changes if c.job // JOBS_OF_A_TRACE == self.number
        }
        self._settle(transaction, mine, step)
        claims: dict[int, set[Attempt]] = {}
        for change in mine.values():
            if change.after is None or change.before is None:
                continue
            if change.after.lease != change.before.lease:
                found = claims.setdefault(change.after.worker or 0, set())
                found.add((Job(change.job), change.after.lease))
            else:
                self._moved(change, transaction, step)
        for worker, attempts in claims.items():
            self._claim(Worker(worker), attempts, step)
        for worker in transaction.fenced:
            if worker not in self._fenced:
                self._fenced.add(worker)
                step("fence", Worker(worker))

    def _teller(self, transaction: Transaction) -> Tell:
        def step(action: str, *given: object) -> None:
            self.trace.steps.append(Step(action, given, transaction))

        return step

    def _claim(self, worker: Worker, attempts: set[Attempt], step: Tell) -> None:
        step("begin claim", worker, frozenset(job for job, _ in attempts))
        step("commit claim", worker, frozenset(attempts))
        for one in sorted(attempts):
            step("hear", worker, one)
            self._runs[one] = worker

    def _settle(self, transaction: Transaction, mine: dict[int, Change], step: Tell) -> None:
        by_worker: dict[int, list[Planned]] = {}
        for worker, plan in plans_of_workers(transaction):
            if plan.job // JOBS_OF_A_TRACE == self.number:
                by_worker.setdefault(worker, []).append(plan)
        for worker, plans in by_worker.items():
            who = Worker(worker)
            for plan in plans:
                change = mine.pop(plan.job, None) if plan.applied else None
                to = STATES[plan.to_state]
                if change is not None and change.after is not None:
                    to = STATES[change.after.state]
                self._end(attempt(plan), to, step)
                self.to_come[worker, attempt(plan)] -= 1
            attempts = frozenset(map(attempt, plans))
            step("begin settle", who, attempts)
            step(
                "commit settle",
                who,
                frozenset(attempt(plan) for plan in plans if plan.applied),
                frozenset(attempt(plan) for plan in plans if carried_out(plan)),
                # The answer was lost, if it comes again.
                any(self.to_come[worker, one] > 0 for one in attempts),
            )

    def _end(self, one: Attempt, to: str, step: Tell) -> None:
        worker = self._runs.pop(one, None)
        if worker is not None:
            step("end", worker, one, to)

    def _moved(self, change: Change, transaction: Transaction, step: Tell) -> None:
        was, now = change.before, change.after
        assert was is not None
        assert now is not None
        before, after = STATES[was.state], STATES[now.state]
        if before == after:
            return
        one = (Job(change.job), now.lease)
        plan = next((p for p in transaction.plans if p.job == change.job and p.applied), None)
        if plan is None and (before, after) == ("running", "waiting"):
            step("park", Worker(was.worker or 0), one)
        elif plan is None and (before, after) == ("waiting", "running"):
            step("resume", Worker(now.worker or 0), one)
        elif plan is not None and plan.worker is not None and before == "waiting":
            self._end(one, after, step)
            step("leave", Worker(plan.worker), one, after)
        else:
            self._end(one, after, step)
            step("others", Job(change.job), after, change.job in transaction.excused)


def carried_out(plan: Planned) -> bool:
    """Whether a completion has what it was to come with; nothing, if that is all."""
    if plan.to_state != "completed":
        return False
    if not plan.inserts:
        return plan.applied
    return any(insert.job is not None for insert in plan.inserts) or (
        plan.applied and all(insert.holder is not None for insert in plan.inserts)
    )

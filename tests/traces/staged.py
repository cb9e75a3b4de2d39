"""The traces of AwaStagedFollowUps that a history is.

Jobs that stage a key in common are in one trace, whatever else they do; each of the others
has a trace of its own. So a state of the model is small, whatever the history's length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from .history import Change, Planned, Transaction
from .witness import Staged

#: The states of the model.
STATES = {
    "scheduled": "available",
    "available": "available",
    "retryable": "available",
    "running": "running",
    "waiting_external": "waiting",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "failed",
}


@frozen(order=True)
class Key:
    """A unique key; or, of a follow-up without one, what no other can have."""

    name: str


@frozen
class Worker:
    """The ID of a worker."""

    id: int


@frozen
class Step:
    """A step that the model is to make."""

    action: str
    given: tuple[object, ...]
    """Jobs are ints, as are leases: the job comes first. Keys are `Key`, and may be in a set."""
    transaction: Transaction = field(eq=False)

    def __str__(self) -> str:
        return f"{self.action} {', '.join(map(str, self.given))}"


@define
class Trace:
    """Steps of some jobs and keys, each numbered from 1."""

    steps: list[Step] = field(factory=list)
    jobs: dict[int, int] = field(factory=dict)
    keys: dict[Key, int] = field(factory=dict)

    def text(self) -> str:
        """Return it as a TLA+ record."""
        steps = ",\n  ".join(map(self._step, self.steps))
        return (
            f"[jobs |-> {len(self.jobs)}, keys |-> {len(self.keys)}, steps |-> <<\n  {steps}>>]"
        )

    def _step(self, step: Step) -> str:
        given = [
            self._job(value) if n == 0 else self._value(value)
            for n, value in enumerate(step.given)
        ]
        return f"<<{', '.join([repr(step.action), *given])}>>".replace("'", '"')

    def _job(self, value: object) -> str:
        if isinstance(value, int):
            return str(self.jobs.setdefault(value, len(self.jobs) + 1))
        return self._value(value)

    def _value(self, value: object) -> str:
        if isinstance(value, Key):
            return str(self.keys.setdefault(value, len(self.keys) + 1))
        if isinstance(value, Worker):
            return str(value.id)
        if isinstance(value, frozenset):
            return "{" + ", ".join(map(self._value, sorted(value))) + "}"
        return f'"{value}"' if isinstance(value, str) else str(value)


def steps(transaction: Transaction, seen: Staged) -> Iterator[Step]:
    """Yield the steps that a transaction is: keys change hands before anything is inserted."""

    def step(action: str, *given: object) -> Step:
        return Step(action, given, transaction)

    for worker in transaction.fenced:
        yield step("fence", Worker(worker))
    follow_ups = {i.job for p in transaction.plans for i in p.inserts if i.job is not None}
    for key, _ in transaction.freed:
        yield step("release", Key(key))
    for key, job in transaction.held:
        if job not in follow_ups:
            yield step("occupy", Key(key))
    born = transaction.born
    for job, fact in born.items():
        if fact.by is not None and job not in follow_ups:
            yield step("inserted apart", fact.by, job)
    changes = {change.job: change for change in transaction.changes}
    for plan in transaction.plans:
        if not plan.applied:
            continue
        for insert in plan.inserts:
            if insert.job is not None and insert.job not in born:
                yield step("never inserted", plan.job, insert.job)
        for action, *given in settled(plan, changes.pop(plan.job, None), seen):
            yield step(action, *given)
    for change in changes.values():
        for action, *given in changed(change):
            yield step(action, *given)


def settled(
    plan: Planned, change: Change | None, seen: Staged
) -> Iterator[tuple[str, *tuple[object, ...]]]:
    """Yield the steps that an applied plan is."""
    job, lease = plan.job, plan.lease
    was = None if change is None else change.before
    now = None if change is None else change.after
    if was is None or now is None:
        yield "settled without a row", job
        return
    became = STATES[now.state]
    if (became == "completed") != (plan.to_state == "completed"):
        yield "settled as something else", job, became
    elif became == "completed":
        if plan.worker is None:
            yield "external", job
            return
        keys = [
            Key(f"{job} {lease} {n}" if insert.key is None else insert.key)
            for n, insert in enumerate(plan.inserts)
        ]
        missing = lacks(plan, seen.get((plan.worker, job, now.attempt)))
        for key in dict.fromkeys([*keys, *(Key(f"{job} {lease} {kind}") for kind in missing)]):
            yield "stage", job, lease, key
        yield "return", job, lease
        inserted = zip(keys, plan.inserts, strict=True)
        made = frozenset(key for key, insert in inserted if insert.job is not None)
        yield "commit", job, lease, made, Worker(plan.worker)
    elif plan.worker is not None and STATES[was.state] == "running":
        yield "end", job, lease, became, Worker(plan.worker)
    elif became != STATES[was.state]:
        yield "reopen" if STATES[was.state] == "failed" else "take", job, became


def lacks(plan: Planned, seen: list[list[str]] | None) -> list[str]:
    """Return the kinds that an attempt was seen to stage and its plan does not have.

    Of several attempts with its number it is the one that explains it best.
    """
    had = Counter(insert.kind for insert in plan.inserts)
    lacking = [sorted((Counter(kinds) - had).elements()) for kinds in seen or [[]]]
    return min(lacking, key=len)


def changed(change: Change) -> Iterator[tuple[str, *tuple[object, ...]]]:
    """Yield the step that a change without a plan is, if it is one."""
    job, was, now = change.job, change.before, change.after
    if was is None:
        if now is not None and STATES[now.state] != "available":
            yield "born otherwise", job
        return
    if now is None:
        if STATES[was.state] not in ("completed", "failed"):
            yield "lost", job
        return
    before, after = STATES[was.state], STATES[now.state]
    if now.lease != was.lease:
        yield "claim", job, now.lease, Worker(now.worker or 0)
    elif after == "completed" != before:
        yield "completed by nobody", job
    elif (before, after) == ("running", "waiting"):
        yield "park", job, now.lease, Worker(now.worker or 0)
    elif (before, after) == ("waiting", "running"):
        yield "resume", job, now.lease, Worker(now.worker or 0)
    elif before in ("failed", "completed") and after != before:
        yield "reopen", job
    elif before != after:
        yield "take", job, after


def traces(history: Iterable[Transaction], seen: Staged | None = None) -> list[Trace]:
    """Return the traces that a history is.

    Args:
      history: transactions in the order in which they committed.
      seen: what witnesses saw being staged.
    """
    found = [step for transaction in history for step in steps(transaction, seen or {})]
    groups = Groups()
    for step in found:
        if step.action == "stage":
            job, _, key = step.given
            groups.join(job, key)
    known: dict[object, set[Worker]] = {}
    for step in found:
        known.setdefault(groups.of(step.given[0]), set()).update(
            value for value in step.given if isinstance(value, Worker)
        )
    made: dict[object, Trace] = {}
    for step in found:
        about = step.given[0]
        if isinstance(about, Worker):
            for group, workers in known.items():
                if about in workers and group != about:
                    made.setdefault(group, Trace()).steps.append(step)
        elif isinstance(about, int) or groups.knows(about):
            made.setdefault(groups.of(about), Trace()).steps.append(step)
    return list(made.values())


class Groups:
    """What belongs together."""

    def __init__(self) -> None:
        self._parents: dict[object, object] = {}

    def knows(self, one: object) -> bool:
        """Whether it was joined with anything."""
        return one in self._parents

    def of(self, one: object) -> object:
        """Return what stands for its group."""
        root = one
        while (parent := self._parents.get(root, root)) != root:
            root = parent
        while self._parents.get(one, root) != root:
            self._parents[one], one = root, self._parents[one]
        return root

    def join(self, one: object, other: object) -> None:
        """Put two groups together."""
        self._parents.setdefault(one, one)
        self._parents.setdefault(other, other)
        self._parents[self.of(one)] = self.of(other)

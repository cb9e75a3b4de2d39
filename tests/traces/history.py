"""What each transaction changed, in the order in which they committed.

Both engines come out alike: a job is in a state, under a lease, of a worker, whether a row
says so or what was appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import define, evolve, field, frozen

from .recording import Event


@frozen
class Fact:
    """What a job is."""

    state: str
    lease: int
    worker: int | None
    attempt: int
    by: int | None
    """The job that it is a follow-up of."""


@frozen
class Change:
    """What a transaction made of a job."""

    job: int
    before: Fact | None
    """None if it did not exist."""
    after: Fact | None
    """None if it does not exist any more."""


@frozen
class Insert:
    """A follow-up that was to come with a plan."""

    kind: str
    key: str | None
    """The unique key that it holds from then on; None if it holds none as yet."""
    job: int | None
    """None if it was left out, or its plan was stale."""
    holder: int | None


@frozen
class Planned:
    """A plan that a settlement was called with."""

    worker: int | None
    job: int
    lease: int
    from_state: str
    to_state: str
    expects_token: bool
    """Whether it is for a callback that it names, and for no other."""
    applied: bool
    inserts: tuple[Insert, ...]


@define
class Transaction:
    """What one did."""

    xid: int
    events: list[Event] = field(factory=list)
    changes: list[Change] = field(factory=list)
    plans: list[Planned] = field(factory=list)
    freed: list[tuple[str, int]] = field(factory=list)
    held: list[tuple[str, int]] = field(factory=list)
    fenced: list[int] = field(factory=list)
    """Workers from which nothing is accepted any more."""
    excused: set[int] = field(factory=set)
    """Jobs of which others may decide, whoever runs them."""

    @property
    def number(self) -> int:
        """Its place in the history."""
        return self.events[-1].number

    @property
    def born(self) -> dict[int, Fact]:
        """The jobs that it inserted."""
        return {
            c.job: c.after for c in self.changes if c.before is None and c.after is not None
        }


class History:
    """The facts, as one transaction after another changes them."""

    def __init__(self) -> None:
        self._facts: dict[int, Fact] = {}
        self._rows: set[int] = set()
        self._lanes: set[int] = set()

    def apply(self, events: Iterable[Event]) -> Iterator[Transaction]:
        """Yield the transactions, in the order in which they committed."""
        by_xid: dict[int, Transaction] = {}
        for event in sorted(events, key=lambda e: e.number):
            by_xid.setdefault(event.xid, Transaction(event.xid)).events.append(event)
        for transaction in sorted(by_xid.values(), key=lambda t: t.number):
            self._commit(transaction)
            yield transaction

    def _commit(self, transaction: Transaction) -> None:
        before: dict[int, Fact | None] = {}
        for event in transaction.events:
            facts = event.facts
            for job in facts.get("jobs") or ([facts["job"]] if "job" in facts else []):
                if "key" not in facts:
                    before.setdefault(job, self._facts.get(job))
            match event.what:
                case "settlement":
                    transaction.plans += planned(facts)
                case "key free":
                    transaction.freed.append((facts["key"], facts["job"]))
                case "key held":
                    transaction.held.append((facts["key"], facts["job"]))
                case "fenced" | "worker gone":
                    transaction.fenced.append(facts["worker"])
                case _:
                    self._change(event.what, facts)
                    if facts.get("excused"):
                        transaction.excused.add(facts["job"])
        for job in before:
            if job not in self._rows and job not in self._lanes:
                self._facts.pop(job, None)
        transaction.changes = [
            Change(job, was, self._facts.get(job)) for job, was in before.items()
        ]

    def _change(self, what: str, facts: dict[str, Any]) -> None:
        match what:
            case "row":
                self._rows.add(facts["job"])
                by = facts["by"] and int(facts["by"])
                self._facts[facts["job"]] = Fact(
                    facts["state"], facts["lease"], facts["worker"], facts["attempt"], by
                )
            case "row gone":
                self._rows.discard(facts["job"])
            case "lane":
                self._lanes.add(facts["job"])
                by = facts["by"] and int(facts["by"])
                self._facts.setdefault(facts["job"], Fact("available", 0, None, 0, by))
            case "lane gone":
                self._lanes.discard(facts["job"])
            case "lane claimed":
                for job in facts["jobs"]:
                    was = self._facts[job]
                    lease, attempt = was.lease + 1, was.attempt + 1
                    self._facts[job] = Fact("running", lease, facts["worker"], attempt, was.by)
            case "lane completed":
                for job in facts["jobs"]:
                    self._facts[job] = evolve(self._facts[job], state="completed", worker=None)
            case "truncated":
                self._lanes.difference_update(facts["jobs"])
            case _:
                raise AssertionError(what)


def planned(facts: dict[str, Any]) -> list[Planned]:
    """Return the plans of a settlement, each with its inserts."""
    inserts: dict[int, list[Insert]] = {}
    for one in facts["inserts"] or ():
        inserts.setdefault(one["plan"], []).append(
            Insert(one["kind"], one["key"], one["job"], one["holder"])
        )
    return [
        Planned(
            facts["worker"], p["job"], p["lease"], p["from"], p["to"], p["token"], p["applied"],
            tuple(inserts.get(p["number"], ())),
        )
        for p in facts["plans"]
    ]  # fmt: skip

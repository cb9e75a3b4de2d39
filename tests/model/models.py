"""The models of docs/model, and what is expected of each with which constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from attrs import field, frozen

from . import tlc


@frozen
class Model:
    """A module with its rules in force."""

    module: str
    constants: Mapping[str, str]
    invariants: tuple[str, ...]
    symmetric: bool = True

    def config(self, changes: Mapping[str, str]) -> str:
        """Return the text of a configuration."""
        values = {**self.constants, **changes}
        # A name that stands for itself, such as a job's, is a constant of its own.
        names = {
            n for v in values.values() for n in v.strip("{}").split(", ") if n.isidentifier()
        }
        lines = [f"{name} = {value}" for name, value in values.items()]
        lines += [f"{name} = {name}" for name in sorted(names - {"TRUE", "FALSE"})]
        return "\n".join(
            ["SPECIFICATION Spec", "CONSTANTS", *lines, "INVARIANTS", *self.invariants]
            + (["SYMMETRY Symmetry"] if self.symmetric else [])
        )


@frozen
class Case:
    """A model with some constants, and what TLC is to say."""

    model: Model
    name: str
    changes: Mapping[str, str]
    violated: str | None = None
    """The invariant that does not hold; None if all do."""
    states: int | None = None
    """Distinct states, where all are looked at."""
    deep: bool = field(default=False, kw_only=True)
    """Whether it takes minutes."""

    @property
    def id(self) -> str:
        """What it is called."""
        return f"{self.model.module}: {self.name}"

    def check(self, *, workers: int = 1, seconds: float = 300) -> tlc.Checked:
        """Run TLC on it."""
        return tlc.check(
            tlc.MODELS / f"{self.model.module}.tla",
            self.model.config(self.changes),
            workers=workers,
            seconds=seconds,
        )

    def row(self, checked: tlc.Checked) -> str:
        """Return what came of it, as a row of the table in the models' README."""
        said = "holds" if checked.violated is None else f"`{checked.violated}` is violated"
        return f"| {self.name} | {said} | {checked.distinct:,} |"


def rules(*names: str) -> dict[str, str]:
    """Return rules in force."""
    return dict.fromkeys(names, "TRUE")


def without(rule: str) -> dict[str, str]:
    """Return a rule out of force."""
    return {rule: "FALSE"}


STAGED = Model(
    "AwaStagedFollowUps",
    {
        "Jobs": "{j1, j2}",
        "Keys": "{k1, k2}",
        "MaxLease": "2",
        "MaxStaged": "1",
        "Nobody": "Nobody",
    }
    | {"Insertion": '"with"'}
    | rules("GuardLease", "Borrow", "Carried", "Dedup"),
    ("Traceable", "OnePerKey", "Covered", "Current", "TypeOK"),
)
WORKERS = Model(
    "AwaWorkers",
    {
        "Jobs": "{j1, j2}",
        "Workers": "{w1, w2}",
        "MaxLease": "2",
        "Nobody": "Nobody",
        "Poison": "{j2}",
        "Endings": '{"completed"}',
    }
    | rules("FenceGuard", "FenceLock", "LeaseGuard", "PlanGuard", "Alone", "ClaimLock"),
    ("Silent", "Exclusive", "Together", "Current", "Neighbours", "Recoverable"),
)
SEGMENTS = Model(
    "AwaSegments",
    {"Jobs": "{j1, j2}", "Places": "2", "MaxNumber": "2", "Nothing": "Nothing"}
    | rules(
        "LookAgain", "DrainLock", "NoteOpen", "OneSnapshot", "EndLock", "WhenOver", "ReadersFirst"
    ),
    ("Findable", "Kept", "OneEnd", "Stable"),
)  # fmt: skip
LOCKS = Model(
    "AwaLockOrder",
    {
        "Transactions": "{1, 2}",
        "Lanes": "{1}",
        "Claims": "{1}",
        "Jobs": "{1, 2}",
        "Keys": "{1, 2}",
    }
    | rules("ByNumber", "OnePass", "KeysLast"),
    ("NoCircle",),
    symmetric=False,
)

NO_KEYS, NO_JOBS, NO_CLAIMS, NO_LANES = (
    {name: "{}"} for name in ("Keys", "Jobs", "Claims", "Lanes")
)

ONE_JOB = {"Jobs": "{j1}", "Poison": "{}"}
GIVEN_UP = {"Endings": '{"completed", "available"}'}
"""Attempts that end without completing their job as well."""

CASES = [
    Case(STAGED, "as it is", {}, None, 34543),
    # ADR-046, "Validation": each of its negative configurations.
    Case(STAGED, "inserts before the completion", {"Insertion": '"before"'}, "Traceable"),
    Case(STAGED, "inserts after the completion", {"Insertion": '"after"'}, "Covered"),
    Case(STAGED, "completes without the lease guard", without("GuardLease"), "Current"),
    Case(STAGED, "drains the follow-ups on the first try", without("Borrow"), "Covered"),
    Case(STAGED, "sends a staging job down a path without inserts", without("Carried"), "Covered"),
    Case(STAGED, "takes a key that is held", without("Dedup"), "OnePerKey"),
    Case(WORKERS, "as it is, a claim each", {"MaxLease": "1"}, None, 25321),
    Case(WORKERS, "as it is, one job, given up too", ONE_JOB | GIVEN_UP, None, 2931),
    Case(WORKERS, "accepts a fenced worker", without("FenceGuard"), "Silent"),
    Case(WORKERS, "fences a worker that is writing", without("FenceLock"), "Silent"),
    Case(WORKERS, "settles without the lease guard", without("LeaseGuard"), "Current"),
    Case(WORKERS, "inserts what comes with a stale plan of a set", without("PlanGuard"), "Together"),
    Case(WORKERS, "fails a set that is refused", without("Alone"), "Neighbours"),
    Case(WORKERS, "hands back what it is being given", without("ClaimLock"), "Exclusive"),
    Case(SEGMENTS, "as it is", {}, None, 14672),
    Case(SEGMENTS, "appends without looking again", without("LookAgain"), "Findable"),
    Case(SEGMENTS, "drains while someone appends", without("DrainLock"), "Findable"),
    Case(SEGMENTS, "forgets the transactions that it passes", without("NoteOpen"), "Findable"),
    Case(SEGMENTS, "notes those that are open a moment later", without("OneSnapshot"), "Findable"),
    Case(SEGMENTS, "ends attempts without a lock", without("EndLock"), "OneEnd"),
    Case(SEGMENTS, "truncates what is drained", without("WhenOver"), "Kept"),
    Case(SEGMENTS, "truncates under a reader", without("ReadersFirst"), "Stable"),
    Case(LOCKS, "as it is, rows", NO_LANES | NO_CLAIMS, None, 22481),
    Case(LOCKS, "as it is, lanes", {"Jobs": "{1}", "Keys": "{1}"}, None, 13750),
    Case(LOCKS, "locks jobs as they come", without("ByNumber") | NO_LANES | NO_CLAIMS | NO_KEYS, "NoCircle"),
    Case(LOCKS, "takes keys, then lets go of others", without("OnePass") | NO_LANES | NO_CLAIMS | NO_JOBS, "NoCircle"),
    Case(LOCKS, "moves jobs after it has let go of keys", without("KeysLast") | NO_CLAIMS | NO_JOBS, "NoCircle"),
]  # fmt: skip

DEEP = [
    Case(STAGED, "three keys, two of them in an attempt", {"Keys": "{k1, k2, k3}", "MaxStaged": "2"}, states=324385, deep=True),
    Case(STAGED, "three claims, one key", {"MaxLease": "3", "Keys": "{k1}"}, states=469901, deep=True),
    Case(WORKERS, "two claims each", {}, states=616198, deep=True),
    Case(WORKERS, "a claim each, given up too", {"MaxLease": "1"} | GIVEN_UP, states=79733, deep=True),
    Case(SEGMENTS, "three places", {"Places": "3", "MaxNumber": "4"}, states=323608, deep=True),
    Case(SEGMENTS, "three jobs", {"Jobs": "{j1, j2, j3}"}, states=447404, deep=True),
    Case(LOCKS, "everything", {}, states=345745, deep=True),
]  # fmt: skip


def cases(*, deep: bool) -> Iterator[Case]:
    """Yield all; those that take minutes only if asked."""
    return chain(CASES, DEEP if deep else ())

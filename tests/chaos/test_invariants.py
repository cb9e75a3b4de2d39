"""Each invariant holds of what is as it should be, and not of what has been tampered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from .app import ON_ITS_WAY
from .evidence import Evidence, Life, Row, Run, Settled, Snapshot
from .invariants import INVARIANTS, name_of, violations

A, INDEX, TOUCH, RECEIPT, NOTE, FAILED, OBITUARY, ALL = 1, 2, 3, 4, 5, 6, 7, 127
AWAKE = tuple(n * 0.05 for n in range(201))


def staged(id: int, kind: str, **args: Any) -> Row:
    key = {"index": (b"i", 31), "touch": (b"t", ON_ITS_WAY)}.get(kind, (None, None))
    metadata = {"awa:triggered_by": A, "run": "second"}
    return Row(id, kind, "completed", 1, 1, args, metadata, *key)


ROWS = (
    Row(A, "resolve", "completed", 2, 2, {"n": 0, "script": ["retry", "wait"]}, {}, b"a", ALL),
    staged(INDEX, "index", item=3),
    staged(TOUCH, "touch", item=3),
    staged(RECEIPT, "receipt", n=0, run="second", payload="yes"),
    Row(NOTE, "note", "completed", 1, 1, {"n": 0}, {"awa:triggered_by": A}),
    Row(FAILED, "resolve", "failed", 2, 2, {"n": 1, "script": ["raise"]}, {}, b"f", ALL),
    Row(OBITUARY, "obituary", "completed", 1, 1, {"n": 1}, {"awa:triggered_by": FAILED}),
)


def moment(*rows: Row, claims: dict[bytes, int] | None = None) -> Snapshot:
    held = {b"a": A, b"f": FAILED, b"i": INDEX}
    return Snapshot({row.id: row for row in rows}, held if claims is None else claims)


#: Two jobs. The first was tried by a worker that was killed, then by one that completed it.
SOUND = Evidence(
    [moment(*ROWS)],
    enqueued={A: 0, FAILED: 1},
    settled=[
        Settled(A, "resolve", "completed", (INDEX, TOUCH, RECEIPT, NOTE)),
        Settled(FAILED, "resolve", "failed", (OBITUARY,)),
    ],
    answered={A: {"yes"}},
    runs=[
        Run("first", A, 0, 1, 1, "worker-0-0", (7,), 1.0, 2.0),
        Run("second", A, 0, 2, 2, "worker-1-0", (3,), 4.0, 5.0, (4.2, 4.8)),
        Run("third", FAILED, 1, 1, 1, "worker-1-0", (5,), 1.0, 2.0),
        Run("fourth", FAILED, 1, 2, 2, "worker-1-0", (6,), 3.0, 3.5),
    ],
    lives={
        "worker-0-0": Life("worker-0-0", AWAKE[:41], -9, killed=True, asked=False),
        "worker-1-0": Life("worker-1-0", AWAKE),
    },
    roll={0: True, 1: True},
)


def rows(change: Callable[[dict[int, Row]], object]) -> Callable[[Evidence], Evidence]:
    """Tamper with what is in the database in the end."""

    def tampered(sound: Evidence) -> Evidence:
        changed = dict(sound.last.rows)
        change(changed)
        return attrs.evolve(sound, snapshots=[Snapshot(changed, sound.last.claims)])

    return tampered


def row(id: int, **changes: Any) -> Callable[[Evidence], Evidence]:
    """Tamper with one job."""
    return rows(lambda found: found.update({id: attrs.evolve(found[id], **changes)}))


def more(added: Row) -> Callable[[Evidence], Evidence]:
    """Put in one that nobody has."""
    return rows(lambda found: found.update({added.id: added}))


def evolved(**changes: Any) -> Callable[[Evidence], Evidence]:
    """Tamper with what people have seen."""
    return lambda sound: attrs.evolve(sound, **changes)


def run(name: str, **changes: Any) -> Callable[[Evidence], Evidence]:
    """Tamper with a run of a handler."""

    def tampered(sound: Evidence) -> Evidence:
        runs = [attrs.evolve(r, **changes) if r.name == name else r for r in sound.runs]
        return attrs.evolve(sound, runs=runs)

    return tampered


def life(**changes: Any) -> Callable[[Evidence], Evidence]:
    """Tamper with what became of a worker's process."""

    def tampered(sound: Evidence) -> Evidence:
        lives = dict(sound.lives)
        lives["worker-1-0"] = attrs.evolve(lives["worker-1-0"], **changes)
        return attrs.evolve(sound, lives=lives)

    return tampered


LOST = "nothing acknowledged is lost"
ENDS = "every job ends as it should"
OVERLAP = "no attempt overlaps another past fencing"
IFF = "follow ups exist iff a completion that staged them committed"
ONE = "at most one job holds a key"
SETTLED = "every claim of a job is settled"
CLAIMS = "unique claims match rows"
SESSIONS = "no session is left in a transaction"
LOUD = "every worker recovered or exited loudly"

PLANTED: list[tuple[str, str, Callable[[Evidence], Evidence]]] = [
    (LOST, "an enqueued job is gone", rows(lambda found: found.pop(FAILED))),
    (LOST, "it is another", row(FAILED, args={"n": 9, "script": ["raise"]})),
    (LOST, "a completion is undone", row(A, state="retryable")),
    (LOST, "a job that completed is gone", evolved(settled=[Settled(99, "x", "completed", ())])),
    (LOST, "a follow-up is gone", evolved(settled=[Settled(A, "x", "completed", (99,))])),
    (LOST, "an answer is gone", evolved(answered={A: {"no"}})),
    (LOST, "a cancellation is undone", evolved(cancelled=frozenset({A}))),
    (ENDS, "a job fails that need not", row(INDEX, state="failed")),
    (ENDS, "one completes that cannot", row(FAILED, state="completed")),
    (ENDS, "nobody has cancelled it", row(A, state="cancelled")),
    (ENDS, "a job is there twice", more(attrs.evolve(ROWS[0], id=99, unique_key=None))),
    (OVERLAP, "the first goes on when the second begins", run("third", ended=3.1)),
    (OVERLAP, "two have one lease", run("fourth", lease=1)),
    (OVERLAP, "it goes on after its wait", run("third", ended=3.9, waited=(1.5, 3.1))),
    (IFF, "a follow-up is missing", rows(lambda found: found.pop(INDEX))),
    (IFF, "a receipt is missing", rows(lambda found: found.pop(RECEIPT))),
    (IFF, "a note is missing", rows(lambda found: found.pop(NOTE))),
    (IFF, "an obituary is missing", rows(lambda found: found.pop(OBITUARY))),
    (IFF, "a receipt is there twice", more(attrs.evolve(ROWS[3], id=99))),
    (IFF, "a note is there twice", more(attrs.evolve(ROWS[4], id=99))),
    (IFF, "who staged it failed", row(INDEX, metadata={"awa:triggered_by": FAILED})),
    (IFF, "nobody staged it", row(INDEX, metadata={"run": "second"})),
    (IFF, "another attempt staged it", row(INDEX, args={"item": 7}, metadata={"awa:triggered_by": A, "run": "first"})),
    (IFF, "its attempt staged something else", row(INDEX, args={"item": 8})),
    (IFF, "another attempt's lease completed it", row(A, lease=3)),
    (IFF, "a job that completed left an obituary", row(OBITUARY, metadata={"awa:triggered_by": A})),
    (ONE, "two hold a key", more(attrs.evolve(ROWS[1], id=99))),
    (ONE, "two held a key for a moment", lambda sound: attrs.evolve(sound, snapshots=[moment(*ROWS, attrs.evolve(ROWS[2], id=99, state="running"), attrs.evolve(ROWS[2], id=98, state="retryable")), sound.last])),
    (ONE, "two for an item, without its key", more(attrs.evolve(ROWS[1], id=99, unique_key=None))),
    (SETTLED, "the queue did not drain", evolved(undrained=["job 99"])),
    (SETTLED, "a job is left behind", row(TOUCH, state="running")),
    (CLAIMS, "a holder is not in the table", evolved(snapshots=[moment(*ROWS, claims={b"a": A, b"f": FAILED})])),
    (CLAIMS, "the table has one that holds nothing", evolved(snapshots=[moment(*ROWS, claims={b"a": A, b"f": FAILED, b"i": INDEX, b"t": TOUCH})])),
    (CLAIMS, "the table has another", evolved(snapshots=[moment(*ROWS, claims={b"a": A, b"f": FAILED, b"i": NOTE})])),
    (SESSIONS, "one is", evolved(sessions=["session 1"])),
    (LOUD, "a worker does nothing", evolved(roll={0: True, 1: False})),
    (LOUD, "one does not stop", life(code=None)),
    (LOUD, "one ended in silence", life(code=1, asked=False)),
    (LOUD, "one ended as if all were well", life(said="goodbye", asked=False)),
    (LOUD, "one failed when it was to stop", life(code=1, said="oh")),
]  # fmt: skip


def test_what_is_sound_contradicts_nothing() -> None:
    assert violations(SOUND) == {}


@pytest.mark.parametrize(
    ("invariant", "tampered"),
    [p[::2] for p in PLANTED],
    ids=[": ".join(p[:2]) for p in PLANTED],
)
def test_a_planted_violation_is_found(
    invariant: str, tampered: Callable[[Evidence], Evidence]
) -> None:
    found = violations(tampered(SOUND))
    assert invariant in found
    assert all(found[invariant])


def test_there_is_one_for_each() -> None:
    assert {name_of(invariant) for invariant in INVARIANTS} == {p[0] for p in PLANTED}


GAP = tuple(at for at in AWAKE if not 2.5 < at < 4)
"""Of a process that stood still in between."""


@pytest.mark.parametrize(
    "tampered",
    [
        pytest.param(
            lambda sound: run("third", ended=4.1)(life(awake=GAP)(sound)), id="it stood still"
        ),
        pytest.param(
            run("third", ended=3.15, waited=(1.5, 3.1)), id="it waited for a callback"
        ),
        pytest.param(life(code=1, said="oh", asked=False), id="it ended loudly"),
        pytest.param(
            lambda sound: evolved(cancelling=frozenset({INDEX, A}))(sound), id="it was to be"
        ),
    ],
)
def test_what_may_be_is_no_violation(tampered: Callable[[Evidence], Evidence]) -> None:
    assert violations(tampered(SOUND)) == {}


@pytest.mark.parametrize("ended", [4.3, 5.0])
def test_one_that_stood_still_must_end_soon_after_it_woke_up(ended: float) -> None:
    found = violations(run("third", ended=ended)(life(awake=GAP)(SOUND)))
    assert list(found) == [OVERLAP]

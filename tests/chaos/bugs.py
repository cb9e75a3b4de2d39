"""Products that are broken on purpose: a run of one that contradicts nothing proves nothing."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ..traces.planting import plant


@frozen
class Change:
    """What is wrong in one function of the engine."""

    functions: tuple[str, ...]
    """Its names; it is changed in the first that there is."""
    right: str
    wrong: str


#: The segmented engine has the canonical one's under the first name.
_RESCUE = ("rescue_rows", "rescue")

#: Attempts are taken from workers that live. Without it the guards are hard to miss in a run:
#: whoever is fenced has noticed, and settles nothing.
_EAGER = Change(
    _RESCUE,
    "WHERE j.state = 'running'\n       AND (l.stale OR",
    "WHERE j.state = 'running'\n       AND (true OR",
)

#: By name, what each is made of.
BUGS: Mapping[str, tuple[Change, ...]] = {
    "no guards": (
        _EAGER,
        Change(("lock_worker",), "AND w.fenced_at IS NULL", ""),
        Change(("settle",), "AND j.run_lease = p.run_lease", ""),
    ),
    "eager rescue": (_EAGER,),
    "no follow-ups": (
        Change(
            ("settle",),
            "IF parents IS NOT NULL THEN\n        PERFORM awa.insert_jobs(",
            "IF false THEN\n        PERFORM awa.insert_jobs(",
        ),
    ),
    "no keys": (
        Change(("settle",), "IF taking IS NOT NULL OR releasing IS NOT NULL", "IF false"),
    ),
    "no rescue": (Change(_RESCUE, "RETURN QUERY", "RETURN; RETURN QUERY"),),
}


def break_product(dsn: str, name: str) -> None:
    """Plant a bug of `BUGS` in a database that has the schema and no jobs as yet."""
    for change in BUGS[name]:
        plant(dsn, change.functions, change.right, change.wrong)

"""Products that are broken on purpose: a run of one that contradicts nothing proves nothing."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ..traces.planting import plant


@frozen
class Change:
    """What is wrong in one function of the engine."""

    function: str
    right: str
    wrong: str


_FENCED = Change("lock_worker", "AND w.fenced_at IS NULL", "")
_LEASES = Change("settle", "AND j.run_lease = p.run_lease", "")

#: By name, what each is made of. Each contradicts an invariant, or, where a run happens to
#: get away with it, the models.
BUGS: Mapping[str, tuple[Change, ...]] = {
    # A worker that stood still for longer than its lease settles what is another's.
    "no guards": (_FENCED, _LEASES),
    "no fencing": (_FENCED,),
    "no follow-ups": (
        Change(
            "settle",
            "IF parents IS NOT NULL THEN\n        PERFORM awa.insert_jobs(",
            "IF false THEN\n        PERFORM awa.insert_jobs(",
        ),
    ),
    "no keys": (
        Change("settle", "IF taking IS NOT NULL OR releasing IS NOT NULL", "IF false"),
    ),
    "no rescue": (Change("rescue", "RETURN QUERY", "RETURN; RETURN QUERY"),),
}


def break_product(dsn: str, name: str) -> None:
    """Plant a bug of `BUGS` in a database that has the schema and no jobs as yet."""
    for change in BUGS[name]:
        plant(dsn, change.function, change.right, change.wrong)

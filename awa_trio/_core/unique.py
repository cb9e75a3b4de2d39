"""When two jobs are the same job: the options, and the key computed from them.

The definition is published, with test vectors, for programs in other languages:
docs/reference/unique-keys.md. Changing a single byte of it lets duplicates in.

Elsewhere: what holding a key means, and for how long, is the stores' business.

Source: ADR-046, "Guarantees"; ADR-002 of the ancestor, with SHA-256 for its hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from .._slips import nearest
from .errors import InvalidRequest
from .job import DEFAULT_UNIQUE_STATES
from .jsontext import MAX_INT, MIN_INT, canonical, name_of


def _flag(_: object, attribute: attrs.Attribute[bool], value: object) -> None:
    if type(value) is not bool:
        raise InvalidRequest(f"unique_opts.{attribute.name}: give a bool, not {name_of(value)}")


def _bucket(_: object, __: attrs.Attribute[int | None], value: object) -> None:
    if value is None:
        return
    if type(value) is not int or not MIN_INT <= value <= MAX_INT:
        raise InvalidRequest(
            "unique_opts.by_period: give the number of a period, a whole number of 64 bits,"
            " as period_bucket() computes it"
        )


def _mask(_: object, __: attrs.Attribute[int], value: object) -> None:
    if type(value) is not int or not 1 <= value <= 255:
        raise InvalidRequest(
            "unique_opts.states: give a mask from 1 to 255, the sum of JobState.bit of the"
            " states in which the job holds its key"
        )


@attrs.frozen(kw_only=True)
class UniqueOpts:
    """What makes a job a duplicate of another, and while the other is in which states.

    The defaults: at most one job per kind and args among those scheduled,
    available, running, retryable or completed.

    A mask may leave out a state its jobs pass through. A duplicate can then slip in
    while the first job is there, and the first cannot take its key back: it is
    cancelled as a duplicate, or completes without the key.

    Raises:
      InvalidRequest: an option is out of range; ``problem`` names it.
    """

    by_queue: bool = attrs.field(default=False, validator=_flag)
    """Whether jobs in different queues differ."""
    by_args: bool = attrs.field(default=True, validator=_flag)
    """Whether jobs with different arguments differ. Arguments are the same when they are
    stored as the same JSON, whatever the order of its keys: 1 and 1.0 differ, and so do
    ``Decimal("1.0")`` and ``Decimal("1.00")``, and one instant in two time zones."""
    by_period: int | None = attrs.field(default=None, validator=_bucket)
    """The number of a period, see `period_bucket`: jobs of different periods differ."""
    states: int = attrs.field(default=DEFAULT_UNIQUE_STATES, validator=_mask)
    """The states in which a job holds its key, as a mask of `JobState.bit`."""

    @classmethod
    def coerce(cls, given: UniqueOpts | Mapping[str, Any]) -> UniqueOpts:
        """Turn a mapping such as ``{"by_queue": True}`` into options; ``{}`` is the defaults.

        Raises:
          InvalidRequest: an option does not exist, or is out of range.
        """
        if isinstance(given, UniqueOpts):
            return given
        if not isinstance(given, Mapping):
            raise InvalidRequest(
                f"unique_opts: give UniqueOpts(...) or a mapping, not {name_of(given)}"
            )
        refuse_unknown("unique_opts", given, _NAMES)
        return cls(**given)


_NAMES = tuple(field.name for field in attrs.fields(UniqueOpts))


def refuse_unknown(where: str, given: Collection[object], known: Collection[str]) -> None:
    """Refuse names that are not known, and suggest the nearest that is.

    Raises:
      InvalidRequest: as it says.
    """
    for name in given:
        if name not in known:
            near = nearest(str(name), known, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InvalidRequest(f"{where}: there is no option {name!r}; {hint}")


def unique_key(kind: str, queue: str, args: object, opts: UniqueOpts) -> bytes:
    """Compute the 16 bytes that all jobs have which count as the same one.

    The first 16 bytes of SHA-256 over the kind; then, each after a zero byte and
    each only if asked for: the queue, the canonical JSON of the arguments, and the
    period as a signed 64-bit little-endian integer.

    Args:
      kind: the job's kind.
      queue: the job's queue.
      args: the job's arguments as plain JSON values; see `jsontext.canonical`.
      opts: what counts.

    Source: docs/reference/unique-keys.md, where the test vectors are.
    """
    parts = [kind.encode()]
    if opts.by_queue:
        parts.append(queue.encode())
    if opts.by_args:
        parts.append(canonical(args))
    if opts.by_period is not None:
        parts.append(opts.by_period.to_bytes(8, "little", signed=True))
    return hashlib.sha256(b"\0".join(parts)).digest()[:16]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def period_bucket(seconds: int, at: datetime) -> int:
    """Number the period in which an instant lies, for ``UniqueOpts.by_period``.

    Periods begin at the epoch, 1970-01-01 00:00 UTC, which is in period 0. Give the
    instant the job is *for*, such as its ``run_at``, not the one at which it is
    enqueued: then enqueueing an hour early does not make it another job.

    Args:
      seconds: the length of a period.
      at: an instant, timezone-aware.

    Raises:
      InvalidRequest: ``seconds`` is not a positive integer, or ``at`` is not aware.
    """
    if type(seconds) is not int or seconds < 1:
        raise InvalidRequest("period_bucket: give seconds as a positive integer")
    if at.utcoffset() is None:
        raise InvalidRequest("period_bucket: give a timezone-aware datetime")
    return (at - _EPOCH) // timedelta(microseconds=1) // (seconds * 1_000_000)

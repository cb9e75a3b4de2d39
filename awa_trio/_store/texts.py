"""The insert of jobs as one value for any driver: SQL in pieces, and parameters that are all text.

Drivers differ in how a place for a parameter is written, and in what they make of lists, JSON,
bytes and instants, which their users may have changed. So a place is spelled last, and every
parameter is a str or None that PostgreSQL reads as the type it is cast to.

Elsewhere: the same insert for connections of our own, in binary, `inserts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

import attrs

from .._core.job import PreparedInsert
from .inserts import tags_text


@attrs.frozen
class Statement:
    """A statement whose places for parameters are yet to be spelled."""

    pieces: tuple[str, ...]
    """The SQL before, between and after the places: one more than there are parameters."""
    parameters: tuple[str | None, ...] = attrs.field(repr=False)
    """All text; PostgreSQL casts them."""

    def sql(self, place: Callable[[int], str]) -> str:
        """Return the SQL, given how the place of a parameter, counted from 1, is written."""
        spelled = [place(n) + piece for n, piece in enumerate(self.pieces[1:], 1)]
        return self.pieces[0] + "".join(spelled)


@attrs.frozen
class _Column:
    """One parameter of ``awa.enqueue``, and the array of them that ``awa.enqueue_many`` takes."""

    one: str
    many: str
    one_type: str
    many_type: str
    text: Callable[[PreparedInsert], str | None]


def _decoded(json: bytes | None) -> str | None:
    return None if json is None else json.decode()


_COLUMNS = (
    _Column("kind", "kinds", "text", "text", lambda job: job.kind),
    _Column("queue", "queues", "text", "text", lambda job: job.queue),
    _Column("args", "args", "json", "json", lambda job: job.args.decode()),
    _Column("priority", "priorities", "int4", "int2", lambda job: str(job.priority)),
    _Column("max_attempts", "max_attempts", "int4", "int2", lambda job: str(job.max_attempts)),
    _Column("metadata", "metadata", "json", "json", lambda job: _decoded(job.metadata)),
    _Column("tags", "tags", "text[]", "text", lambda job: tags_text(job.tags)),
    _Column(
        "run_at",
        "run_at",
        "timestamptz",
        "timestamptz",
        lambda job: None if job.run_at is None else job.run_at.astimezone(UTC).isoformat(),
    ),
    _Column(
        "unique_key",
        "unique_keys",
        "bytea",
        "bytea",
        lambda job: None if job.unique_key is None else rf"\x{job.unique_key.hex()}",
    ),
    _Column(
        "unique_states",
        "unique_states",
        "int4",
        "int2",
        lambda job: str(job.unique_states) if job.unique_states else None,
    ),
    _Column("ordering_key", "ordering_keys", "text", "text", lambda job: job.ordering_key),
    _Column("limit_key", "limit_keys", "text", "text", lambda job: job.limit_key),
    _Column(
        "deadline",
        "deadlines",
        "float8",
        "float8",
        lambda job: None if job.deadline is None else repr(float(job.deadline)),
    ),
)


def _pieces(function: str, parameters: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The call of one of our functions, in pieces around its parameters."""
    pieces = [f"SELECT id, inserted FROM awa.{function}("]  # noqa: S608, names of ours
    for name, type_ in parameters:
        pieces[-1] += f"{name} => CAST(CAST("
        pieces.append(f" AS pg_catalog.text) AS pg_catalog.{type_}), ")
    pieces[-1] = pieces[-1].removesuffix(", ") + ")"
    return tuple(pieces)


_ONE = _pieces("enqueue", [(c.one, c.one_type) for c in _COLUMNS])
_MANY = _pieces("enqueue_many", [(c.many, f"{c.many_type}[]") for c in _COLUMNS])


def insertion_in_texts(jobs: Sequence[PreparedInsert]) -> Statement:
    """Return the statement that inserts jobs, one or more; its rows are ID and whether inserted."""
    if len(jobs) == 1:
        return Statement(_ONE, tuple([column.text(jobs[0]) for column in _COLUMNS]))
    columns = [[column.text(job) for job in jobs] for column in _COLUMNS]
    return Statement(_MANY, tuple([_array(texts) for texts in columns]))


def _array(texts: Sequence[str | None]) -> str | None:
    """The text of an array; None where every item is: the function fills it up with nulls."""
    if all(text is None for text in texts):
        return None
    return "{" + ",".join(["NULL" if text is None else _quoted(text) for text in texts]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def enqueued_row(row: Any) -> tuple[int, bool]:
    """Return what one of its rows says, whatever class the driver gives it."""
    job_id, inserted = row
    return int(job_id), bool(inserted)

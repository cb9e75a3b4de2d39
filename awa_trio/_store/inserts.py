"""Jobs to insert, as parameters of the SQL functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from psycopg.types.numeric import Int4

from .._core.job import PreparedInsert
from .._pg import arrays


def values(job: PreparedInsert) -> tuple[Any, ...]:
    """Return one job's parameters as ``awa.enqueue`` takes them, but for the last."""
    return (
        job.kind,
        job.args.decode(),
        job.queue,
        Int4(job.priority),
        Int4(job.max_attempts),
        arrays.texts(job.tags) if job.tags else None,
        None if job.metadata is None else job.metadata.decode(),
        job.run_at,
        job.unique_key,
        Int4(job.unique_states),
        job.ordering_key,
        job.deadline,
        job.limit_key,
    )


#: How many parameters `columns` returns.
COLUMNS = 13


def columns(jobs: Sequence[PreparedInsert]) -> tuple[Any, ...]:
    """Return one array per column, kinds to limit keys, as ``awa.enqueue_many`` takes them.

    A column in which every job has the default is None: unnest() fills it with nulls.
    """
    return (
        arrays.texts([job.kind for job in jobs]),
        arrays.texts([job.queue for job in jobs]),
        arrays.jsons([job.args for job in jobs]),
        arrays.int2s([job.priority for job in jobs]),
        arrays.int2s([job.max_attempts for job in jobs]),
        optional(arrays.jsons, [job.metadata for job in jobs]),
        optional(arrays.texts, [tags_text(job.tags) for job in jobs]),
        optional(arrays.timestamptzs, [job.run_at for job in jobs]),
        optional(arrays.byteas, [job.unique_key for job in jobs]),
        optional(arrays.int2s, [job.unique_states or None for job in jobs]),
        optional(arrays.texts, [job.ordering_key for job in jobs]),
        optional(arrays.float8s, [job.deadline for job in jobs]),
        optional(arrays.texts, [job.limit_key for job in jobs]),
    )


NO_COLUMNS: tuple[None, ...] = (None,) * COLUMNS


def optional(
    make: Callable[[list[Any]], arrays.Array], items: list[Any]
) -> arrays.Array | None:
    """Return an array, or None where every item is: unnest() fills it up with nulls."""
    return make(items) if any(item is not None for item in items) else None


def tags_text(tags: Iterable[str]) -> str | None:
    """Return the text of a ``text[]``: arrays of arrays cannot be of unequal lengths."""
    quoted = [tag.replace("\\", "\\\\").replace('"', '\\"') for tag in tags]
    return '{"' + '","'.join(quoted) + '"}' if quoted else None

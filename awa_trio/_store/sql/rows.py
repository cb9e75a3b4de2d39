"""What a row that several parts read says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._core.instants import instant
from ..._core.job import JobDetails, JobState
from ..._core.job_errors import job_errors


def details(row: Sequence[Any]) -> JobDetails:
    """Return the job that a row of ``awa.get_jobs`` is."""
    *facts, state, errors, worker, attempted, deadline, finalized, key, states = row[:22]
    progress, answer, output, dead_letter, token, until, limit_key = row[22:]
    held = None if key is None else bytes(key)
    *instants, until = [
        None if at is None else instant(at) for at in (attempted, deadline, finalized, until)
    ]
    known = job_errors(errors)
    own = [progress, answer, limit_key, JobState(state), known, worker, *instants, held, states]
    return JobDetails(*facts, *own, *[output, dead_letter, token, until])

"""What notifications of the SQL functions mean."""

from __future__ import annotations

from ..._core.job import JobState
from ..._seam.hearing import Answered, CutElsewhere, GotWork, News, Overridden

#: As the SQL functions name them.
JOBS_CHANNEL = "awa:jobs"
CUT_CHANNEL = "awa:cut"
CALLBACKS_CHANNEL = "awa:callbacks"
QUEUES_CHANNEL = "awa:queues"


def parse(channel: str, payload: str) -> News | None:
    """Return what a notification means; None if it means nothing: anyone may send one."""
    if channel == JOBS_CHANNEL:
        return GotWork(payload) if 0 < len(payload) <= 200 else None
    if channel == QUEUES_CHANNEL:
        return Overridden(payload)
    if channel == CUT_CHANNEL:
        try:
            job_id, run_lease, state = payload.split(" ")
            return CutElsewhere(int(job_id), int(run_lease), JobState(state))
        except ValueError:
            return None
    if channel == CALLBACKS_CHANNEL:
        try:
            job_id, run_lease = payload.split(" ")
            return Answered(int(job_id), int(run_lease))
        except ValueError:
            return None
    return None

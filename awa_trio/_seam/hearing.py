"""What a worker may hear from its store. All of it is a hint: polling finds it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from .._core.job import JobState


@attrs.frozen
class GotWork:
    """A queue got a job that is due."""

    queue: str


@attrs.frozen
class CutElsewhere:
    """Someone else settled an attempt that was running, or waited for a callback."""

    job_id: int
    run_lease: int
    to_state: JobState
    """What became of the job."""


@attrs.frozen
class Answered:
    """The callback of an attempt was answered."""

    job_id: int
    run_lease: int


@attrs.frozen
class Overridden:
    """Settings of a queue have been overridden, or are not any more."""

    queue: str


@attrs.frozen
class Reconnected:
    """Hearing begins, or begins again: anything may have been missed before."""


@attrs.frozen
class Disconnected:
    """Nothing is heard until it says `Reconnected`."""


News: TypeAlias = GotWork | CutElsewhere | Answered | Overridden | Reconnected | Disconnected
Hear: TypeAlias = Callable[[News], None]

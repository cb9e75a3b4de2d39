"""What an `awa_trio.Observer` is told, each fact as one value.

    import awa_trio as awa
    from awa_trio import events

    class Failures(awa.Observer):
        def observe(self, event: events.Event) -> None:
            match event:
                case events.Settled(job=job, to_state=awa.JobState.FAILED):
                    alert(job.kind, job.id)

None of them holds arguments, metadata, tags, progress or output.
"""

from .._core.events import Claimed as Claimed
from .._core.events import Discarded as Discarded
from .._core.events import Ended as Ended
from .._core.events import Ending as Ending
from .._core.events import Enqueued as Enqueued
from .._core.events import Event as Event
from .._core.events import Fenced as Fenced
from .._core.events import Finalized as Finalized
from .._core.events import GivenUp as GivenUp
from .._core.events import Insert as Insert
from .._core.events import JobRef as JobRef
from .._core.events import Listening as Listening
from .._core.events import QueueSample as QueueSample
from .._core.events import Sampled as Sampled
from .._core.events import Settled as Settled
from .._core.events import Stale as Stale
from .._core.events import Started as Started
from .._core.events import Stopped as Stopped
from .._core.outcome import Lost as Lost
from .._publish import publish as _publish

_publish(__name__, globals())

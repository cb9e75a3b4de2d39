"""Whether a worker is well, for whoever starts and restarts it: HTTP probes, and systemd.

    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        nursery.start_soon(health.serve, worker)
        nursery.start_soon(health.notify, worker)

Both run in the worker's own event loop, so that an answer proves that it turns, and both
return when the worker has ended. ``awa-trio worker --health`` does the same.
"""

from .._publish import publish as _publish
from ._serving import listen as listen
from ._serving import serve as serve
from ._systemd import notify as notify

_publish(__name__, globals())

"""Break things on purpose, to see whether your handlers and your data survive it.

    async def test_nobody_pays_twice(awa_client):
        await chaos.crash_everywhere(shop.app, awa_client, begin, check)

`crash_everywhere` finds every place where a handler waits and where a worker writes, and then
runs the same jobs once for each place and each way to break: killed there, presumed dead there,
its connection lost there; others carry on to the end, and your ``check`` says whether all is well. On
`memory_client` it takes milliseconds of virtual time; on PostgreSQL it has real sessions to cut.

`unreliable` breaks one thing at one place; `expire_leases` and `cut_connections` do it by hand;
`worker_process` is a real process that you can kill, or that kills itself at a place.
"""

from ..._publish import publish as _publish
from ._outages import cut_connections as cut_connections
from ._outages import expire_leases as expire_leases
from ._points import Fault as Fault
from ._points import Moment as Moment
from ._points import Point as Point
from ._process import WorkerProcess as WorkerProcess
from ._process import worker_process as worker_process
from ._sabotage import unreliable as unreliable
from ._survey import Broken as Broken
from ._survey import Survey as Survey
from ._survey import crash_everywhere as crash_everywhere

_publish(__name__, globals())

"""For tests of programs that use awa_trio: the real runtime, one job at a time.

`work_one` and `drain` call the functions a worker calls, so a handler that passes here
does what it does in production: the same poisoning, discarding and atomicity.
`HandlerJob` runs a handler with no store at all. `memory_client` obeys
`trio.testing.MockClock`. `assert_staged` and `assert_enqueued` show what was there if they fail.
`awa_trio.testing.chaos` crashes handlers wherever they can; fixtures for pytest are in
`awa_trio.testing.fixtures`.
"""

from .._publish import publish as _publish
from . import chaos as chaos
from ._assertions import assert_enqueued as assert_enqueued
from ._assertions import assert_not_enqueued as assert_not_enqueued
from ._assertions import assert_not_staged as assert_not_staged
from ._assertions import assert_staged as assert_staged
from ._handler_job import HandlerJob as HandlerJob
from ._handler_job import RegisteredCallback as RegisteredCallback
from ._handler_job import Staged as Staged
from ._memory import memory_client as memory_client
from ._working import Worked as Worked
from ._working import drain as drain
from ._working import work_one as work_one

_publish(__name__, globals())

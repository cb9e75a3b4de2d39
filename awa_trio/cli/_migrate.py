"""``awa-trio migrate``: create or upgrade the schema."""

from __future__ import annotations

from typing import Annotated

import psycopg
from cyclopts import Parameter

from .. import Engine, schema_script, schema_status
from .. import migrate as migrate_database
from ._errors import CommandFailed, UsageError
from ._options import Dsn, Json, connect_once
from ._output import print_record, say


async def migrate(
    *,
    dsn: Dsn = "",
    sql: Annotated[bool, Parameter(negative="")] = False,
    since: int | None = None,
    engine: Engine | None = None,
    status: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """Create the awa schema in a database, or bring it up to date. Never goes back.

    Several processes may try at once: one does it.

    Parameters
    ----------
    sql
        Print the SQL instead of running it; needs no database.
    since
        With --sql: the version the database has. Default, none.
    engine
        How the database is to keep its jobs: canonical, in rows that are updated, or
        segmented, for high rates. Default, as it does, canonical for a new one. Workers may
        be running: from that moment on, new jobs are kept so. There is no way back from
        segmented.
    status
        Print the database's version and this release's, and change nothing. Fails where
        a worker would.
    """
    if sql and status:
        raise UsageError("--sql and --status: give one of them")
    if since is not None and not sql:
        raise UsageError(
            "--since: only with --sql; without it, the database itself says which version it has"
        )
    if status and engine:
        raise UsageError("--engine and --status: give one of them")
    if sql:
        try:
            script = schema_script(since or 0, engine=engine or Engine.CANONICAL)
        except ValueError as error:
            raise UsageError(f"--{error}") from error
        if json:
            print_record({"sql": script})
        else:
            print(script, end="")
        return 0
    if status:
        found, known = await schema_status(dsn)
        if json:
            print_record({"version": found, "known": known})
        else:
            say(f"the database has version {found or 'none'}, this release knows {known}")
        async with connect_once(dsn):  # raises what would keep a worker from starting
            pass
        return 0
    try:
        applied, version = await migrate_database(dsn, engine=engine)
    except psycopg.Error as error:
        raise CommandFailed(
            f"PostgreSQL refuses the migration ({error.diag.message_primary or error}), and"
            " nothing was changed; mend that, and migrate again"
        ) from error
    if json:
        print_record({"version": version, "applied": applied})
    elif applied:
        say("applied ", ", ".join(applied), f": the database has awa schema version {version}")
    else:
        say(f"nothing to do: the database has awa schema version {version}")
    return 0

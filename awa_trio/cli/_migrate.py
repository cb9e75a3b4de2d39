"""``awa-trio migrate``: create or upgrade the schema."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from .. import migrate as migrate_database
from .. import schema_script, schema_status
from ._options import Dsn
from ._output import say


async def migrate(
    *,
    dsn: Dsn = "",
    sql: Annotated[bool, Parameter(negative="")] = False,
    since: int | None = None,
    status: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Create the awa schema in a database, or bring it up to date. Never goes back.

    Several processes may try at once: one does it.

    Parameters
    ----------
    sql
        Print the SQL instead of running it; needs no database.
    since
        With --sql: the version the database has. Default, none.
    status
        Print the database's version and this release's, and change nothing.
    """
    if sql:
        print(schema_script(since or 0), end="")
        return 0
    if status:
        found, known = await schema_status(dsn)
        say(f"the database has version {found or 'none'}, this release knows {known}")
        return 0 if found >= known else 4
    applied, version = await migrate_database(dsn)
    if applied:
        say("applied ", ", ".join(applied), f": the database has awa schema version {version}")
    else:
        say(f"nothing to do: the database has awa schema version {version}")
    return 0

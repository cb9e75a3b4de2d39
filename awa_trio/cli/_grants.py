"""``awa-trio grants``: the SQL that gives a role its rights."""

from __future__ import annotations

from .. import ConfigurationError, Engine, Rights, grants_script
from ._errors import UsageError
from ._options import Json
from ._output import print_record


async def grants(
    rights: Rights,
    /,
    *,
    role: str,
    engine: Engine = Engine.CANONICAL,
    json: Json = False,
) -> None:
    """Print the SQL that gives a role the rights for what it is to do, and no others.

    For the owner of the schema to run, as in: awa-trio grants worker --role shop_worker | psql

    Parameters
    ----------
    rights
        What the role is to do: producer, reader, receiver, worker or admin.
    role
        Its name. It exists: CREATE ROLE shop_worker LOGIN.
    engine
        The engine that the database has.
    """
    try:
        script = grants_script(rights, role, engine=engine)
    except ConfigurationError as error:
        raise UsageError(f"--{error}") from error
    if json:
        print_record({"role": role, "rights": rights, "engine": engine, "sql": script})
    else:
        print(script, end="")

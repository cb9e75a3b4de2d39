"""``awa-trio storage``: how a database keeps its jobs."""

from __future__ import annotations

from cyclopts import App

from .. import Engine, storage_status
from ._options import Dsn
from ._output import print_parts, say

storage = App(name="storage", help="How a database keeps its jobs.")


@storage.command
async def status(*, dsn: Dsn = "") -> None:
    """Show which engine a database has, and what its jobs take up."""
    found = await storage_status(dsn)
    say(f"the engine is {found.engine}")
    print_parts(found.parts)
    if found.engine is Engine.CANONICAL:
        say(
            "for high rates, or long transactions beside it: awa-trio migrate --engine segmented"
        )

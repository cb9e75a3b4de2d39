"""``awa-trio storage``: how a database keeps its jobs."""

from __future__ import annotations

import attrs
from cyclopts import App

from .. import Engine, storage_status
from ._options import Dsn, Json
from ._output import print_parts, print_record, say

storage = App(name="storage", help="How a database keeps its jobs.")


@storage.command
async def status(*, json: Json = False, dsn: Dsn = "") -> None:
    """Show which engine a database has, and what its jobs take up."""
    found = await storage_status(dsn)
    if json:
        parts = [attrs.asdict(part) for part in found.parts]
        print_record({"engine": found.engine, "parts": parts})
        return
    say(f"the engine is {found.engine}")
    print_parts(found.parts)
    if found.engine is Engine.CANONICAL:
        say(
            "for high rates, or long transactions beside it: awa-trio migrate --engine segmented"
        )

"""``awa-trio check``: what is wrong with an app, before it is deployed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from .. import App, Finding, Severity, schema_status
from .. import check as check_app
from ._exits import FAILED, OK
from ._options import Dsn, Json, connect_once, load_app
from ._output import print_record, say

_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}


async def check(
    app: str,
    /,
    *,
    strict: Annotated[bool, Parameter(negative="")] = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False,
    json: Json = False,
    dsn: Dsn = "",
) -> int:
    """Check that an app would work: its tasks, its resources, what is registered.

    It is imported, and nothing of it is run. With --dsn, or AWA_DSN, its database too: that it
    can be reached, has the schema of this release, and holds no jobs that nobody runs.
    Fails if something is wrong, so that a build does.

    Parameters
    ----------
    app
        MODULE:APP, or FILE.py:APP; ":APP" may be left out if it is ":app".
    strict
        Fail also for what works, and is hardly what was meant.
    verbose
        Show the traceback of a program that cannot be imported.
    """
    loaded = load_app(app, verbose=verbose)
    version: int | None = None
    if dsn:
        async with connect_once(dsn, app=loaded) as client:
            found = await check_app(loaded, client)
        version, _ = await schema_status(dsn)
    else:
        found = await check_app(loaded)
    failed = any(strict or one.severity is Severity.ERROR for one in found)
    if json:
        print_record(
            {
                "ok": not failed,
                "kinds": loaded.kinds,
                "schedules": loaded.schedules,
                "schema": version,
                "findings": [{"severity": f.severity, "text": f.text} for f in found],
            }
        )
    else:
        _print(loaded, version, found)
    return FAILED if failed else OK


def _print(app: App, version: int | None, found: Sequence[Finding]) -> None:
    say(("tasks      ", "bright_black"), ", ".join(app.kinds) or "none")
    if names := app.schedules:
        say(("schedules  ", "bright_black"), ", ".join(names))
    said = (
        "not looked at; give --dsn, or set AWA_DSN" if version is None else f"version {version}"
    )
    say(("schema     ", "bright_black"), said)
    for one in found:
        say((one.severity.value, _COLOURS[one.severity]), ": ", one.text)
    if not found:
        say(("nothing is wrong", "green"))

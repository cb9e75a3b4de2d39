"""``awa-trio cron``: schedules, listed, shown, paused, resumed, triggered, removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import psycopg
from cyclopts import App, Parameter

from .. import AwaError, Client
from ._errors import CommandFailed
from ._many import each
from ._options import Dsn, Json, connect_once, load_app, place_of
from ._output import print_record, say
from ._schedules import print_schedule, print_schedules

cron = App(name="cron", help="List, show, pause, resume, trigger and remove schedules.")

Names = Annotated[
    tuple[str, ...], Parameter(negative="", required=True, help="The schedules' names.")
]
Name = Annotated[str, Parameter(help="The schedule's name.")]
ItsApp = Annotated[
    str,
    Parameter(
        name="--app",
        env_var="AWA_APP",
        help="MODULE:APP, or FILE.py:APP, which has the schedule and knows what it enqueues.",
    ),
]


@cron.command(name="list")
async def list_(*, json: Json = False, dsn: Dsn = "") -> None:
    """List schedules: when each fires next, and how the last time went."""
    async with connect_once(dsn) as client:
        found = await client.cron.list()
    print_schedules(found, as_json=json)


@cron.command
async def show(name: Name, /, *, json: Json = False, dsn: Dsn = "") -> None:
    """Show everything about a schedule."""
    async with connect_once(dsn) as client:
        found = await client.cron.get(name)
    print_schedule(found, as_json=json)


@cron.command
async def pause(names: Names, /, *, json: Json = False, dsn: Dsn = "") -> int:
    """Keep schedules from firing, in every worker, until they are resumed."""

    async def one(client: Client, name: str) -> None:
        await client.cron.pause(name)
        _done(f"schedule {name} is paused", {"name": name, "paused": True}, json)

    return await _each(names, one, dsn)


@cron.command
async def resume(names: Names, /, *, json: Json = False, dsn: Dsn = "") -> int:
    """Let schedules fire again, from now on."""

    async def one(client: Client, name: str) -> None:
        await client.cron.resume(name)
        _done(f"schedule {name} fires again", {"name": name, "paused": False}, json)

    return await _each(names, one, dsn)


@cron.command
async def trigger(name: Name, /, *, app: ItsApp, json: Json = False, dsn: Dsn = "") -> None:
    """Fire a schedule now, beside its instants, also while it is paused."""
    async with connect_once(dsn, load_app(app)) as client:
        try:
            answers = await client.cron.trigger(name)
        except (AwaError, psycopg.Error):
            raise
        except Exception as error:
            raise CommandFailed(
                f"the function of schedule {name!r} raised {type(error).__name__}:"
                f" {error}{place_of(error)}"
            ) from error
    for answer in answers:
        said = "job" if answer.inserted else "a duplicate of job"
        _done(f"{said} {answer.id}", {"id": answer.id, "inserted": answer.inserted}, json)
    if not answers and not json:
        say(f"schedule {name} has nothing to do now")


@cron.command
async def remove(names: Names, /, *, json: Json = False, dsn: Dsn = "") -> int:
    """Forget schedules that no app has any more; a worker that has one brings it back."""

    async def one(client: Client, name: str) -> None:
        await client.cron.remove(name)
        _done(f"schedule {name} is gone", {"name": name, "removed": True}, json)

    return await _each(names, one, dsn)


def _done(said: str, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_record(facts)
    else:
        say(said)


async def _each(
    names: tuple[str, ...], one: Callable[[Client, str], Awaitable[None]], dsn: str
) -> int:
    async with connect_once(dsn) as client:
        return await each(names, lambda name: one(client, name))

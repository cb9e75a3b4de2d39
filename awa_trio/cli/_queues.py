"""``awa-trio queues``: list, show, pause, drain, resume, override, reset."""

from __future__ import annotations

import json as jsons
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import attrs
from cyclopts import App, Parameter
from rich.text import Text

from .. import Client, ConfigurationError, JobState, QueueStatus, Rate
from .._counts import counted
from .._slips import nearest
from .._times import measured
from ._errors import UsageError
from ._many import each
from ._options import Dsn, Json, connect_once
from ._output import COLOURS, cell, iso, note, print_record, print_table, say

queues = App(
    name="queues", help="List, pause, drain and resume queues; override their settings."
)

Names = Annotated[tuple[str, ...], Parameter(negative="", required=True, help="The queues.")]
Name = Annotated[str, Parameter(help="The queue.")]


@queues.command(name="list")
async def list_(*, json: Json = False, dsn: Dsn = "") -> None:
    """List queues that have jobs, that workers serve, or of which something was said."""
    async with connect_once(dsn) as client:
        found = await client.queues.list()
    _print(found, as_json=json)


@queues.command
async def show(name: Name, /, *, json: Json = False, dsn: Dsn = "") -> None:
    """Show a queue: what is in it, its settings, and what overrides them."""
    async with connect_once(dsn) as client:
        status = await client.queues.get(name)
    _print([status], as_json=json)
    if json:
        return
    settings: Mapping[str, Any] = {}
    if status.settings is None:
        say("settings: no worker's app has set any")
    else:
        settings = attrs.asdict(status.settings, recurse=False)
    for setting, value in {**settings, **status.overrides}.items():
        overridden = setting in status.overrides
        before = f" (overridden; the app's: {_in_words(settings.get(setting))})"
        say(f"{setting}: {_in_words(value)}", before if overridden else "")


@queues.command
async def pause(names: Names, /, *, json: Json = False, dsn: Dsn = "") -> int:
    """Let nothing of queues be claimed, on any worker. Running attempts go on."""
    return await _each(
        names, dsn, json, lambda client, name: client.queues.pause(name), "is paused"
    )


@queues.command
async def drain(
    names: Names,
    /,
    *,
    wait: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
    dsn: Dsn = "",
) -> int:
    """Let nothing be enqueued in queues, while workers run what is in them.

    Parameters
    ----------
    wait
        Wait until they are empty, and nothing of them runs.
    """

    async def drain_one(client: Client, name: str) -> bool:
        new = await client.queues.drain(name)
        if wait:
            await client.queues.wait_until_empty(name)
        return new

    return await _each(names, dsn, json, drain_one, "is empty" if wait else "is draining")


@queues.command
async def resume(names: Names, /, *, json: Json = False, dsn: Dsn = "") -> int:
    """End the pause or the draining of queues."""
    was = "was neither paused nor draining"
    return await _each(
        names, dsn, json, lambda client, name: client.queues.resume(name), "goes on", was
    )


async def _each(
    names: Sequence[str],
    dsn: str,
    as_json: bool,
    act: Callable[[Client, str], Awaitable[bool]],
    became: str,
    was: str | None = None,
) -> int:
    async with connect_once(dsn) as client:
        known: list[str] | None = None

        async def one(name: str) -> None:
            nonlocal known
            # Before it is known for what is done to it. Reading all queues counts what is in
            # them: only where the first seems to be a slip.
            if known is None and not _heard_of(await client.queues.get(name)):
                known = [queue.name for queue in await client.queues.list()]
            new = await act(client, name)
            if known is not None and name not in known:
                close = nearest(name, known)
                hint = f"; did you mean {close[0]}?" if close else ""
                note(f"queue {name} has no job, and no live worker serves it{hint}")
            if as_json:
                _print([await client.queues.get(name)], as_json=True)
            else:
                say(f"queue {name} {became if new else was or f'{became}, as it was'}")

        return await each(names, one)


def _heard_of(queue: QueueStatus) -> bool:
    """Whether something is in a queue, or was said of it."""
    said = queue.paused or queue.draining or queue.settings or queue.overrides
    return bool(said or any(queue.counts.values()))


@queues.command
async def override(
    name: str,
    settings: Annotated[tuple[str, ...], Parameter(negative="")],
    /,
    *,
    json: Json = False,
    dsn: Dsn = "",
) -> None:
    """Change settings of a queue on every worker, until they are reset.

    As in: awa-trio queues override mail max_workers=10 rate=300/60 max_per_key=none

    Parameters
    ----------
    name
        The queue.
    settings
        NAME=VALUE. A rate is COUNT, for so many a second; COUNT/SECONDS; or
        COUNT/SECONDS/BURST. "none" is no limit.
    """
    overrides: dict[str, Any] = dict(_setting(text) for text in settings)
    async with connect_once(dsn) as client:
        with _usage():
            status = await client.queues.override(name, **overrides)
    _print_overrides(status, as_json=json)


@queues.command
async def reset(
    name: str,
    settings: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    /,
    *,
    json: Json = False,
    dsn: Dsn = "",
) -> None:
    """Forget overrides of a queue: the app's settings hold again.

    Parameters
    ----------
    name
        The queue.
    settings
        Names of settings. Default, all.
    """
    async with connect_once(dsn) as client:
        with _usage():
            await client.queues.reset(name, *settings)
        status = await client.queues.get(name)
    _print_overrides(status, as_json=json)


@contextmanager
def _usage() -> Iterator[None]:
    """Take a setting that there is not, or a value that none has, for what it is here.

    Raises:
      UsageError: it was one.
    """
    try:
        yield
    except ConfigurationError as error:
        raise UsageError(str(error)) from error


def _setting(text: str) -> tuple[str, Any]:
    """Return what one argument says of a setting; whether there is such a one, others know.

    Raises:
      UsageError: it is no NAME=VALUE, or the value no number, rate or "none".
    """
    name, equals, value = text.partition("=")
    try:
        if not equals:
            raise ValueError
        if value == "none":
            return name, None
        if "/" in value:
            count, per, *burst = value.split("/", 2)
            each = int(burst[0]) if burst else None
            return name, Rate(float(count), per=float(per), burst=each)
        return name, int(value) if value.isdecimal() else float(value)
    except ConfigurationError as error:
        raise UsageError(f"{text[:100]}: {error}") from None
    except ValueError:
        raise UsageError(
            f"{text[:100]}: give NAME=VALUE, with a number, a rate such as 300/60, or none"
        ) from None


def _in_words(value: Any) -> str:
    """Return a setting's value as `override` takes it, if it takes it."""
    if value is None:
        return "none"
    if isinstance(value, Rate):
        return f"{value.count:g}/{value.per:g}/{value.burst}"
    return f"{value:g}" if isinstance(value, float) else jsons.dumps(value)


def _print_overrides(status: QueueStatus, *, as_json: bool) -> None:
    if as_json:
        _print([status], as_json=True)
        return
    said = " ".join(f"{n}={_in_words(v)}" for n, v in status.overrides.items())
    say(f"queue {status.name}: {said or 'no overrides'}")


def _print(found: Sequence[QueueStatus], *, as_json: bool) -> None:
    if not as_json:
        _print_table(found)
        return
    for status in found:
        print_record(_facts(status))


def _print_table(found: Sequence[QueueStatus]) -> None:
    states = ("available", "scheduled", "retryable", "running", "waiting_external")
    said = [_said_of(queue) for queue in found]
    some_said = any(said)
    print_table(
        "no queues",
        (
            "queue",
            *(["state"] if some_said else []),
            *(state.replace("_external", "") for state in states),
            "oldest",
        ),
        [
            (
                cell(queue.name),
                *([about] if some_said else []),
                *(counted(queue.counts[JobState(state)]) for state in states),
                "" if queue.oldest is None else measured(queue.oldest),
            )
            for queue, about in zip(found, said, strict=True)
        ],
    )


def _said_of(queue: QueueStatus) -> Text:
    said = [
        word
        for word, is_so in (
            ("paused", queue.paused),
            ("draining", queue.draining),
            ("overridden", bool(queue.overrides)),
        )
        if is_so
    ]
    return Text(", ".join(said), style=COLOURS["retryable"])


def _facts(status: QueueStatus) -> dict[str, Any]:
    return {
        "queue": status.name,
        "counts": {state.value: count for state, count in status.counts.items()},
        "oldest": status.oldest,
        "paused_at": iso(status.paused_at),
        "draining_since": iso(status.draining_since),
        "settings": None
        if status.settings is None
        else _plain(attrs.asdict(status.settings, recurse=False)),
        "overrides": _plain(status.overrides),
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.to_json() if isinstance(value, Rate) else value
        for name, value in settings.items()
    }

"""``awa-trio web``: a page to look after jobs."""

from __future__ import annotations

import logging
import os
import signal
from importlib import import_module
from typing import Annotated

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from .. import ConfigurationError, connect
from ._errors import CommandFailed
from ._logs import JsonLog, announce, log_to_stderr
from ._options import MOST_PORT, Dsn, load_app


async def web(
    app: str | None = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=MOST_PORT))] = 4001,
    token: Annotated[str | None, Parameter(env_var="AWA_WEB_TOKEN", show_env_var=True)] = None,
    read_only: Annotated[bool, Parameter(negative="")] = False,
    show_args: Annotated[bool, Parameter(negative="")] = False,
    allow_host: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    prepare: bool | None = None,
    json: JsonLog = False,
    dsn: Dsn = "",
) -> int:
    """Serve a page to look after jobs: what is going on, dead letters, queues, cron, workers.

    On a loopback address whoever is on this machine may do everything. On any other, anybody
    who can reach it may look, and nobody may change anything, unless there is a token, which
    everybody must then log in with. Stopped by SIGTERM or SIGINT, it lets requests end; a
    second signal ends the process on the spot. Needs the extra "web".

    Parameters
    ----------
    app
        MODULE:APP, or FILE.py:APP: knows the follow-ups of jobs that are cancelled, and the
        schedules that are run by hand.
    host
        Where to listen.
    port
        Likewise; 0 for any that is free.
    token
        What people log in with, at least 16 characters; better given as AWA_WEB_TOKEN.
    read_only
        Nobody may change anything, not even with the token.
    show_args
        Show arguments, metadata, progress, outputs, and what errors say.
    allow_host
        A name that it is reached by, besides addresses and this machine's own; may be given
        several times. Only asked without a token.
    prepare
        Prepare statements. Default, unless a pooler is in between.
    """
    try:
        # By name: what it imports is an extra.
        serve = import_module("awa_trio.web").serve
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the page needs {error.name}, which is not installed; install it with:"
            " pip install 'awa-trio[web]'"
        ) from error
    log_to_stderr(logging.INFO, as_json=json)
    loaded = None if app is None else load_app(app)
    async with connect(dsn, app=loaded, prepare=prepare) as client:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            stopping = trio.Event()

            async def obey() -> None:
                async for number in signals:
                    if stopping.is_set():
                        os._exit(128 + number)
                    stopping.set()

            async def run(task_status: trio.TaskStatus[str]) -> None:
                await serve(
                    client,
                    host=host,
                    port=port,
                    token=token,
                    read_only=read_only,
                    show_args=show_args,
                    allow_hosts=allow_host,
                    stop=stopping,
                    task_status=task_status,
                )
                nursery.cancel_scope.cancel(reason="it has stopped")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(obey)
                try:
                    where = await nursery.start(run)
                except OSError as error:
                    raise CommandFailed(
                        f"the page cannot listen at {host}:{port} ({error.strerror or error});"
                        " give another --host or --port"
                    ) from error
                announce(f"the page is at {where}; Ctrl-C stops it", as_json=json)
    return 0

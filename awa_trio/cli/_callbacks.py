"""``awa-trio callbacks serve``: receive callbacks over HTTP."""

from __future__ import annotations

import logging
import os
import re
import signal
from importlib import import_module
from typing import Annotated

import trio
from cyclopts import App, Parameter
from cyclopts.validators import Number

from .. import ConfigurationError, connect
from ..callbacks import receiver
from ._errors import CommandFailed, UsageError
from ._logs import JsonLog, announce, log_to_stderr
from ._options import MOST_PORT, Dsn, load_app

callbacks = App(name="callbacks", help="Receive callbacks over HTTP.")


def _check_bind(bind: str) -> None:
    """Refuse what hypercorn would take for another address, such as "" for all of them.

    Raises:
      UsageError: it is neither HOST:PORT nor unix:PATH.
    """
    if bind.startswith("unix:") and bind != "unix:":
        return
    host, _, port = bind.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or int(port) > MOST_PORT:
        raise UsageError(f"--bind {bind}: give HOST:PORT, as in 127.0.0.1:4000, or unix:PATH")


@callbacks.command
async def serve(
    app: str | None = None,
    /,
    *,
    bind: str = "127.0.0.1:4000",
    prefix: str = "/callbacks",
    secret: Annotated[
        str | None, Parameter(env_var="AWA_CALLBACK_SECRET", show_env_var=True)
    ] = None,
    unsigned: Annotated[bool, Parameter(negative="")] = False,
    window: Annotated[float, Parameter(validator=Number(gte=0))] = 300.0,
    without_follow_ups: Annotated[bool, Parameter(negative="")] = False,
    prepare: bool | None = None,
    json: JsonLog = False,
    dsn: Dsn = "",
) -> int:
    """Resolve the callbacks that external systems post to PREFIX/TOKEN/ACTION.

    ACTION is resume, complete, fail, retry or heartbeat; requests are signed. Stopped by
    SIGTERM or SIGINT, it lets requests end, for up to 10 seconds; a second signal ends the
    process on the spot. Needs the extra "web".

    Parameters
    ----------
    app
        MODULE:APP, or FILE.py:APP: knows the follow-ups of jobs that are completed or failed.
    bind
        HOST:PORT, or unix:PATH.
    prefix
        Where the callbacks are.
    secret
        What senders sign with, at least 16 characters; better given as AWA_CALLBACK_SECRET.
    unsigned
        Believe everybody: whoever knows a token can resolve its callback.
    window
        Seconds by which a request's timestamp may differ from this clock.
    without_follow_ups
        Complete and fail jobs of kinds that APP does not know, without their follow-ups.
    prepare
        Prepare statements. Default, unless a pooler is in between.
    """
    try:
        # By name: it is an extra, and type checkers need not have it.
        hypercorn = import_module("hypercorn.trio")
        config = import_module("hypercorn.config").Config()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "serving callbacks needs hypercorn, which is not installed; install it with:"
            " pip install 'awa-trio[web]'"
        ) from error
    _check_bind(bind)
    if not secret and not unsigned:
        raise CommandFailed(
            "callbacks need a secret that senders sign with: set AWA_CALLBACK_SECRET, or give"
            " --secret; or --unsigned, to believe everybody"
        )
    if secret and unsigned:
        raise CommandFailed(
            "--unsigned contradicts the secret, of --secret or AWA_CALLBACK_SECRET: leave one out"
        )
    log_to_stderr(logging.INFO, as_json=json)
    loaded = None if app is None else load_app(app)
    config.bind = [bind]
    # Handlers of its own would print every line twice.
    config.errorlog = logging.getLogger("hypercorn.error")
    # An access log would hold tokens.
    config.accesslog = None
    config.graceful_timeout = 10.0
    async with connect(dsn, app=loaded, prepare=prepare) as client:
        api = receiver(
            client,
            secret=secret,
            unsigned=unsigned,
            prefix=prefix,
            window=window,
            without_follow_ups=without_follow_ups,
        )
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            stopping = trio.Event()

            async def obey() -> None:
                async for number in signals:
                    if stopping.is_set():
                        os._exit(128 + number)
                    stopping.set()

            async def run(task_status: trio.TaskStatus[list[str]]) -> None:
                await hypercorn.serve(
                    api, config, shutdown_trigger=stopping.wait, task_status=task_status
                )
                nursery.cancel_scope.cancel(reason="it has stopped")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(obey)
                where = await nursery.start(run)
                said = f"callbacks are received at {where[0]}{prefix}; Ctrl-C stops it"
                announce(said, as_json=json)
    return 0

"""The commands, and what their errors become."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

import psycopg
from cyclopts import App, CycloptsError

from .. import AwaError, DatabaseUnavailable, SchemaError, __version__
from ..pg import DevServerError
from ._callbacks import callbacks
from ._check import check
from ._completion import completion_of
from ._cron import cron
from ._demo import demo
from ._dev import dev
from ._dlq import dlq
from ._errors import UsageError
from ._exits import BROKEN_PIPE, FAILED, INTERRUPTED, OK, SCHEMA, UNREACHABLE, USAGE
from ._grants import grants
from ._jobs import jobs
from ._migrate import migrate
from ._output import drop_unwritable_output, open_closed_output, problem
from ._queues import queues
from ._storage import storage
from ._top import top
from ._usage import usage_problem
from ._web import web
from ._worker import worker
from ._workers import workers

app = App(
    name="awa-trio",
    version=__version__,
    help="A durable job queue for Trio, whose only server is PostgreSQL.",
    help_epilogue=(
        "Exit codes: 0 done, 1 could not be done, 2 usage, 3 database unreachable,"
        " 4 schema missing, older or newer, 130/143 stopped at once by a second signal."
    ),
)
app.command(migrate)
app.command(grants)
app.command(check)
app.command(worker)
app.command(workers)
app.command(top)
app.command(jobs)
app.command(dlq)
app.command(cron)
app.command(queues)
app.command(storage)
app.command(callbacks)
app.command(web)
app.command(dev)
app.command(demo)
app.command(completion_of(app))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code; every failure is one sentence on stderr."""
    open_closed_output()
    # Whatever the locale's encoding lacks is printed as an escape.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:] if arguments is None else arguments)
    drop_unwritable_output()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        _check_encoding(arguments)
        code = app(arguments, backend="trio", exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except SystemExit as stop:  # --help and --version
        return stop.code if isinstance(stop.code, int) else OK
    except BaseException as error:
        return _code(error)
    return code if isinstance(code, int) else OK


def _check_encoding(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text; what names a file may be any bytes.

    Raises:
      UsageError: one of them is not.
    """
    if arguments[:1] == ["dev"]:
        return
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {argument} is not text in UTF-8") from None


def _code(error: BaseException) -> int:
    """Say what went wrong, and return the exit code for it; a bug is raised again."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError():  # as of ``awa-trio ... | head``: nobody is left to tell
            return BROKEN_PIPE
        case CycloptsError():
            problem(usage_problem(error))
            return USAGE
        case UsageError():
            code = USAGE
        case DatabaseUnavailable():
            code = UNREACHABLE
        case SchemaError():
            code = SCHEMA
        case AwaError() | DevServerError():
            code = FAILED
        case OSError(strerror=str(reason)):
            problem(f"{reason}: {error.filename}" if error.filename else reason)
            return FAILED
        case psycopg.Error():
            problem(f"PostgreSQL refuses: {error.diag.message_primary or error}")
            return FAILED
        case _:
            raise error
    problem(str(error))
    return code

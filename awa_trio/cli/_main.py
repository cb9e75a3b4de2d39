"""The commands, and what their errors become."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import psycopg
from cyclopts import App, CycloptsError

from .. import AwaError, DatabaseUnavailable, SchemaError, __version__
from ..pg import DevServerError
from ._callbacks import callbacks
from ._demo import demo
from ._dev import dev
from ._dlq import dlq
from ._jobs import jobs
from ._migrate import migrate
from ._output import problem
from ._worker import worker

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
SCHEMA = 4
INTERRUPTED = 130

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
app.command(worker)
app.command(jobs)
app.command(dlq)
app.command(callbacks)
app.command(dev)
app.command(demo)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code; every failure is one sentence on stderr."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        code = app(arguments, backend="trio", exit_on_error=False, print_error=False)
    except SystemExit as stop:  # --help and --version
        return stop.code if isinstance(stop.code, int) else OK
    except BaseException as error:
        return _code(error)
    return code if isinstance(code, int) else OK


def _code(error: BaseException) -> int:
    """Say what went wrong, and return the exit code for it; a bug is raised again."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case CycloptsError():
            code = USAGE
        case DatabaseUnavailable():
            code = UNREACHABLE
        case SchemaError():
            code = SCHEMA
        case AwaError() | DevServerError() | psycopg.Error():
            code = FAILED
        case _:
            raise error
    problem(str(error))
    return code

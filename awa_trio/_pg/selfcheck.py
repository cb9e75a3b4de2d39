"""Whether the installed psycopg is one that the Trio connection was made for.

The connection stands on names that psycopg keeps private, and those move inside a
patch series: `wait` gained an argument between 3.3.5 and 3.3.9. A name that moved would
not fail at once but in the middle of a cancellation, so every one of them is looked at
when the package is imported, and anything unexpected is one sentence that ends in the
command that mends it.

Elsewhere: `connection_seam` imports the names that are listed here.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable

import psycopg

from awa_trio._core.errors import AwaError

#: The versions that the connection's tests have passed on, and the first that they have
#: not met; the same window as the dependency in pyproject.toml.
TESTED = (3, 3, 9)
UNTESTED = (3, 4)

#: Every private name, with the parameters it is called or overridden with. None: not called.
SEAM: dict[str, tuple[str, ...] | None] = {
    # Overridden, or called by an override.
    "psycopg:AsyncConnection.__init__": ("self", "pgconn", "row_factory"),
    "psycopg:AsyncConnection.connect": (
        *("conninfo", "autocommit", "prepare_threshold", "context"),
        *("row_factory", "cursor_factory", "kwargs"),
    ),
    "psycopg:AsyncConnection.wait": ("self", "gen", "interval", "timeout"),
    "psycopg:AsyncConnection.transaction": ("self", "savepoint_name", "force_rollback"),
    "psycopg:AsyncConnection.pipeline": ("self",),
    "psycopg:AsyncConnection.cancel_safe": ("self", "timeout"),
    "psycopg:AsyncConnection._try_cancel": ("self", "timeout"),
    "psycopg:AsyncConnection.close": ("self",),
    "psycopg:AsyncConnection._get_connection_params": ("conninfo", "kwargs"),
    "psycopg:AsyncConnection._connect_gen": ("conninfo",),
    "psycopg:AsyncConnection._cancel_gen": ("self",),
    "psycopg:AsyncConnection._should_cancel": ("self",),
    # Recognised while they run: how each may be interrupted.
    "psycopg._connection_base:BaseConnection._commit_gen": ("self",),
    "psycopg._connection_base:BaseConnection._rollback_gen": ("self",),
    "psycopg._connection_base:BaseConnection._tpc_finish_gen": ("self", "action", "xid"),
    "psycopg._connection_base:BaseConnection._tpc_prepare_gen": ("self",),
    "psycopg._copy_base:BaseCopy._end_copy_out_gen": ("self",),
    "psycopg._copy_base:BaseCopy._read_gen": ("self",),
    "psycopg._copy_base:BaseCopy._read_row_gen": ("self",),
    "psycopg._cursor_base:BaseCursor._stream_fetchone_gen": ("self", "first"),
    "psycopg:AsyncTransaction.__init__": (
        *("self", "connection", "savepoint_name", "force_rollback"),
    ),
    "psycopg._pipeline_base:BasePipeline._enter_gen": ("self",),
    "psycopg._pipeline_base:BasePipeline._exit_gen": ("self",),
    "psycopg._server_cursor_base:ServerCursorMixin._close_gen": ("self",),
    "psycopg.generators:copy_end": ("pgconn", "error"),
    "psycopg.generators:copy_to": ("pgconn", "buffer", "flush"),
    "psycopg.generators:notifies": ("pgconn",),
    "psycopg.transaction:BaseTransaction._enter_gen": ("self",),
    "psycopg.transaction:BaseTransaction._exit_gen": ("self", "exc_type", "exc_val", "exc_tb"),
    # Recognised when they ask for their turn.
    "psycopg:AsyncPipeline.__aexit__": ("self", "exc_type", "exc_val", "exc_tb"),
    "psycopg:AsyncServerCursor.close": ("self",),
    "psycopg:AsyncTransaction.__aexit__": ("self", "exc_type", "exc_val", "exc_tb"),
    # Called.
    "psycopg:capabilities.has_cancel_safe": ("check",),
    "psycopg._conninfo_utils:get_param": ("params", "name"),
    "psycopg._conninfo_utils:split_attempts": ("params",),
    "psycopg.conninfo:timeout_from_conninfo": ("params",),
    "psycopg.errors:_WaitTimeout": None,
    "psycopg.waiting:_ready": None,
}

#: The generators among them are recognised by their code, so they must have one.
_GENERATOR = re.compile(r"_gen$|generators:")


class PsycopgMismatch(AwaError, ImportError):
    """The installed psycopg is not one that awa_trio was made for.

    Raised when awa_trio is imported. The message says what is wrong, and ends in the
    command that mends it.
    """


def check() -> None:
    """Look at everything the connection takes for granted about psycopg.

    Raises:
      PsycopgMismatch: the version is outside the tested window, or a name is missing
          or has other parameters.
    """
    version = tuple(map(int, re.findall(r"\d+", psycopg.__version__)[:3]))
    if not TESTED <= version < UNTESTED:
        raise mismatch("which is outside the versions it was tested with")
    for path, expected in SEAM.items():
        found = _find(path)
        if expected is None:
            continue
        parameters = tuple(inspect.signature(found).parameters)
        if parameters != expected:
            raise mismatch(
                f"whose {_dotted(path)} takes ({', '.join(parameters)})"
                f" and not ({', '.join(expected)})"
            )
        if _GENERATOR.search(path) and not hasattr(found, "__code__"):
            raise mismatch(f"whose {_dotted(path)} is not written in Python")


def mismatch(problem: str) -> PsycopgMismatch:
    """Say what is wrong with the installed psycopg, and which command mends it."""
    tested, untested = ".".join(map(str, TESTED)), ".".join(map(str, UNTESTED))
    return PsycopgMismatch(
        f"awa_trio found psycopg {psycopg.__version__}, {problem}; install one that fits with:"
        f" pip install 'psycopg[binary]>={tested},<{untested}'"
    )


def _find(path: str) -> Callable[..., object]:
    module, _, names = path.partition(":")
    try:
        found: object = importlib.import_module(module)
    except ImportError:
        found = None
    for name in names.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise mismatch(f"which has no {_dotted(path)}")
    return found


def _dotted(path: str) -> str:
    return path.replace(":", ".")

"""Options that several commands take."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from .. import App, Client, connect
from ._errors import CommandFailed, ProgramBroken, UsageError
from ._output import note

Dsn = Annotated[
    str,
    Parameter(
        name=["--dsn", "-d"],
        env_var="AWA_DSN",
        help="The database, as a URI or connection string. Default, libpq's PG... variables.",
    ),
]
"""Which database."""

ListenDsn = Annotated[
    str,
    Parameter(
        env_var="AWA_LISTEN_DSN",
        help="Where to hear of new jobs, if the database is behind a pooler: the server itself.",
    ),
]
"""The same database, by a way that notifications come."""

#: Of TCP.
MOST_PORT = 65_535

#: What PostgreSQL's ``bigint`` and ``int`` hold.
MAX_ID = 2**63 - 1
MAX_LIMIT = 2**31 - 1

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print JSON, an object per line.")
]
"""Whether to print for programs."""

Id = Annotated[int, Parameter(help="The job's ID.")]
"""Which job."""

Ids = Annotated[tuple[int, ...], Parameter(negative="", help="The jobs' IDs.")]
"""Which jobs."""

All = Annotated[bool, Parameter(name="--all", negative="", help="All of them.")]
"""Whether all are meant."""

DryRun = Annotated[
    bool,
    Parameter(name="--dry-run", negative="", help="Only count them, by a filter or --all."),
]
"""Whether to change nothing."""

Yes = Annotated[
    bool,
    Parameter(name=["--yes", "-y"], negative="", help="Do not ask before doing it to many."),
]
"""Whether to ask nobody."""

Before = Annotated[int | None, Parameter(validator=Number(gte=1, lte=MAX_ID))]
"""Which page of a list."""

Limit = Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_LIMIT))]
"""How long a page of a list."""

WhichApp = Annotated[
    str,
    Parameter(
        name="--app",
        env_var="AWA_APP",
        help="MODULE:APP, or FILE.py:APP, which knows the registered follow-ups.",
    ),
]
"""Which app, where a command may need one."""


def connect_once(dsn: str, app: App | None = None) -> AbstractAsyncContextManager[Client]:
    """Connect for a command that asks a few times and ends: through any pooler.

    Raises:
      AwaError: as `awa_trio.connect`.
    """
    return connect(dsn, app=app, prepare=False)


def load_app(where: str, *, verbose: bool = False) -> App:
    """Return the app at ``module:name``, or ``file.py:name``; ``:name`` may be left out for ``app``.

    Args:
      where: that.
      verbose: print the traceback of a module that cannot be imported.

    Raises:
      UsageError: that names no module.
      CommandFailed: there is no such app, and why.
      ProgramBroken: its module cannot be imported.
    """
    module_name, _, attribute = where.partition(":")
    attribute = attribute or "app"
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    file = Path(module_name) if module_name.endswith(".py") else None
    if file is not None:
        module_name = _from_file(file)
    elif not all(module_name.split(".")) or set(module_name) & set("/\\ "):
        raise UsageError(
            f"{where!r} names no module; give MODULE:APP, as in myprogram.jobs:app, or"
            " FILE.py:APP"
        )
    try:
        module = importlib.import_module(module_name)
        app = getattr(module, attribute, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        broken = _broken(module_name, error)
        if verbose and isinstance(broken, ProgramBroken):
            _print_traceback(error)
        raise broken from error
    if file is not None and not _is_from(module, file):
        raise CommandFailed(
            f"{file} cannot be imported: {module_name!r} is another module"
            f" ({getattr(module, '__file__', None) or 'built in'}); rename the file"
        )
    if app is None:
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has {', '.join(apps)}" if apps else ""
        raise CommandFailed(f"module {module_name} has no {attribute!r}{hint}")
    if not isinstance(app, App):
        raise CommandFailed(
            f"{module_name}:{attribute} is a {type(app).__name__}, not an awa_trio.App"
        )
    return app


def _print_traceback(error: BaseException) -> None:
    """Print a traceback, from the user's first frame on."""
    frames = user_frames(error)
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    for line in "".join(lines).splitlines():
        note(line)


def _from_file(path: Path) -> str:
    if not path.is_file():
        raise CommandFailed(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder in sys.path:
        sys.path.remove(folder)
    # First: what it is called may be the name of another module, further down.
    sys.path.insert(0, folder)
    return path.stem


def _is_from(module: ModuleType, path: Path) -> bool:
    return module.__file__ is not None and path.samefile(module.__file__)


def _broken(module: str, error: BaseException) -> CommandFailed:
    """Say why a module could not be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if f"{module}.".startswith(f"{error.name}."):
            return CommandFailed(
                f"there is no module {error.name!r} here or in the environment; give"
                " MODULE:APP, as in myprogram.jobs:app, from the folder it is in"
            )
        problem = f"imports {error.name!r}, which is not installed"
    elif isinstance(error, SystemExit):
        problem = f"ends the program, with sys.exit({error.code!r}), while it is imported"
    elif isinstance(error, RuntimeError) and "from inside a run()" in str(
        error
    ):  # Trio's words
        problem = (
            "runs a program, with trio.run(), while it is imported: put that under"
            ' if __name__ == "__main__"'
        )
    else:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        problem = f"cannot be imported ({what})"
    where = place_of(error)
    return ProgramBroken(f"{module} {problem}{where}; --verbose shows the traceback")


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an error that are neither ours nor of what imports modules."""
    ours = str(Path(__file__).parents[1])
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen ", ours))
        and not frame.filename.startswith(str(Path(importlib.__file__).parent))
    ]


def place_of(error: BaseException) -> str:
    """Where an error was raised, in the user's own code if it was there at all."""
    if isinstance(error, SyntaxError):
        return ""  # its text says so
    frames = user_frames(error)
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    own = [frame for frame in frames if not frame.filename.startswith(installed)]
    frame = next(reversed(own or frames), None)
    return "" if frame is None else f", at {frame.filename}:{frame.lineno}"

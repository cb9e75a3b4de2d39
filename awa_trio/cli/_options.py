"""Options that several commands take."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .. import App, ConfigurationError

Dsn = Annotated[
    str,
    Parameter(
        name=["--dsn", "-d"],
        env_var="AWA_DSN",
        help="The database, as a URI or connection string. Default, libpq's PG... variables.",
    ),
]
"""Which database."""

WhichApp = Annotated[
    str,
    Parameter(
        name="--app",
        env_var="AWA_APP",
        help="MODULE:APP, or FILE.py:APP, which knows the registered follow-ups.",
    ),
]
"""Which app, where a command may need one."""


def load_app(where: str) -> App:
    """Return the app at ``module:name``, or ``file.py:name``; ``:name`` may be left out for ``app``.

    Raises:
      ConfigurationError: there is none, and why.
    """
    module_name, _, attribute = where.partition(":")
    attribute = attribute or "app"
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if module_name.endswith(".py"):
        module_name = _from_file(Path(module_name))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise ConfigurationError(
                f"there is no module {error.name!r} here or in the environment; give"
                " MODULE:APP, as in myprogram.jobs:app, from the folder it is in"
            ) from error
        raise ConfigurationError(
            f"{module_name} imports {error.name!r}, which is not installed"
        ) from error
    if not hasattr(module, attribute):
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has {', '.join(apps)}" if apps else ""
        raise ConfigurationError(f"module {module_name} has no {attribute!r}{hint}")
    app = getattr(module, attribute)
    if not isinstance(app, App):
        raise ConfigurationError(
            f"{module_name}:{attribute} is a {type(app).__name__}, not an awa_trio.App"
        )
    return app


def _from_file(path: Path) -> str:
    if not path.exists():
        raise ConfigurationError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return path.stem

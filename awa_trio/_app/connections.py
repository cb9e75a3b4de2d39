"""Open connections to one database, in whichever event loop runs."""

from __future__ import annotations

import os
from typing import Any

import attrs
import psycopg
import sniffio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .._core.errors import ConfigurationError, DatabaseUnavailable, WrongEventLoop
from .._pg.connection import TrioConnection

#: What bounds a connection whose network has gone silent, where the user's DSN does not
#: say otherwise: the kernel gives it up after about half a minute.
DEFAULTS = {
    "application_name": "awa_trio",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "client_encoding": "UTF8",
}


@attrs.frozen
class Opener:
    """Opens connections of one kind."""

    conninfo: str = attrs.field(repr=False)
    named: bool
    """Whether anybody has said which database; else it is libpq's default."""
    prepare: bool
    """Whether statements are prepared: not through a pooler in transaction mode."""

    @classmethod
    def of(cls, dsn: str, *, prepare: bool) -> Opener:
        """Return an opener for a DSN, or for AWA_DSN, with defaults where it is silent.

        Raises:
          ConfigurationError: the DSN cannot be parsed.
        """
        dsn = dsn or os.environ.get("AWA_DSN", "")
        named = bool(dsn) or any(map(os.environ.get, ("PGHOST", "PGDATABASE", "PGSERVICE")))
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(
                f"the DSN cannot be parsed ({str(error).strip()}); it looks like"
                " postgresql://user@host/database, or host=... dbname=..."
            ) from error
        return cls(make_conninfo("", **{**DEFAULTS, **given}), named, prepare)

    async def __call__(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection, in autocommit mode, in the running event loop.

        Raises:
          psycopg.OperationalError: the server cannot be reached, or refuses.
        """
        library = current_library()
        kind = TrioConnection if library == "trio" else psycopg.AsyncConnection
        return await kind.connect(
            self.conninfo, autocommit=True, prepare_threshold=0 if self.prepare else None
        )

    def unavailable(self, error: psycopg.Error) -> DatabaseUnavailable:
        """Return the one-sentence error for a server that cannot be reached."""
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "" if self.named else "; no DSN was given: pass one, or set AWA_DSN"
        return DatabaseUnavailable(
            f"connecting: PostgreSQL could not be reached ({reason}){hint}"
        )


def require_trio(what: str) -> None:
    """Make sure that Trio runs, which ``what`` needs.

    Raises:
      WrongEventLoop: it does not.
    """
    if current_library() != "trio":
        raise WrongEventLoop(
            f"{what} needs Trio, and asyncio is running; start it with trio.run(...)."
            " A client works on both"
        )


def current_library() -> str:
    """Return "trio" or "asyncio".

    Raises:
      WrongEventLoop: neither runs.
    """
    try:
        return sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        raise WrongEventLoop(
            "this must be called inside trio.run(...) or asyncio.run(...)"
        ) from None

"""Open connections to one database, in whichever event loop runs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import attrs
import psycopg
import sniffio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .._core.arguments import check_string, check_type
from .._core.errors import ConfigurationError, DatabaseUnavailable, WrongEventLoop
from .._pg.connection import TrioConnection
from .._pg.pooler import pooled
from .._store.failures import NoDatabase, says_no_database

if TYPE_CHECKING:
    from psycopg.abc import ConnDict

#: What bounds a connection whose network has gone silent, where the user's DSN does not
#: say otherwise: the kernel gives it up after about half a minute.
DEFAULTS = {
    "application_name": "awa_trio",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

#: Whatever the DSN or PGCLIENTENCODING says: names, tags and errors are any text, and the
#: database holds it as UTF-8 (`schema.check_server`).
ALWAYS = {"client_encoding": "UTF8"}

#: What libpq checks when it connects, with the same error as for a server that is down.
INTEGERS = (
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
)
CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "load_balance_hosts": ("disable", "random"),
    "target_session_attrs": (
        "any",
        "read-write",
        "read-only",
        "primary",
        "standby",
        "prefer-standby",
    ),
}


_DATABASE = (
    "SELECT FROM pg_catalog.pg_database AS d"
    " WHERE d.datname::pg_catalog.text OPERATOR(pg_catalog.=) %s::pg_catalog.text"
)


@attrs.frozen
class Opener:
    """Opens connections of one kind."""

    conninfo: str = attrs.field(repr=False)
    named: bool
    """Whether anybody has said which database; else it is libpq's default."""
    prepare: bool | None
    """Whether statements are prepared; None for: unless a pooler is in between."""

    @classmethod
    def of(cls, dsn: str, *, prepare: bool | None) -> Opener:
        """Return an opener for a DSN, or for AWA_DSN, with defaults where it is silent.

        Raises:
          ConfigurationError: the DSN cannot be parsed.
          TypeError: it is no str.
        """
        check_type("dsn", dsn, str)
        dsn = dsn or os.environ.get("AWA_DSN", "")
        check_string("the DSN", dsn, error=ConfigurationError)
        named = bool(dsn) or any(map(os.environ.get, ("PGHOST", "PGDATABASE", "PGSERVICE")))
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            said = str(error).strip()
            cause: Exception | None = error
            if has_password(dsn):
                # What libpq stumbled over may be a part of it.
                said, cause = re.sub('"[^"]*"', '"..."', said), None
            raise ConfigurationError(
                f"the DSN cannot be parsed ({said}); it looks like"
                f" postgresql://user@host/database, or host=... dbname=...{_hint(dsn)}"
            ) from cause
        _check_values(given, dsn)
        return cls(make_conninfo("", **{**DEFAULTS, **given, **ALWAYS}), named, prepare)

    async def __call__(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection, in autocommit mode, in the running event loop.

        Raises:
          psycopg.OperationalError: the server cannot be reached, or refuses.
        """
        try:
            return await self._open(self.conninfo)
        except psycopg.OperationalError as error:
            if error.sqlstate is None and await self._has_no_database(error):
                raise NoDatabase(str(error)) from error
            raise

    async def _open(self, conninfo: str) -> psycopg.AsyncConnection[Any]:
        library = current_library()
        kind = TrioConnection if library == "trio" else psycopg.AsyncConnection
        connection = await kind.connect(conninfo, autocommit=True, prepare_threshold=None)
        try:
            if self.prepare or (self.prepare is None and not await pooled(connection)):
                connection.prepare_threshold = 0
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.close()
            raise
        return connection

    async def _has_no_database(self, error: psycopg.OperationalError) -> bool:
        """Ask the server's catalog whether a database is missing, unless the error says so.

        Only where the error names the database: in whatever language, the server answered. False
        where nobody can be asked.
        """
        name = conninfo_to_dict(self.conninfo).get("dbname")
        if not name or str(name) not in str(error) or says_no_database(error):
            return False
        try:
            async with await self._open(
                make_conninfo(self.conninfo, dbname="postgres")
            ) as other:
                found = await other.execute(_DATABASE, [name])
                return await found.fetchone() is None
        except psycopg.Error:
            return False

    def unavailable(self, error: psycopg.Error) -> DatabaseUnavailable:
        """Return the one-sentence error for a server that cannot be reached."""
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "" if self.named else "; no DSN was given: pass one, or set AWA_DSN"
        return DatabaseUnavailable(
            f"connecting: PostgreSQL could not be reached ({reason}){hint}"
        )


def has_password(dsn: str) -> bool:
    """Whether a DSN may hold a password, however badly it is written."""
    return "@" in dsn or "pass" in dsn.lower()


def _hint(dsn: str) -> str:
    if not has_password(dsn):
        return ""
    return (
        "; in a URI, the characters @ : / ? # % [ ] of a password are written %40 %3A %2F %3F %23"
        " %25 %5B %5D"
    )


def _check_values(given: ConnDict, dsn: str) -> None:
    """Refuse values that are no address of any server.

    Raises:
      ConfigurationError: one of them is not what its parameter takes.
    """

    def refuse(name: str, value: object, takes: str) -> NoReturn:
        shown = f"{name}={value!r}" if not has_password(dsn) else name
        raise ConfigurationError(f"the DSN cannot be parsed: {shown}: give {takes}{_hint(dsn)}")

    for host in str(given.get("host") or "").split(","):
        # Of a socket in Linux's abstract namespace it is the first character.
        if "@" in host[1:]:
            refuse("host", host, "a name, an address, or a folder")
    for port in str(given.get("port") or os.environ.get("PGPORT", "")).split(","):
        if port.strip() and not (_is_whole(port) and 1 <= int(port) <= 65_535):
            refuse("port", port, "a number from 1 to 65,535")
    for name in INTEGERS:
        value = given.get(name)
        if value is not None and not _is_whole(str(value)):
            refuse(name, value, "a whole number")
    for name, choices in CHOICES.items():
        value = given.get(name)
        if value is not None and value not in choices:
            refuse(name, value, f"one of {', '.join(choices)}")


def _is_whole(text: str) -> bool:
    # As libpq reads them: ASCII digits, signed, in 32 bits.
    return re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", text) is not None


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

"""Which rights in the ``awa`` schema a role needs, for what it does."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files

from psycopg import sql

from .._core.arguments import check_string
from .._core.errors import ConfigurationError
from .schema import Engine


class Rights(StrEnum):
    """What a role may do; no more than what it is for."""

    PRODUCER = "producer"
    """Enqueue."""
    READER = "reader"
    """Look at jobs, and all they hold."""
    RECEIVER = "receiver"
    """Resolve callbacks."""
    WORKER = "worker"
    """Run jobs, with a client that may enqueue, look and resolve."""
    ADMIN = "admin"
    """Look at jobs, cancel, retry and purge them, resolve callbacks; and enqueue follow-ups."""


#: The files of GRANT statements that each takes together, in an engine's folder ``grants``.
#: Those that the segmented engine has too come there in addition.
PARTS: dict[Rights, tuple[str, ...]] = {
    Rights.PRODUCER: ("base", "producer"),
    Rights.READER: ("base", "reader"),
    Rights.RECEIVER: ("base", "producer", "mover"),
    Rights.WORKER: ("base", "producer", "mover", "carrier", "worker"),
    Rights.ADMIN: ("base", "producer", "reader", "mover", "carrier", "admin"),
}

#: As psql has it, so that the files can also be run as they are: psql -v role=shop -f ...
_ROLE = ':"role"'

#: Bytes of a name, NAMEDATALEN less one; what is longer would be cut short.
_MOST_BYTES = 63


def grants_script(
    rights: Rights | str, role: str, *, engine: Engine | str = Engine.CANONICAL
) -> str:
    """Return the SQL that gives a role the rights for what it is to do, and no others.

    To be run by the owner of the schema, and again after `migrate`: a later version, or
    another engine, may have tables that this one has not. It takes nothing away.

    Args:
      rights: what the role is to do.
      role: its name, as in ``CREATE ROLE``; it exists.
      engine: the engine that the database has.

    Raises:
      ConfigurationError: there are no such rights, or there is no such engine, or no role can
          have this name.
      TypeError: the name is no str.
    """
    try:
        parts = PARTS[Rights(rights)]
    except ValueError as error:
        raise ConfigurationError(
            f"there are no rights {rights!r}; choose one of {', '.join(Rights)}"
        ) from error
    engine = Engine.named(engine)
    check_string("role", role, error=ConfigurationError)
    if not 1 <= len(role.encode()) <= _MOST_BYTES:
        raise ConfigurationError(f"role: a role's name has 1 to {_MOST_BYTES} bytes")
    quoted = sql.Identifier(role).as_string()
    return "".join(text.replace(_ROLE, quoted) for text in _files(engine, parts))


def _files(engine: Engine, parts: tuple[str, ...]) -> Iterator[str]:
    folders = [Engine.CANONICAL] if engine is Engine.CANONICAL else [Engine.CANONICAL, engine]
    for folder in folders:
        for part in parts:
            file = files("awa_trio").joinpath("_store", folder, "grants", f"{part}.sql")
            if file.is_file():
                yield file.read_text("utf-8")

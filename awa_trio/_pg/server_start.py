"""How a server comes to answer: found running, or made, started and waited for, in a turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from attrs import frozen

from awa_trio._pg import (
    server_binaries,
    server_data,
    server_files,
    server_process,
    server_programs,
)
from awa_trio._pg.server_data import Postmaster
from awa_trio._pg.server_errors import DevServerError, DevServerTimeout
from awa_trio._pg.server_files import FileLock
from awa_trio._pg.server_identity import Identity, find_identity
from awa_trio._pg.server_root import ORPHANS_SECONDS, TEMPORARY_MARK, Options, Root, pause

logger = logging.getLogger("awa_trio.pg.dev_server")

#: How often a wait that takes long is mentioned in the log.
MENTION_SECONDS = 5.0


@frozen
class Running:
    """A server that has answered."""

    postmaster: Postmaster
    version: str | None
    """Such as ``"18.6"``; None if it answered that it has no connection to spare."""


def bring_up(root: Root, checkpoint: Callable[[], None]) -> Running:
    """The server, which answers now: found, or started, or waited for.

    Raises:
      DevServerTimeout: it does not answer in ``start_timeout`` seconds.
      DevServerError: and its subclasses: it cannot be started.
    """
    identity = find_identity(root.data)
    if not root.options.keep and not root.data.exists():
        root.path.joinpath(TEMPORARY_MARK).touch(mode=0o600)
    alive = FileLock(root.server_lock)
    launched = False
    began = mentioned = time.monotonic()
    while True:
        running, silence = _knock(root, identity)
        if running is not None:
            return running
        if alive.try_lock():
            try:
                if launched:
                    raise DevServerError(
                        f"PostgreSQL ended while it was starting in {root.path}",
                        root.log_tail(),
                    )
                _launch(root, identity, alive)
                launched = True
            finally:
                alive.hand_over()
        now = time.monotonic()
        if now - began > root.options.start_timeout:
            raise DevServerTimeout(
                f"PostgreSQL in {root.path} does not answer after {now - began:.0f} seconds:"
                f" {silence}; if it is recovering from a crash, start it again later, or"
                " with a longer start_timeout",
                root.log_tail(),
            )
        if now - began > ORPHANS_SECONDS and not launched:
            root.end_orphans()
        if now - mentioned > MENTION_SECONDS:
            logger.info("waiting for PostgreSQL in %s: %s", root.path, root.log_tail(1))
            mentioned = now
        pause(checkpoint, began)


def _knock(root: Root, identity: Identity) -> tuple[Running | None, str]:
    """The server if it answers a real connection; else what was found instead."""
    postmaster = root.postmaster(identity)
    if postmaster is None:
        return None, "it has not opened its socket"
    if not postmaster.admits:
        return None, f"it says that it is {postmaster.status}"
    try:
        with server_process.connect(postmaster) as connection:
            return Running(postmaster, server_process.version_of(connection)), ""
    except psycopg.OperationalError as error:
        said = str(error).strip()
        full = "too many clients" in said or "connection slots" in said
        return (Running(postmaster, None) if full else None), said


def _launch(root: Root, identity: Identity, alive: FileLock) -> None:
    programs = _binaries(root.options)
    if root.data.exists():
        server_data.check_version(root.data, programs)
    else:
        server_programs.initialise(
            root.data, programs, identity, alive, durable=root.options.durable
        )
    folder = server_files.socket_folder(root.path)
    server_files.make_private(folder, identity.owner, identity.group)
    server_process.clear_stale(root.data, folder)
    server_programs.launch(
        root.data,
        programs,
        identity,
        alive,
        folder=folder,
        settings=root.options.settings,
        log=root.log,
    )


def _binaries(options: Options) -> Path:
    if options.programs is None:
        return server_binaries.find_binaries()
    return server_binaries.choose(
        [server_binaries.examine("bin", options.programs, named=True)]
    )

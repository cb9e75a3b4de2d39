"""Which servers to try for a connection string, without blocking the loop.

libpq resolves host names inside the call that starts a connection, and that call would
stop every other task until the resolver answers. So names are resolved here, by Trio,
and libpq is given addresses. The order of the attempts, the environment's variables and
`target_session_attrs=prefer-standby` are as in libpq.

A host that is named only in a service file (`service=`, PGSERVICE) is unknown here, and
is still resolved by libpq: name hosts in the connection string or the environment.
"""

from __future__ import annotations

import ipaddress
import random
import socket
from typing import TYPE_CHECKING

import attrs
import psycopg
import trio

from awa_trio._pg.connection_seam import get_param, split_attempts

if TYPE_CHECKING:
    from psycopg.abc import ConnDict, ConnMapping


@attrs.frozen
class Failure:
    """A host that could not be tried, or was tried in vain."""

    host: str
    """How messages name it."""
    error: psycopg.Error


async def find_servers(
    params: ConnMapping, timeout: float
) -> tuple[list[ConnDict], list[Failure]]:
    """Resolve connection parameters into the attempts to make, one address each.

    Args:
      params: as `psycopg.conninfo.conninfo_to_dict` makes them; several hosts, addresses
          and ports are separated by commas.
      timeout: seconds that the resolver may take for one host.

    Returns:
      The attempts, in order, and the hosts that could not be resolved. Never both empty.

    Raises:
      psycopg.OperationalError: the numbers of hosts, addresses and ports do not match.
    """
    prefer_standby = get_param(params, "target_session_attrs") == "prefer-standby"
    if prefer_standby:
        params = {k: v for k, v in params.items() if k != "target_session_attrs"}
    attempts: list[ConnDict] = []
    failures: list[Failure] = []
    for attempt in split_attempts(params):
        try:
            with trio.fail_after(timeout):
                attempts += await _resolve(attempt)
        except (OSError, UnicodeError, trio.TooSlowError) as error:
            why = (
                "the resolver did not answer" if isinstance(error, trio.TooSlowError) else error
            )
            host = get_param(attempt, "host")
            failure = psycopg.OperationalError(f"failed to resolve host {host!r}: {why}")
            failures.append(Failure(describe(attempt), failure))
    if get_param(params, "load_balance_hosts") == "random":
        random.shuffle(attempts)
    if prefer_standby:
        # Every host as a standby first, then whatever there is.
        standby: ConnDict = {"target_session_attrs": "standby"}
        attempts = [attempt | standby for attempt in attempts] + attempts
    return attempts, failures


def describe(attempt: ConnMapping) -> str:
    """Name a server for a message, in psycopg's words."""
    host, port, address = (attempt.get(name) for name in ("host", "port", "hostaddr"))
    return f"host: {host!r}, port: {port!r}, hostaddr: {address!r}"


async def _resolve(params: ConnDict) -> list[ConnDict]:
    host = get_param(params, "host")
    if not host or get_param(params, "hostaddr"):
        return [params]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [params | {"hostaddr": host}]
    # The directory of a socket, an abstract socket, a directory on Windows.
    if host.startswith(("/", "@")) or host[1:2] == ":":
        return [params]
    found = await trio.socket.getaddrinfo(
        # The port makes no difference to the addresses, but a resolver may want one.
        host,
        get_param(params, "port") or 5432,
        type=socket.SOCK_STREAM,
        proto=socket.IPPROTO_TCP,
    )
    if not found:
        raise OSError("it has no addresses")
    return [params | {"hostaddr": str(address[0])} for *_, address in found]

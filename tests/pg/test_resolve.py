"""Which servers a connection string leads to, and that looking for them blocks nobody."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from awa_trio._pg.connection import TrioConnection
from awa_trio._pg.resolve import find_servers

from .conftest import Connect
from .proxy import Proxy


class Resolver(trio.abc.HostnameResolver):
    """Knows the names it is given; asked for any other, it never answers."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self._names = names
        self.asked: list[str] = []

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        assert host is not None
        name = host.decode()
        self.asked.append(name)
        if name not in self._names:
            await trio.sleep_forever()
        if not self._names[name]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, proto, "", (address, port or 0))
            for address in self._names[name]
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@pytest.fixture
async def resolver() -> Resolver:
    resolver = Resolver({"one": ["10.0.0.1"], "two": ["10.0.0.2", "10.0.0.3"], "none": []})
    trio.socket.set_custom_hostname_resolver(resolver)
    return resolver


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGTARGETSESSIONATTRS"):
        monkeypatch.delenv(variable, raising=False)


async def servers(conninfo: str) -> list[tuple[object, ...]]:
    attempts, failures = await find_servers(conninfo_to_dict(conninfo), 5)
    assert failures == []
    return [tuple(a.get(name) for name in ("host", "hostaddr", "port")) for a in attempts]


@pytest.mark.parametrize(
    ("conninfo", "expected"),
    [
        ("", [(None, None, None)]),
        ("host=/run/postgresql", [("/run/postgresql", None, None)]),
        ("host=@abstract", [("@abstract", None, None)]),
        ("host=127.0.0.1 port=7", [("127.0.0.1", "127.0.0.1", "7")]),
        ("host=::1", [("::1", "::1", None)]),
        ("host=one", [("one", "10.0.0.1", None)]),
        ("host=one hostaddr=9.9.9.9", [("one", "9.9.9.9", None)]),
        ("hostaddr=9.9.9.9", [(None, "9.9.9.9", None)]),
        ("host=two", [("two", "10.0.0.2", None), ("two", "10.0.0.3", None)]),
        (
            "host=one,/run/pg,two port=1,2,3",
            [
                ("one", "10.0.0.1", "1"),
                ("/run/pg", None, "2"),
                ("two", "10.0.0.2", "3"),
                ("two", "10.0.0.3", "3"),
            ],
        ),
        ("host=one,two port=9", [("one", "10.0.0.1", "9"), ("two", "10.0.0.2", "9"), ("two", "10.0.0.3", "9")]),
        ("postgresql://one:1,[::1]:2/db", [("one", "10.0.0.1", "1"), ("::1", "::1", "2")]),
    ],
)  # fmt: skip
async def test_each_address_is_an_attempt(
    resolver: Resolver, conninfo: str, expected: list[tuple[object, ...]]
) -> None:
    assert await servers(conninfo) == expected


async def test_the_environment_may_name_the_host(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "two")
    assert await servers("port=5") == [(None, "10.0.0.2", "5"), (None, "10.0.0.3", "5")]

    monkeypatch.setenv("PGHOST", "/run/postgresql")
    assert await servers("") == [(None, None, None)]

    monkeypatch.setenv("PGHOST", "one")
    monkeypatch.setenv("PGHOSTADDR", "9.9.9.9")
    assert await servers("") == [(None, None, None)]


async def test_prefer_standby_tries_every_host_as_a_standby_first(resolver: Resolver) -> None:
    attempts, _ = await find_servers(
        conninfo_to_dict("host=one,two target_session_attrs=prefer-standby"), 5
    )

    assert [(a["hostaddr"], a.get("target_session_attrs")) for a in attempts] == [
        ("10.0.0.1", "standby"),
        ("10.0.0.2", "standby"),
        ("10.0.0.3", "standby"),
        ("10.0.0.1", None),
        ("10.0.0.2", None),
        ("10.0.0.3", None),
    ]


async def test_load_balancing_shuffles_the_addresses() -> None:
    addresses = [f"10.0.0.{i}" for i in range(100)]
    trio.socket.set_custom_hostname_resolver(Resolver({"many": addresses}))

    plain, _ = await find_servers({"host": "many"}, 5)
    balanced, _ = await find_servers({"host": "many", "load_balance_hosts": "random"}, 5)

    assert [attempt["hostaddr"] for attempt in plain] == addresses
    assert [attempt["hostaddr"] for attempt in balanced] != addresses
    assert {attempt["hostaddr"] for attempt in balanced} == set(addresses)


async def test_numbers_that_do_not_match_are_refused() -> None:
    with pytest.raises(psycopg.OperationalError, match="could not match 2 port numbers to 3"):
        await TrioConnection.connect("host=a,b,c port=1,2")


async def test_a_name_that_nobody_knows_is_said(resolver: Resolver) -> None:
    with pytest.raises(
        psycopg.OperationalError, match=r"failed to resolve host 'none': .*not known"
    ):
        await TrioConnection.connect("host=none")
    with pytest.raises(psycopg.OperationalError, match=r"failed to resolve host"):
        await TrioConnection.connect(f"host={'é' * 300}")


async def test_so_is_one_whose_resolver_does_not_answer(resolver: Resolver) -> None:
    attempts, (failure,) = await find_servers({"host": "lost,one"}, timeout=0.05)

    assert [attempt["host"] for attempt in attempts] == ["one"]
    assert "failed to resolve host 'lost': the resolver did not answer" in str(failure.error)


async def test_all_failures_are_listed(resolver: Resolver, db: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        port = gone.getsockname()[1]

    with pytest.raises(psycopg.OperationalError) as caught:
        await TrioConnection.connect(db, host="none,127.0.0.1,/nonexistent", port=port)

    text = str(caught.value)
    assert "All failures were:" in text
    assert "failed to resolve host 'none'" in text
    assert "Connection refused" in text
    assert "/nonexistent/.s.PGSQL" in text


async def test_the_first_server_that_answers_is_taken(
    resolver: Resolver, proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(host="none,127.0.0.1", port=f"1,{proxy.port}")

    assert connection.info.hostaddr == "127.0.0.1"
    assert connection.info.port == proxy.port


async def test_a_server_named_only_by_the_environment_is_found(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = conninfo_to_dict(db)
    monkeypatch.setenv("PGHOST", str(params.pop("host")))
    monkeypatch.setenv("PGPORT", str(params.pop("port", 5432)))

    async with await TrioConnection.connect(make_conninfo("", **params)) as connection:
        assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def test_session_attributes_choose_among_servers(db: str, connect: Connect) -> None:
    # The only server is a primary: nothing but read-write and primary will do, and whoever
    # prefers a standby is content with it in the end.
    for wish in ("any", "read-write", "primary", "prefer-standby"):
        connection = await connect(target_session_attrs=wish)
        assert connection.idle
    with pytest.raises(psycopg.OperationalError, match="not in hot standby mode"):
        await TrioConnection.connect(db, target_session_attrs="standby")


async def test_an_abstract_socket_is_connected_to(db: str, nursery: trio.Nursery) -> None:
    name = f"awa-test-{id(nursery)}"
    params = conninfo_to_dict(db)
    port = params.get("port", "5432")
    if not str(params["host"]).startswith("/"):
        pytest.skip("the server has no Unix socket to stand behind the abstract one")
    server = f"{params['host']}/.s.PGSQL.{port}"
    listener = trio.socket.socket(socket.AF_UNIX)
    await listener.bind(f"\0{name}/.s.PGSQL.{port}")
    listener.listen()

    async def pass_on(client: trio.SocketStream) -> None:
        async with client, await trio.open_unix_socket(server) as upstream:

            async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
                async for chunk in source:
                    await sink.send_all(chunk)
                scope.cancel()

            with trio.CancelScope() as scope:
                async with trio.open_nursery() as both:
                    both.start_soon(copy, client, upstream)
                    both.start_soon(copy, upstream, client)

    nursery.start_soon(trio.serve_listeners, pass_on, [trio.SocketListener(listener)])

    async with await TrioConnection.connect(make_conninfo(db, host=f"@{name}")) as connection:
        assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def test_a_resolver_that_hangs_blocks_nobody(resolver: Resolver) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.01)
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        with trio.move_on_after(0.3) as scope:
            await TrioConnection.connect("host=lost")
        nursery.cancel_scope.cancel()

    assert scope.cancelled_caught
    assert resolver.asked == ["lost"]
    assert ticks >= 5

"""Who may see the page and change anything, as facts of a request decide it."""

from __future__ import annotations

import pytest

from awa_trio.web import _access as access
from awa_trio.web._access import Policy

NOW = 1_700_000_000.0
TOKEN = "a token of sixteen or more"


def policy(**changes: object) -> Policy:
    return Policy(**{"token": TOKEN, "writable": True, "show_args": False, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:4001",
        "127.0.0.1:4001",
        "[::1]:4001",
        "10.0.0.7",
        "known",
        "known.",
    ],
)
def test_addresses_and_known_names_are_let_through(host: str) -> None:
    assert access.host_refused(policy(hosts=frozenset({"localhost", "known"})), host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.1.evil", "", "a b",
     "localhost@evil.example", "evil.example:4001", "[::1].evil.example", "0x7f.1", "known,evil"],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here_is_not(host: str) -> None:
    assert access.host_refused(policy(hosts=frozenset({"localhost", "known"})), host)


def test_where_any_name_will_do_any_does() -> None:
    assert access.host_refused(policy(hosts=None), "evil.example") is None


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"sec-fetch-site": "same-origin"}, False),
        # A proxy may have rewritten the host; what the browser says of itself decides.
        ({"sec-fetch-site": "same-origin", "origin": "https://jobs.example"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://here:1"}, True),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-origin, same-origin"}, True),
        ({"origin": "http://here:1"}, False),
        ({"origin": "http://HERE:1"}, False),
        ({"origin": "http://here:2"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"origin": "http://["}, True),
        ({"origin": "http://here:1\u2100"}, True),
        ({"origin": "http://here:1.evil.example"}, True),
        # No browser.
        ({}, False),
    ],
)
def test_what_made_a_browser_send_a_form(headers: dict[str, str], refused: bool) -> None:
    assert (access.foreign(headers, "here:1") is not None) == refused


def test_a_session_is_valid_for_twelve_hours_and_for_nobody_who_made_it_up() -> None:
    mine = policy()
    session = access.new_session(mine, NOW, "n" * 20)
    assert access.session_is_valid(mine, session, NOW)
    assert access.session_is_valid(mine, session, NOW + access.SESSION - 1)
    assert not access.session_is_valid(mine, session, NOW + access.SESSION)
    assert not access.session_is_valid(policy(token="another token of sixteen"), session, NOW)
    until, nonce, signature = session.split(".")
    for made_up in (
        f"{int(until) + 1}.{nonce}.{signature}",
        f"{until}.{'m' * 20}.{signature}",
        f"{until}.{nonce}.{'0' * 64}",
        f"{until}.{nonce}",
        "",
        f"99999999999999.{nonce}.{signature}",
        session + " ",
    ):
        assert not access.session_is_valid(mine, made_up, NOW), made_up


def test_a_forms_token_is_of_one_visitor_and_no_session() -> None:
    mine = policy()
    assert access.form_token(mine, "one") == access.form_token(mine, "one")
    assert access.form_token(mine, "one") != access.form_token(mine, "other")
    assert access.form_token(mine, "one") != access.form_token(policy(token=None), "one")
    session = access.new_session(mine, NOW, "n" * 20)
    assert access.form_token(mine, session) not in session


@pytest.mark.parametrize(
    ("given", "right"),
    [(TOKEN, True), (TOKEN + "x", False), (TOKEN[:-1], False), ("", False), ("\udcff", False)],
)
def test_only_the_token_is_the_token(given: str, right: bool) -> None:
    assert access.token_is_right(policy(), given) == right
    assert not access.token_is_right(policy(token=None), given)


@pytest.mark.parametrize("header", access.FORWARDED)
def test_what_came_through_a_proxy_is_not_from_this_machine(header: str) -> None:
    assert not access.may_change(policy(direct=True), {header: "1.2.3.4"})
    assert access.may_change(policy(direct=False), {header: "1.2.3.4"})
    assert access.may_change(policy(direct=True), {})
    assert not access.may_change(policy(direct=False, writable=False), {})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.1.2.3", False), ("example.com", False)],
)  # fmt: skip
def test_what_counts_as_this_machine(host: str, loopback: bool) -> None:
    assert access.is_loopback(host) == loopback


def test_no_repr_has_the_token() -> None:
    assert TOKEN not in repr(policy())

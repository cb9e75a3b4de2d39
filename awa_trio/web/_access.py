"""Who may see the page, and who may change anything: decided from facts of a request.

Three gates, in this order, each a function here:

- **Where it came to** (`host_refused`). A page on a foreign site can let its own name lead
  to 127.0.0.1 and is then, for the browser, the same site as this one. So without a token
  a name must be known; an address cannot be rebound.
- **Who it is** (`session_is_valid`). With a token, everybody must have given it once.
- **What made the browser send it** (`foreign`, `form_token`). What changes anything must
  come from a form of this very page.

Nothing here reads a clock or draws a random number: they come in as arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

#: Of a token: whoever can reach the page can guess as often as they like.
LEAST_TOKEN = 16

#: Seconds that a login lasts.
SESSION = 12 * 3600

#: What a proxy adds. A request that came through one is not from this machine.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


@attrs.frozen
class Policy:
    """Who may do what."""

    token: str | None = attrs.field(repr=False)
    """What one logs in with; None for no login."""
    writable: bool
    """Whether anybody may change anything."""
    show_args: bool
    """Whether what applications put into jobs is shown."""
    hosts: frozenset[str] | None = None
    """Names it may be reached by besides addresses; None for any."""
    direct: bool = False
    """Whether what came through a proxy may only look."""

    @property
    def key(self) -> bytes:
        """What sessions and forms are signed with: every process of a token has the same."""
        return hashlib.sha256(b"awa_trio.web\0" + (self.token or "").encode()).digest()


def host_refused(policy: Policy, host: str) -> str | None:
    """Return why a request to this Host is refused, in one sentence; None if it is not."""
    if policy.hosts is None:
        return None
    name = host_name(host)
    if name is None:
        return "the Host header of this request is missing, or is no host"
    if name in policy.hosts or is_address(name):
        return None
    return (
        f"this page is not known to be at {name}; if that is right, start it with"
        f" --allow-host {name}, or with a token"
    )


def host_name(host: str) -> str | None:
    """Return the name in a Host header, in lower case, without its port; None if it has none."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?", host)
    if found is None:
        return None
    return (found[1] or found[2]).lower().rstrip(".")


def is_address(name: str) -> bool:
    """Whether this is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether this host is this machine, for this machine only."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def may_change(policy: Policy, headers: Mapping[str, str]) -> bool:
    """Whether a request, of somebody who may see the page, may change anything."""
    if not policy.writable:
        return False
    return not (policy.direct and any(name in headers for name in FORWARDED))


def foreign(headers: Mapping[str, str], host: str) -> str | None:
    """Return why a request that changes something does not come from this page; None if it does.

    Browsers of the last years say what made them send a request (``Sec-Fetch-Site``), and all
    say the page's origin with a form (``Origin``). What says neither is no browser, and has
    no cookies that anybody else could use; the form's token is asked of it all the same.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return None if site == "same-origin" else "this request was made by another site"
    origin = headers.get("origin")
    if origin is not None and _place(origin) != host.lower():
        return "this request was made by another origin"
    return None


def _place(origin: str) -> str | None:
    """Return the host and port of an Origin header, in lower case; None if it is no origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def sign(key: bytes, purpose: str, text: str) -> str:
    """Return what nobody can make without the key."""
    return hmac.new(
        key, f"{purpose}\0{text}".encode(errors="surrogatepass"), hashlib.sha256
    ).hexdigest()


def same(one: str, other: str) -> bool:
    """Compare two texts in a time that does not say where they differ."""
    return hmac.compare_digest(
        one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass")
    )


def new_session(policy: Policy, now: float, nonce: str) -> str:
    """Return the cookie of somebody who has given the token."""
    stated = f"{int(now) + SESSION}.{nonce}"
    return f"{stated}.{sign(policy.key, 'session', stated)}"


def session_is_valid(policy: Policy, session: str, now: float) -> bool:
    """Whether this is the cookie of somebody who has given the token, and not too long ago."""
    found = re.fullmatch(r"(([0-9]{1,12})\.[0-9a-zA-Z_-]{16,64})\.([0-9a-f]{64})", session)
    if found is None or not same(sign(policy.key, "session", found[1]), found[3]):
        return False
    return now < int(found[2]) <= now + SESSION


def form_token(policy: Policy, cookie: str) -> str:
    """Return what a form of the page must carry, whose visitor has this cookie."""
    return sign(policy.key, "form", cookie)


def token_is_right(policy: Policy, given: str) -> bool:
    """Whether this is the token; in the same time whatever is wrong with it."""
    # Digests: of equal length, so that not even the token's can be measured.
    return policy.token is not None and same(
        *(sign(policy.key, "token", text) for text in (policy.token, given))
    )

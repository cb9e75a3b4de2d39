"""What a sender signs, and how that is checked.

The signature covers everything that decides what happens: when, which callback, what to
do with it, and the body. Its parts cannot run into each other: only the last may hold
a newline.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from .. import ConfigurationError

Secret: TypeAlias = str | bytes

SIGNATURE = "awa-signature"
TIMESTAMP = "awa-timestamp"
VERSION = "v1"

#: Shorter can be guessed.
LEAST_SECRET = 16

_WHEN = re.compile(r"[0-9]{1,12}", re.ASCII)


def sign(
    secret: Secret,
    token: str,
    action: str,
    body: bytes = b"",
    *,
    timestamp: int | None = None,
) -> dict[str, str]:
    """Sign a request to a receiver; return the headers to send with it.

    ``Awa-Timestamp`` is the time in whole seconds since 1970; ``Awa-Signature`` is ``v1=``
    and the HMAC-SHA256, in hexadecimal, of ``v1``, the timestamp, the token, the action and
    the body, joined by newlines.

    Args:
      secret: what sender and receiver share, at least 16 bytes.
      token: of the callback.
      action: ``resume``, ``complete``, ``fail``, ``retry`` or ``heartbeat``.
      body: the request's body, to the byte.
      timestamp: default, now.

    Raises:
      ConfigurationError: the secret is too short.
    """
    when = str(int(time.time()) if timestamp is None else timestamp)
    digest = _digest(_key(secret), when, token, action, body)
    return {"Awa-Timestamp": when, "Awa-Signature": f"{VERSION}={digest}"}


def keys_of(secret: Secret | Sequence[Secret] | None) -> tuple[bytes, ...]:
    """Return the keys that are accepted: several, while one is replaced by another.

    Raises:
      ConfigurationError: one is too short.
      TypeError: one is neither str nor bytes.
    """
    if secret is None:
        return ()
    given = (secret,) if isinstance(secret, (str, bytes)) else secret
    # A bytearray is a sequence too: of numbers.
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            f"secret: give str or bytes, or a list of these, not {type(secret).__name__}"
        )
    return tuple(map(_key, given))


def unverified(
    keys: Sequence[bytes],
    headers: Mapping[str, Sequence[str]],
    token: str,
    action: str,
    body: bytes,
    *,
    now: float,
    window: float,
) -> str | None:
    """Say why a request is not to be believed; None if it is."""
    when, signatures = headers.get(TIMESTAMP, ()), headers.get(SIGNATURE, ())
    if len(when) != 1 or not signatures:
        return "the headers Awa-Timestamp and Awa-Signature are required"
    if not _WHEN.fullmatch(when[0]) or abs(now - int(when[0])) > window:
        return f"Awa-Timestamp must be within {window:g} seconds of the receiver's clock"
    given = [part.strip() for header in signatures for part in header.split(",")][:10]
    matches = False
    for key in keys:
        expected = f"{VERSION}={_digest(key, when[0], token, action, body)}".encode()
        for one in given:
            # Every pair is compared: how long it takes tells nothing.
            matches |= hmac.compare_digest(expected, one.encode("latin-1", "replace"))
    return None if matches else "the signature does not match"


def _key(secret: Secret) -> bytes:
    if not isinstance(secret, (str, bytes)):
        raise TypeError(f"secret: give str or bytes, not {type(secret).__name__}")
    try:
        key = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        raise ConfigurationError("the callback secret is not text in UTF-8") from None
    if len(key) < LEAST_SECRET:
        raise ConfigurationError(
            f"the callback secret has {len(key)} bytes: give at least {LEAST_SECRET}, such as"
            " the output of: python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return key


def _digest(key: bytes, when: str, token: str, action: str, body: bytes) -> str:
    head = "\n".join([VERSION, when, token, action, ""]).encode()
    return hmac.new(key, head + body, hashlib.sha256).hexdigest()

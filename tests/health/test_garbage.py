"""Whatever bytes come, in whatever pieces: an answer or none, and never an error."""

from __future__ import annotations

import json

import h11
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair

from awa_trio.health import _serving
from awa_trio.health._answers import Answer

WORDS = st.sampled_from(
    [
        b"GET ", b"HEAD ", b"/healthz", b" HTTP/1.1", b"\r\n", b"\n", b"Host: x\r\n", b":", b" ",
        b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"\x00", b"\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"A" * 9000,
    ]
)  # fmt: skip
PIECES = st.lists(st.one_of(WORDS, st.binary(max_size=40)), max_size=12)


def answered(request: h11.Request) -> Answer:
    return Answer(200, b'{"ok": true}')


@given(PIECES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_survived(pieces: list[bytes], hangs_up: bool) -> None:
    answer = trio.run(said_to, pieces, hangs_up, clock=MockClock(autojump_threshold=0))
    if answer:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(maxsplit=2)[0] == b"HTTP/1.1"
        assert b"connection: close" in head.lower()
        if body:
            json.loads(body)


async def said_to(pieces: list[bytes], hangs_up: bool) -> bytes:
    ours, theirs = memory_stream_pair()

    async def serve() -> None:
        with trio.move_on_after(_serving.PATIENCE):
            http = h11.Connection(h11.SERVER, _serving.MAX_HEAD)
            await _serving._converse(theirs, http, answered)  # type: ignore[arg-type]
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            for piece in filter(None, pieces):
                await ours.send_all(piece)
            if hangs_up:
                await ours.send_eof()
        except trio.BrokenResourceError:
            pass
        return b"".join([part async for part in ours])

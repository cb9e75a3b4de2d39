"""What a row says of its failures, whoever wrote it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from awa_trio._core.job import JobError
from awa_trio._core.job_errors import job_errors

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
OURS = b'{"error": "boom", "attempt": 3, "at": "2026-01-02T03:04:05.000006Z", "terminal": true}'
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("raw", [None, b"null", b"[]"])
def test_none(raw: bytes | None) -> None:
    assert job_errors(raw) == []


def test_ours() -> None:
    assert job_errors(b"[%s]" % OURS) == [JobError("boom", 3, AT, True)]
    # In one zone, and without one; what more is said there is nobody's business.
    other = OURS.replace(b"03:04:05.000006Z", b"05:04:05.000006+02:00")
    assert job_errors(b"[%s]" % other)[0].at == AT
    assert job_errors(b"[%s]" % OURS.replace(b"06Z", b"06"))[0].at == AT
    assert job_errors(b"[%s]" % OURS.replace(b"{", b'{"more": [], '))[0].error == "boom"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"7", "7"),
        (b'"why"', '"why"'),
        (b"{}", "{}"),
        (b'{"error": "why"}', "why"),
        (b'[{"error": 7}]', '{"error": 7}'),
        (b"[[[]]]", "[[]]"),
        (b"[null]", "null"),
        (b"[1e999]", "Infinity"),
        (b"[%s]" % OURS.replace(b"true", b"1"), "boom"),
        (b"[%s]" % OURS.replace(b": 3", b': "3"'), "boom"),
        (b"[%s]" % OURS.replace(b"2026", b"9999999"), "boom"),
        (b"[%s]" % OURS.replace(b"2026-01-02T03:04:05.000006Z", b"0001-01-01T00:00+14:00"), "boom"),
        (b"9" * 10_000, "Infinity"),
        (b"[" * 100_000 + b"]" * 100_000, "[" * 8000),
    ],
)  # fmt: skip
def test_what_another_program_wrote_is_shown(raw: bytes, says: str) -> None:
    assert job_errors(raw) == [JobError(says, 0, LONG_AGO, False)]


def test_what_is_ours_beside_it_is_read() -> None:
    for foreign in (b"7", b"9" * 10_000):
        assert [e.attempt for e in job_errors(b"[%s, %s]" % (foreign, OURS))] == [0, 3]

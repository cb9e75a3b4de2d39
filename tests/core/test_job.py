"""A job as people read it."""

from __future__ import annotations

import pytest

from awa_trio._core.job import JobDetails, JobState

from .test_explaining import ANSWERED, MINUTE, NOW, RUNNING, WAITING, job


@pytest.mark.parametrize(
    ("subject", "moment"),
    [
        (job(), ("due", NOW - MINUTE)),
        (job(JobState.RETRYABLE), ("due", NOW - MINUTE)),
        (RUNNING, ("started", NOW - MINUTE)),
        (WAITING, ("times out", NOW + MINUTE)),
        (ANSWERED, ("about to go on", None)),
        *((job(state), ("ended", NOW)) for state in JobState if state.terminal),
    ],
)
def test_its_moment_is_what_one_asks_about_first(subject: JobDetails, moment: object) -> None:
    assert subject.moment == moment


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (None, "{}"),
        (b"{}", "{}"),
        (rb'{"a": "\u00e9", "awa:triggered_by": 5}', '{"a": "é"}'),
        (b'{"a": ' + b"9" * 5_000 + b"}", '{"a": ' + "9" * 5_000 + "}"),
        (b'{"a": ' + b"[" * 99_999 + b"]" * 99_999 + b"}", None),
    ],
    ids=["none", "empty", "reserved", "digits", "depth"],
)
def test_its_metadata_is_text_whatever_it_is(raw: bytes | None, text: str | None) -> None:
    assert job(raw_metadata=raw).metadata_text == (
        raw.decode() if text is None and raw else text
    )

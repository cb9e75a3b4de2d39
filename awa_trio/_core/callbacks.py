"""Callbacks: what an attempt may wait for, and what a resolution does to its job.

A callback is a token that an external system brings back. An attempt registers one at a
time; the row remembers it, with the moment at which it times out. That moment becomes
null when the callback is resolved, which is how everybody sees that it was.

Elsewhere: what an ending does to a job, `outcome`; who waits in memory,
`_runtime.waits`; who resolves, `_app.callbacks`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import attrs

from .arguments import check_seconds
from .codec import Codec
from .errors import (
    CallbackAlreadyResolved,
    CallbackInvalid,
    CallbackNotFound,
    InvalidRequest,
    InvalidTransition,
)
from .job import JobDetails, JobState
from .jsontext import compact, utf8_size
from .outcome import TIMED_OUT, Resolution
from .plan import Plan

#: Long enough for a person to answer, short enough that a lost answer is noticed the same day.
DEFAULT_TIMEOUT = 3600.0

#: Shorter is no callback but a call; longer outlives the systems that were to answer.
LEAST_TIMEOUT, MOST_TIMEOUT = 1.0, 365.25 * 86_400

#: Kept in the job's row, and read with every claim of it.
MAX_PAYLOAD_BYTES = 64 * 1024


@final
@attrs.frozen
class CallbackAnswer:
    """What an external system answered to a callback."""

    token: str = attrs.field(repr=False)
    """The callback it belongs to."""
    payload: Any = attrs.field(repr=False)
    """Any JSON value; None if none was given."""


def read_answer(raw: bytes | None) -> CallbackAnswer | None:
    """Read an answer as a row has it."""
    if raw is None:
        return None
    loaded = json.loads(raw)
    return CallbackAnswer(loaded["token"], loaded["payload"])


def check_timeout(seconds: object) -> float:
    """Return a timeout as it is stored.

    Raises:
      CallbackInvalid: it is not 1 second to 1 year.
    """
    return check_seconds(
        "timeout",
        seconds,
        LEAST_TIMEOUT,
        MOST_TIMEOUT,
        error=CallbackInvalid,
        wrong_type=CallbackInvalid,
    )


def encode_payload(payload: object, codec: Codec) -> bytes:
    """Spell a payload as it is stored.

    Raises:
      InvalidRequest: it is not plain JSON, or takes more than 64 KiB.
    """
    raw = codec.encode(payload, Any, root="payload")
    if utf8_size(raw) > MAX_PAYLOAD_BYTES:
        raise InvalidRequest(
            f"payload: at most {MAX_PAYLOAD_BYTES:,} bytes of JSON; give a reference to the data"
            " instead of the data"
        )
    return raw


def answer_of(token: str, payload: bytes) -> bytes:
    """The answer as a row keeps it: the payload, and the callback that it belongs to."""
    return b'{"token":%s,"payload":%s}' % (compact(token).encode(), payload)


def guard(
    plan: Plan, token: str, *, answer: bytes | None = None, output: bytes | None = None
) -> Plan:
    """Let a plan apply only while its job still expects a callback; what comes with it."""
    plan.move.token = token
    plan.move.answer = answer
    if output is not None:
        plan.move.output = output
    return plan


@attrs.define
class Registered:
    """The callback of one attempt: registered last, and perhaps waited for."""

    token: str | None = None
    """What may be waited for; None if there is none, or it has been."""
    waiting: bool = False
    """Whether a wait is under way."""
    _registering: bool = False

    @contextmanager
    def registering(self) -> Iterator[None]:
        """Register in this block; one at a time, so that the latest is the row's.

        Raises:
          CallbackInvalid: a wait is under way, or another registration.
        """
        if self.waiting:
            raise CallbackInvalid(
                "another task of this attempt waits for a callback; a new one would replace it"
            )
        if self._registering:
            raise CallbackInvalid(
                "another task of this attempt registers a callback; an attempt has one at a time"
            )
        self._registering = True
        try:
            yield
        finally:
            self._registering = False

    def begin(self, token: str) -> None:
        """A wait begins.

        Raises:
          CallbackInvalid: another is under way, or the token is not the attempt's latest,
              or was waited for before.
        """
        if self.waiting or self._registering:
            raise CallbackInvalid(
                "another task of this attempt waits for a callback already, or registers one;"
                " an attempt waits for one at a time"
            )
        if token != self.token:
            raise CallbackInvalid(
                "wait_for_callback needs the token of this attempt's latest"
                " job.register_callback(), and takes it once"
            )
        self.waiting = True

    def end(self, *, answered: bool) -> None:
        """A wait is over. One that was given up may begin again."""
        self.waiting = False
        if answered:
            self.token = None


def finds(job: JobDetails | None) -> JobDetails:
    """Return the job that expects a callback, as it was found by the token.

    Raises:
      CallbackNotFound: there is none.
      CallbackAlreadyResolved: the callback has been resolved.
    """
    if job is None or job.callback_token is None:
        raise CallbackNotFound
    if job.callback_until is None:
        if job.state is JobState.FAILED and job.errors and job.errors[-1].error == TIMED_OUT:
            raise CallbackNotFound
        raise CallbackAlreadyResolved(job.id)
    return job


def goes_to_handler(how: Resolution, job: JobDetails) -> bool:
    """Whether a resolution only leaves its answer in the row, for the attempt that holds it.

    The attempt runs, or waits in memory. If its worker is gone, whoever finds that out
    makes the job available.

    Raises:
      InvalidTransition: a retry of a job whose attempt has not begun to wait.
    """
    if how is Resolution.RETRY and job.state is not JobState.WAITING_EXTERNAL:
        raise InvalidTransition(
            f"job {job.id} is {job.state}: it can be retried once it waits for its callback"
        )
    return how is Resolution.RESUME and job.worker_id is not None

"""Resolve callbacks, from any process: ``client.callbacks``."""

from __future__ import annotations

from functools import partial
from typing import final

from .._core.arguments import check_type
from .._core.callbacks import (
    DEFAULT_TIMEOUT,
    answer_of,
    check_timeout,
    encode_payload,
    finds,
    goes_to_handler,
    guard,
)
from .._core.codec import Codec
from .._core.errors import CallbackNotFound, InvalidRequest
from .._core.job import JobDetails
from .._core.jsontext import Misfit, check_text
from .._core.outcome import Resolution, Resolved
from .._seam.protocol import Store
from .calls import public_errors
from .moving import Mover

#: Characters of an error that `Callbacks.fail` records.
MOST_ERROR = 10_000


@final
class Callbacks:
    """Resolve the callbacks that jobs wait for: ``client.callbacks``.

    A callback is resolved once, by whoever comes first, whether its job has begun to wait
    or not. Every method may be called from any process, on Trio and on asyncio.
    """

    def __init__(self, store: Store, mover: Mover) -> None:
        self._store = store
        self._mover = mover
        self._codec = Codec()

    async def resume(self, token: str, payload: object = None) -> int:
        """Let the job go on, with a payload; return its ID.

        A handler that waits gets the payload from `Job.wait_for_callback`. If there is none,
        because the job parked, or its worker stopped, it runs again, unspent, and finds it in
        `Job.last_callback`.

        Args:
          token: as `Job.register_callback` returned it.
          payload: any JSON value, at most 64 KiB.

        Raises:
          InvalidRequest: the payload cannot be stored; the message has the path to what.
          CallbackNotFound: no job expects this callback, or no longer.
          CallbackAlreadyResolved: it has been resolved before.
          TypeError: the token is no str.
          DatabaseUnavailable: PostgreSQL could not be reached, or the answer was lost: then
              it may have been resolved. Calling again is safe.
        """
        raw = encode_payload(payload, self._codec)
        return await self._resolve(token, Resolved(Resolution.RESUME), raw)

    async def complete(
        self, token: str, payload: object = None, *, without_follow_ups: bool = False
    ) -> int:
        """Complete the job, whether a handler of it waits or not; return its ID.

        The follow-ups registered for its completion are enqueued with it; what a handler
        staged is discarded. A handler that waits gets `CallbackSuperseded`, one that has not
        begun to is cut.

        Args:
          token: as `Job.register_callback` returned it.
          payload: any JSON value, at most 64 KiB; kept as the job's output, for people.
          without_follow_ups: complete it though this client does not know which follow-ups
              are registered for its kind.

        Raises:
          InvalidRequest: the payload cannot be stored; the message has the path to what.
          CallbackNotFound: no job expects this callback, or no longer.
          CallbackAlreadyResolved: it has been resolved before.
          TypeError: the token is no str.
          FollowUpsUnknown: the client was not given the app that has the kind's task.
          FollowUpError: a registered follow-up could not be made; nothing was changed.
          DatabaseUnavailable: as `resume`.
        """
        raw = encode_payload(payload, self._codec)
        ended = Resolved(Resolution.COMPLETE)
        return await self._resolve(token, ended, raw, without_follow_ups=without_follow_ups)

    async def fail(
        self,
        token: str,
        error: str = "failed by its callback",
        *,
        without_follow_ups: bool = False,
    ) -> int:
        """Fail the job for good, whatever attempts remain; return its ID.

        The follow-ups registered for its failure are enqueued with it. A handler is told as
        by `complete`.

        Args:
          token: as `Job.register_callback` returned it.
          error: what is recorded; at most 10,000 characters of it.
          without_follow_ups: as for `complete`.

        Raises:
          InvalidRequest: the error is not a string that can be stored.
          CallbackNotFound: no job expects this callback, or no longer.
          CallbackAlreadyResolved: it has been resolved before.
          TypeError: the token is no str.
          FollowUpsUnknown: as `complete`.
          FollowUpError: as `complete`.
          DatabaseUnavailable: as `resume`.
        """
        if not isinstance(error, str):
            raise InvalidRequest(f"error: give a string, not {type(error).__name__}")
        try:
            check_text(error)
        except Misfit as misfit:
            raise InvalidRequest(f"error: {misfit}") from misfit
        ended = Resolved(Resolution.FAIL, error[:MOST_ERROR] or "failed by its callback")
        return await self._resolve(token, ended, without_follow_ups=without_follow_ups)

    async def retry(self, token: str) -> int:
        """Let a job that waits run again from the beginning, with all its attempts; return its ID.

        Args:
          token: as `Job.register_callback` returned it.

        Raises:
          InvalidTransition: the job does not wait yet.
          CallbackNotFound: no job expects this callback, or no longer.
          CallbackAlreadyResolved: it has been resolved before.
          TypeError: the token is no str.
          DatabaseUnavailable: as `resume`.
        """
        return await self._resolve(token, Resolved(Resolution.RETRY))

    async def heartbeat(self, token: str, timeout: float | None = None) -> int:
        """Say that the answer will still come; return the job's ID.

        Args:
          token: as `Job.register_callback` returned it.
          timeout: seconds, from 1 to a year, until it times out from now on; default 3,600.

        Raises:
          CallbackInvalid: the timeout is out of range.
          CallbackNotFound: no job expects this callback, or it has timed out.
          CallbackAlreadyResolved: it has been resolved.
          TypeError: the token is no str.
          DatabaseUnavailable: as `resume`.
        """
        seconds = check_timeout(DEFAULT_TIMEOUT if timeout is None else timeout)
        while True:
            job = await self._find(token)
            with public_errors("extending a callback"):
                if await self._store.extend_callback(token, seconds):
                    return job.id
            again = await self._find(token)
            if again.callback_until == job.callback_until:
                raise CallbackNotFound

    async def _find(self, token: str) -> JobDetails:
        check_type("token", token, str)
        try:
            check_text(token)
        except Misfit:
            raise CallbackNotFound from None
        with public_errors("looking for a callback"):
            return finds(await self._store.find_callback(token))

    async def _resolve(
        self,
        token: str,
        ended: Resolved,
        payload: bytes | None = None,
        *,
        without_follow_ups: bool = False,
    ) -> int:
        """Decide from the row as it is, and apply that unless it has moved since."""
        check_type("token", token, str)
        answer = None if payload is None else answer_of(token, payload)
        completes = ended.how is Resolution.COMPLETE
        output = payload if completes and payload != b"null" else None
        while True:
            job = await self._find(token)
            if goes_to_handler(ended.how, job):
                assert answer is not None
                with public_errors("answering a callback"):
                    applied = await self._store.answer_callback(
                        job.id, job.run_lease, token, answer
                    )
            else:
                applied = await self._mover.move(
                    job,
                    ended,
                    without_follow_ups=without_follow_ups,
                    strict=False,
                    finish=partial(guard, token=token, answer=answer, output=output),
                )
            if applied:
                return job.id

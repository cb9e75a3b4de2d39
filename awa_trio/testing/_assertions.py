"""Assertions about jobs, whose failures show what *was* there.

Of a `HandlerJob` they look at what the handler did, and are called; of a `Client` they look
at the jobs in its store, and are awaited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NoReturn, Unpack, overload

from .._app.app import App, registry_of
from .._app.client import Client
from .._app.joining import prepare
from .._core.codec import Codec
from .._core.job import JobDetails
from .._core.jsontext import name_of
from .._core.kinds import kind_of
from .._core.registry import Registry
from ._handler_job import HandlerJob, Staged
from ._matching import Seen, Wanted, description, mismatches, there_was

#: Jobs in one question to a store.
PAGE = 1000

_NO_APP = Registry()


@overload
def assert_staged(
    where: HandlerJob[Any],
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    times: int | None = None,
    **wanted: Unpack[Wanted],
) -> list[Staged]: ...


@overload
def assert_staged(
    where: Client,
    what: object = None,
    /,
    *,
    by: int | None = None,
    args: Mapping[str, Any] | None = None,
    times: int | None = None,
    **wanted: Unpack[Wanted],
) -> Coroutine[Any, Any, list[JobDetails]]: ...


def assert_staged(
    where: HandlerJob[Any] | Client,
    what: object = None,
    /,
    *,
    by: int | None = None,
    args: Mapping[str, Any] | None = None,
    times: int | None = None,
    **wanted: Unpack[Wanted],
) -> list[Staged] | Coroutine[Any, Any, list[JobDetails]]:
    """Make sure that a follow-up was staged; return all that match.

    Of a client, that a job is there which the settlement of another inserted: staged, or by a
    registered function.

        [index] = assert_staged(job, Index, args={"page": 3}, queue="fast")
        await assert_staged(client, Index(3), by=worked.job.id)

    Args:
      where: a `HandlerJob`; or a client, and then the call is awaited.
      what: the class of its arguments, their kind, or an instance: exactly these arguments.
      by: the job that it must follow; of a client only.
      args: a part of its arguments, as JSON has them.
      times: how many must match; default, one or more.
      wanted: what else it is like: ``queue, priority, max_attempts, run_at, ordering_key,
          limit_key, deadline, unique``, as they are; ``tags`` and ``metadata`` that it must have.

    Raises:
      AssertionError: not so many match; it shows what was there, nearest first.
      TypeError: ``what`` is neither, or an option is not known.
    """
    if isinstance(where, HandlerJob):
        return _check(
            [_of_staged(one) for one in where.staged],
            _Sought(where._app, what, args, wanted, "staged"),
            times,
        )
    sought = _Sought(_app_of(where), what, args, wanted, "staged")
    return _check_in(where, lambda job: _follows(job, by), sought, times)


@overload
def assert_enqueued(
    where: HandlerJob[Any],
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    times: int | None = None,
    **wanted: Unpack[Wanted],
) -> list[Staged]: ...


@overload
def assert_enqueued(
    where: Client,
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    times: int | None = None,
    **wanted: Unpack[Wanted],
) -> Coroutine[Any, Any, list[JobDetails]]: ...


def assert_enqueued(
    where: HandlerJob[Any] | Client,
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    times: int | None = None,
    **wanted: Unpack[Wanted],
) -> list[Staged] | Coroutine[Any, Any, list[JobDetails]]:
    """Make sure that a job was enqueued; return all that match.

    Of a client, that it is there, whoever enqueued it and whatever has become of it. Of a
    `HandlerJob`, that the handler enqueued it in `Job.complete_in`.

        await assert_enqueued(client, Pay, args={"order": 7}, queue="payments")

    Arguments and errors are those of `assert_staged`.
    """
    if isinstance(where, HandlerJob):
        return _check(
            [_of_staged(one) for one in where.enqueued],
            _Sought(where._app, what, args, wanted, "enqueued"),
            times,
        )
    sought = _Sought(_app_of(where), what, args, wanted, "enqueued")
    return _check_in(where, lambda job: True, sought, times)


@overload
def assert_not_staged(
    where: HandlerJob[Any],
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    **wanted: Unpack[Wanted],
) -> None: ...


@overload
def assert_not_staged(
    where: Client,
    what: object = None,
    /,
    *,
    by: int | None = None,
    args: Mapping[str, Any] | None = None,
    **wanted: Unpack[Wanted],
) -> Coroutine[Any, Any, None]: ...


def assert_not_staged(
    where: HandlerJob[Any] | Client,
    what: object = None,
    /,
    *,
    by: int | None = None,
    args: Mapping[str, Any] | None = None,
    **wanted: Unpack[Wanted],
) -> Coroutine[Any, Any, None] | None:
    """Make sure that no such follow-up was staged; without a class or anything else, none at all.

    Arguments and errors are those of `assert_staged`.
    """
    if isinstance(where, HandlerJob):
        assert_staged(where, what, args=args, times=0, **wanted)
        return None
    return _none(assert_staged(where, what, by=by, args=args, times=0, **wanted))


@overload
def assert_not_enqueued(
    where: HandlerJob[Any],
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    **wanted: Unpack[Wanted],
) -> None: ...


@overload
def assert_not_enqueued(
    where: Client,
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    **wanted: Unpack[Wanted],
) -> Coroutine[Any, Any, None]: ...


def assert_not_enqueued(
    where: HandlerJob[Any] | Client,
    what: object = None,
    /,
    *,
    args: Mapping[str, Any] | None = None,
    **wanted: Unpack[Wanted],
) -> Coroutine[Any, Any, None] | None:
    """Make sure that no such job was enqueued; without a class or anything else, none at all.

    Arguments and errors are those of `assert_enqueued`.
    """
    if isinstance(where, HandlerJob):
        assert_enqueued(where, what, args=args, times=0, **wanted)
        return None
    return _none(assert_enqueued(where, what, args=args, times=0, **wanted))


class _Sought:
    """A job that a test looks for.

    Raises:
      TypeError: it is nothing that could be looked for.
    """

    def __init__(
        self,
        app: App | None,
        what: object,
        args: Mapping[str, Any] | None,
        wanted: Wanted,
        verb: str,
    ) -> None:
        unknown = set(wanted) - set(Wanted.__annotations__)
        if unknown:
            raise TypeError(
                f"{', '.join(sorted(unknown))}: there is no such option; there are"
                f" {', '.join(Wanted.__annotations__)}"
            )
        self.verb = verb
        self.wanted = wanted
        self.kind: str | None = None
        self.args: Any = {}
        if isinstance(what, str):
            self.kind = what
        elif isinstance(what, type):
            registry = _NO_APP if app is None else registry_of(app)
            self.kind = registry._kinds.get(what) or kind_of(what)
        elif isinstance(what, Mapping):
            raise TypeError("give a class, a kind or an instance; arguments alone are args=...")
        elif what is not None:
            prepared = prepare(app, what, {})
            self.kind, self.args = prepared.kind, json.loads(prepared.args)
        if args is not None:
            if not isinstance(args, Mapping):
                raise TypeError(f"args: give a part of them, as a dict, not {name_of(args)}")
            plain = json.loads(Codec().encode(dict(args), Any))
            self.args = {**self.args, **plain}

    def misses(self, seen: Seen) -> list[str]:
        return mismatches(seen, self.kind, self.args, self.wanted)

    def fail(self, problem: str, jobs: list[Seen]) -> NoReturn:
        asked = description(self.kind, self.args, self.wanted)
        there = there_was(jobs, self.kind, self.args, self.wanted)
        raise AssertionError(f"{problem}: {asked}\n{there}")


def _check(jobs: list[Seen], sought: _Sought, times: int | None) -> list[Any]:
    found = [seen for seen in jobs if not sought.misses(seen)]
    if times is None and not found:
        sought.fail(f"nothing like this was {sought.verb}", jobs)
    if times == 0 and found:
        sought.fail(f"this was not to be {sought.verb}", found)
    if times is not None and len(found) != times:
        sought.fail(f"{len(found)} like this were {sought.verb}, not {times}", jobs)
    return [seen.found for seen in found]


async def _check_in(
    client: Client, counts: Callable[[JobDetails], bool], sought: _Sought, times: int | None
) -> list[JobDetails]:
    jobs = [job for job in await _all_jobs(client) if counts(job)]
    return _check([_of_job(job) for job in jobs], sought, times)


async def _none(checked: Coroutine[Any, Any, object]) -> None:
    await checked


async def _all_jobs(client: Client) -> list[JobDetails]:
    """Every job, oldest first."""
    found: list[JobDetails] = []
    page = await client.jobs.list(limit=PAGE)
    while page:
        found += page
        page = await client.jobs.list(limit=PAGE, before_id=page[-1].id)
    return found[::-1]


def _follows(job: JobDetails, by: int | None) -> bool:
    return job.triggered_by is not None and by in (None, job.triggered_by)


def _app_of(client: object) -> App | None:
    if not isinstance(client, Client):
        raise TypeError(f"give a Client or a HandlerJob to look at, not {name_of(client)}")
    return client._app


def _of_staged(one: Staged) -> Seen:
    options = {name: getattr(one, name) for name in _COMMON}
    options |= {"run_at": one.run_at, "unique": one.unique_key is not None}
    return Seen(one.kind, one.args_json, options, f"  queue={one.queue!r}", one)


def _of_job(job: JobDetails) -> Seen:
    options = {name: getattr(job, name) for name in _COMMON}
    later = job.run_at if job.run_at > job.created_at else None
    options |= {"run_at": later, "unique": job.unique_key is not None}
    about = f"  queue={job.queue!r}  (job {job.id}, {job.state})"
    return Seen(job.kind, job.args_json, options, about, job)


#: Options that a follow-up and a job have alike.
_COMMON: Iterable[str] = (
    "queue",
    "priority",
    "max_attempts",
    "tags",
    "metadata",
    "ordering_key",
    "limit_key",
    "deadline",
)

"""From what ``@app.cron`` is put on to a schedule."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from .._core.arguments import check_seconds, check_string, check_whole
from .._core.cron import MissedFires, Policy, Rule
from .._core.errors import ConfigurationError, InvalidRequest, UnknownKind
from .._core.jsontext import name_of
from .._core.naming import name_of_function
from .._core.registry import Registry, Task
from .._core.request import MAX_NAME, OPTION_NAMES, EnqueueRequest, make_template
from .._core.schedules import Fire, Schedule
from .._core.settings import MAX_SECONDS
from .._core.unique import refuse_unknown
from .._runtime.job import Job
from .asked import word_of
from .signatures import written

#: Fires that may be caught up with in one go.
MOST_CAUGHT_UP = 10_000

_ANY_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)


def policy_of(missed: object, catch_up: object, tolerance: object) -> Policy:
    """Check what is to become of missed fires.

    Raises:
      ConfigurationError: a value is none of these, or out of its range.
      TypeError: a number is none.
    """
    try:
        known = word_of("missed", MissedFires, missed)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from None
    check_whole("catch_up", catch_up, most=MOST_CAUGHT_UP, error=ConfigurationError)
    assert isinstance(catch_up, int)
    late = check_seconds("tolerance", tolerance, most=MAX_SECONDS, error=ConfigurationError)
    return Policy(known, catch_up, timedelta(seconds=late))


def schedule_of(
    registry: Registry,
    function: Callable[..., Any],
    rule: Rule,
    policy: Policy,
    name: str | None,
    args: object,
    options: Mapping[str, Any],
) -> Schedule:
    """Read what a schedule enqueues.

    Args:
      registry: knows the tasks.
      function: the handler of one of them, or a function that makes jobs.
      rule: when.
      policy: what becomes of missed fires.
      name: its name; None for that of the task's kind, or the function.
      args: the arguments of a task's jobs; None if they are its class's defaults.
      options: as for every enqueue.

    Raises:
      ConfigurationError: there is no such task, or what it would enqueue breaks a rule.
    """
    if not callable(function):
        raise ConfigurationError(
            f"a schedule is put on a task or on a function, not on a value: {name_of(function)}"
        )
    try:
        refuse_unknown("options", options, OPTION_NAMES)
    except InvalidRequest as error:
        raise ConfigurationError(str(error)) from None
    if options.get("run_at") is not None:
        raise ConfigurationError(
            "run_at: the jobs of a schedule start when it fires; to start them later, let a"
            " function return EnqueueRequest(args, run_at=fire.at + delay)"
        )
    task = next((task for task in registry.tasks.values() if task.handler is function), None)
    if name is None:
        name = getattr(function, "__name__", "") if task is None else task.kind
    check_string("name", name, most=MAX_NAME, error=ConfigurationError)
    assert name is not None
    if task is None:
        _check_function(function, args)
        _check_options(registry, options)
        queue = options.get("queue")
        return Schedule(name, rule, policy, None, queue, function, dict(options))
    _check_kind(task, options)
    given = _default(task, name) if args is None else args
    asked = {key: value for key, value in options.items() if value is not None}
    if isinstance(given, EnqueueRequest) and asked:
        raise ConfigurationError(
            f"schedule {name!r}: an EnqueueRequest brings its own options: set"
            f" {', '.join(asked)} on it"
        )
    if type(given) is dict:
        asked["kind"] = task.kind
    schedule = Schedule(name, rule, policy, task.kind, None, lambda fire: given, asked)
    try:
        [job] = registry.jobs_of(schedule, Fire(name, _ANY_INSTANT))
    except (InvalidRequest, UnknownKind) as error:
        raise ConfigurationError(f"schedule {name!r}: {error}") from None
    if job.kind != task.kind:
        raise ConfigurationError(
            f"schedule {name!r} is for kind {task.kind!r}, and its arguments are of kind"
            f" {job.kind!r}; put it on that task"
        )
    return attrs.evolve(schedule, queue=job.queue)


def _check_kind(task: Task, options: Mapping[str, Any]) -> None:
    if options.get("kind") not in (None, task.kind):
        raise ConfigurationError(
            f"kind={options['kind']!r}: the schedule is put on the task of kind {task.kind!r};"
            " leave it out"
        )


def _default(task: Task, name: str) -> object:
    """The arguments of a task whose class needs none."""
    made = typing.get_origin(task.args_type) or task.args_type
    try:
        return made()
    except Exception as error:
        raise ConfigurationError(
            f"schedule {name!r}: the arguments of kind {task.kind!r} cannot be made without"
            f" values ({error}); give them, as in @app.cron(..., args=MyArgs(...)), or put the"
            " schedule on a function that returns them"
        ) from None


def _check_function(function: Callable[..., Any], args: object) -> None:
    called = name_of_function(function)
    code = written(function)
    if _takes_a_job(function) or inspect.iscoroutinefunction(code):
        raise ConfigurationError(
            f"{called} is no task of this app yet: put @app.cron or @app.periodic above"
            " @app.task; or, if it is to make jobs, let it be an ordinary function"
        )
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigurationError(f"{called} is a generator; let it return a list of jobs")
    if args is not None:
        raise ConfigurationError(
            f"args: {called} is no task of this app, and makes the arguments itself; leave them"
            " out, or put @app.cron above @app.task"
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ConfigurationError(
            f"{called} is called with a Fire when its schedule fires, as in def"
            f" {getattr(function, '__name__', 'jobs')}(fire: awa.Fire); let it take that"
        ) from None
    except ValueError:
        pass  # a callable of C, which does not say


def _takes_a_job(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    hint = parameters[0].annotation if parameters else None
    if isinstance(hint, str):
        return hint.partition("[")[0].rpartition(".")[2] == "Job"
    return hint is Job or typing.get_origin(hint) is Job


def _check_options(registry: Registry, options: Mapping[str, Any]) -> None:
    """Refuse options that no job could have, whatever the function returns."""
    checked = {**options, "kind": options.get("kind") or "k"}
    try:
        make_template(EnqueueRequest({}, **checked), registry.codec)
    except InvalidRequest as error:
        raise ConfigurationError(str(error)) from None

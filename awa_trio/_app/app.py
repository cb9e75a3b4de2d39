"""The app: a registry with decorators, and no I/O."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, TypeVar, Unpack, final, overload

import attrs

from .._core.arguments import check_seconds
from .._core.backoff import Backoff
from .._core.codec import Codec
from .._core.cron import MissedFires, Policy, Rule, every
from .._core.cron import cron as cron_rule
from .._core.errors import ConfigurationError, InvalidRequest
from .._core.jsontext import name_of
from .._core.kinds import kind_of
from .._core.naming import name_of_function
from .._core.plan import FollowUpSpec, Outcome
from .._core.rates import Rate
from .._core.registry import Registry, Task
from .._core.request import EnqueueOptions, KindDefaults, check_queue
from .._core.resources import Scope
from .._core.settings import MAX_SECONDS, QueueSettings
from .scheduling import policy_of, schedule_of
from .signatures import asked_by, resource_of, written

F = TypeVar("F", bound=Callable[..., Any])
OpensT = TypeVar(
    "OpensT", bound=Callable[..., AsyncIterator[Any] | AbstractAsyncContextManager[Any]]
)


@final
class App:
    """What one application knows: its tasks, their follow-ups, its queues and schedules.

    Holds no connection and starts nothing, so it can be built at import.

    Args:
      codec: how arguments become JSON, if the usual way is not enough.
    """

    def __init__(self, *, codec: Codec | None = None) -> None:
        self._registry = Registry(codec or Codec())

    @overload
    def task(self, handler: F, /) -> F: ...
    @overload
    def task(
        self,
        /,
        *,
        kind: str | None = None,
        queue: str = "default",
        priority: int = 2,
        max_attempts: int = 25,
        deadline: float | None = None,
        backoff: Backoff | None = None,
        args: Any = None,
        asyncio: bool = False,
    ) -> Callable[[F], F]: ...
    def task(
        self,
        handler: F | None = None,
        /,
        *,
        kind: str | None = None,
        queue: str = "default",
        priority: int = 2,
        max_attempts: int = 25,
        deadline: float | None = None,
        backoff: Backoff | None = None,
        args: Any = None,
        asyncio: bool = False,
    ) -> F | Callable[[F], F]:
        """Register a handler for the jobs whose arguments its annotation names.

        ``@app.task``, or with arguments.

        The handler's first parameter is annotated `Job[Args]`. Each other one that has no
        default requests a resource by its type; see `resource`. A coroutine function runs
        in the worker's event loop; an ordinary function runs in a thread.

        Args:
          handler: the function; given if the decorator has no arguments.
          kind: what its jobs are called in the database; default, the class's name in
              snake case. Required where the arguments are a plain dict.
          queue: where its jobs go unless their enqueue says otherwise.
          priority: 1 runs first, 4 last; likewise.
          max_attempts: attempts a job may spend, 1 to 1000; likewise.
          deadline: seconds an attempt may take; 0 for no limit; default, the queue's.
          backoff: returns the seconds before the next attempt, given the number of the one
              that failed; default, about ``2**attempt``, at most a day.
          args: the class of the arguments, where the annotation cannot be evaluated.
          asyncio: whether the handler is a coroutine function of asyncio's; it then runs in an
              asyncio loop inside the worker, see `awa_trio.aio`. Needs the extra ``asyncio``.

        Raises:
          ConfigurationError: the handler is a generator, or an ordinary function though
              ``asyncio`` is set; its annotations do not name the class of its arguments, and
              what else it takes; the kind or class is registered twice, or cannot be stored;
              or a value is out of its range. Nothing was registered.
        """
        # Names of classes that are local to a function are only known to that function.
        local_names = dict(sys._getframe(1).f_locals)
        if handler is not None and not callable(handler):
            raise ConfigurationError(
                f"task({handler!r}): give the options by name, as in @app.task(kind='my_kind')"
            )

        def register(handler: F) -> F:
            asked = asked_by(handler, args, local_names)
            name = _default_kind(asked.args_type, handler) if kind is None else kind
            if deadline is not None:
                check_seconds(
                    "deadline",
                    deadline,
                    most=MAX_SECONDS,
                    error=ConfigurationError,
                    wrong_type=ConfigurationError,
                )
            if backoff is not None and not callable(backoff):
                raise ConfigurationError(
                    f"backoff={backoff!r}: give a function from the number of the attempt that"
                    " failed to seconds"
                )
            self._registry.add(
                Task(
                    kind=name,
                    args_type=asked.args_type,
                    handler=handler,
                    defaults=KindDefaults(queue, priority, max_attempts, asked.args_type),
                    deadline=deadline,
                    backoff=backoff,
                    in_thread=_runs_in_thread(handler, asyncio),
                    on_asyncio=asyncio,
                    requests=asked.requests,
                )
            )
            return handler

        return register if handler is None else register(handler)

    def declare(
        self,
        args_type: Any,
        *,
        kind: str | None = None,
        queue: str = "default",
        priority: int = 2,
        max_attempts: int = 25,
    ) -> None:
        """Make jobs known that another application runs, so that this one may enqueue them.

        Args:
          args_type: the class of their arguments.
          kind: default, the class's name in snake case.
          queue: where they go unless their enqueue says otherwise.
          priority: 1 runs first, 4 last; likewise.
          max_attempts: attempts a job may spend; likewise.

        Raises:
          ConfigurationError: as `task`.
        """
        name = _default_kind(args_type, None) if kind is None else kind
        defaults = KindDefaults(queue, priority, max_attempts, args_type)
        self._registry.declare(args_type, name, defaults)

    def queue(
        self,
        name: str,
        *,
        max_workers: int = 50,
        deadline: float = 300.0,
        dead_letters: bool = True,
        priority_ageing: float = 60.0,
        weight: int = 1,
        min_workers: int = 0,
        rate: Rate | float | None = None,
        worker_rate: Rate | float | None = None,
        max_per_key: int | None = None,
        rate_per_key: Rate | float | None = None,
        max_depth: int | None = None,
    ) -> None:
        """Set how a queue is served, by each worker and by all of them together.

        What holds for all workers together (``rate``, ``max_per_key``, ``rate_per_key``) is
        kept in the database by the worker that started last, and obeyed by every one.

        Args:
          name: the queue.
          max_workers: attempts that one worker runs at once.
          deadline: seconds an attempt may take, unless its task or job says otherwise; 0
              for no limit.
          dead_letters: whether its jobs that fail become dead letters, see `DeadLetters`.
          priority_ageing: seconds after which a job that is due counts as one priority
              higher, up to 1, so that it is not kept waiting for ever by more urgent
              ones; 0 for never.
          weight: its share of the worker's ``max_workers``, beside the other queues that have
              work, 1 to 1000; see `run_worker`.
          min_workers: of the worker's ``max_workers``, so many are kept free for this queue.
          rate: how fast its attempts may start, on all workers together; a number is so many
              a second. Default, no limit.
          worker_rate: how fast its attempts may start on each worker. Default, no limit.
          max_per_key: attempts with one ``limit_key`` that run at once, on all workers
              together. Default, no limit.
          rate_per_key: how fast attempts with one ``limit_key`` may start, on all workers
              together. Default, no limit.
          max_depth: jobs that are due and not claimed from which on `Client.enqueue` refuses
              more, or waits. Default, no limit.

        Raises:
          ConfigurationError: the queue is set twice, or a value is out of its range.
        """
        _check_queue(name)
        if name in self._registry.queues:
            raise ConfigurationError(f"queue {name!r} is set twice; remove one of them")
        self._registry.queues[name] = QueueSettings(
            max_workers=max_workers,
            deadline=deadline,
            dead_letters=dead_letters,
            priority_ageing=priority_ageing,
            weight=weight,
            min_workers=min_workers,
            rate=rate,
            worker_rate=worker_rate,
            max_per_key=max_per_key,
            rate_per_key=rate_per_key,
            max_depth=max_depth,
        )

    @overload
    def resource(self, function: OpensT, /) -> OpensT: ...
    @overload
    def resource(
        self, /, *, scope: Scope = "worker", provides: Any = None
    ) -> Callable[[OpensT], OpensT]: ...
    def resource(
        self,
        function: OpensT | None = None,
        /,
        *,
        scope: Scope = "worker",
        provides: Any = None,
    ) -> OpensT | Callable[[OpensT], OpensT]:
        """Register something that handlers may request: ``@app.resource``, or with arguments.

        The function is an async generator function that yields once, or one that returns
        an async context manager. A handler, or another resource, gets what it yields by
        annotating a parameter with the same type; subclasses are other types. Parameters
        without a default request other resources; of an attempt's resource, one may be
        annotated `Job`. Only what is requested is opened.

        A worker's resource is opened before the worker claims, and closed when every
        attempt has ended: all of them in one task, in reverse order, each shielded for
        `Timings.close_timeout` seconds. If it fails, the worker stops with `ResourceFailed`.

        An attempt's resource is opened before the handler and closed when the attempt's
        nursery has closed, inside what cuts the attempt: a deadline cancels it too. What it
        raises is the attempt's error; what it swallows is so all the same.

        Args:
          function: what opens it; given if the decorator has no arguments.
          scope: ``"worker"``, one for the worker; ``"attempt"``, one for each attempt.
          provides: the type, where the annotation is another or cannot be evaluated.

        Raises:
          ConfigurationError: it is no such function, its annotations do not say what it
              provides and uses, the type is provided twice, or a worker's resource asks
              for a job. What is wrong between resources is said when a worker starts.
        """
        local_names = dict(sys._getframe(1).f_locals)

        def register(opens: OpensT) -> OpensT:
            self._registry.provide(resource_of(opens, scope, provides, local_names))
            return opens

        return register if function is None else register(function)

    def on_completed(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for jobs of a class that complete: ``f(args, job)``.

        The function gets the arguments and the job's row, as a `JobRow`, and returns
        arguments, an `EnqueueRequest`, a list of these, or None. It is an ordinary
        function, runs before the transaction that moves the job, and what it returns
        commits with that, before what the handler staged. Options, limits and
        deduplication are those of `Client.enqueue`. If it raises, the attempt fails.

        Args:
          args_type: the class of the arguments of the jobs. Its task may be registered
              later.

        Raises:
          ConfigurationError: the function is a coroutine function or a generator, or takes
              other parameters; or the class is a plain dict.

        Source: ADR-046, "How they are inserted".
        """
        return self._follow(args_type, Outcome.COMPLETED)

    def on_retried(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for failed attempts that leave another: ``f(args, job, error, seconds)``.

        As `on_completed`, with the recorded error, which is empty after `RetryAfter`, and
        the seconds until the next attempt. An attempt that is given back fires nothing:
        a `Snooze`, a shutdown, an operator's retry. If the function raises, the job fails.

        Args:
          args_type: as for `on_completed`.

        Raises:
          ConfigurationError: as `on_completed`.
        """
        return self._follow(args_type, Outcome.RETRIED)

    def on_exhausted(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for jobs that fail for good: ``f(args, job, error)``.

        As `on_completed`, with the recorded error. It runs for a terminal error, a last
        attempt, also one that is rescued, and an attempt that a staging error poisoned. If
        it raises, that is logged, and the job fails without it.

        Args:
          args_type: as for `on_completed`.

        Raises:
          ConfigurationError: as `on_completed`.
        """
        return self._follow(args_type, Outcome.EXHAUSTED)

    def on_cancelled(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for jobs that are cancelled: ``f(args, job, reason)``.

        As `on_completed`, with the reason. It runs where the job is cancelled: in the
        worker for a handler's `Cancel`, in the client for `Jobs.cancel`, which is refused
        if the function raises. A job that is cancelled as the duplicate of another fires
        nothing.

        Args:
          args_type: as for `on_completed`.

        Raises:
          ConfigurationError: as `on_completed`.
        """
        return self._follow(args_type, Outcome.CANCELLED)

    def on_waiting_for_callback(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for attempts that wait for a callback: ``f(args, job, token)``.

        As `on_completed`, with the callback's token. If the function raises, the job fails.

        Args:
          args_type: as for `on_completed`.

        Raises:
          ConfigurationError: as `on_completed`.
        """
        return self._follow(args_type, Outcome.WAITING_FOR_CALLBACK)

    def on_rescued(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for attempts that others took over: ``f(args, job, reason)``.

        As `on_completed`, with why in a word: ``stale_worker`` or ``deadline``, of a worker
        that is dead or does not do its duty; or ``callback_timeout``. It runs if another
        attempt is left, else `on_exhausted` does. If it raises, that is logged, and the job is rescued without it.

        Args:
          args_type: as for `on_completed`.

        Raises:
          ConfigurationError: as `on_completed`.
        """
        return self._follow(args_type, Outcome.RESCUED)

    def _follow(self, args_type: Any, outcome: Outcome) -> Callable[[F], F]:
        if not isinstance(args_type, type) and typing.get_origin(args_type) is None:
            decorator = f"@app.on_{outcome.value}"
            raise ConfigurationError(
                f"{decorator}: give the class of the jobs' arguments, as in {decorator}(MyArgs),"
                f" not {name_of_function(args_type)}"
            )

        def register(function: F) -> F:
            code = written(function)
            if inspect.iscoroutinefunction(code) or _is_generator(code):
                raise ConfigurationError(
                    f"follow-up {name_of_function(function)} must be an ordinary function that returns: it"
                    " runs between the handler and its commit, and must not wait for anything"
                )
            try:
                inspect.signature(function).bind(*outcome.parameters)
            except TypeError:
                raise ConfigurationError(
                    f"follow-up {name_of_function(function)} of on_{outcome.value} is called with"
                    f" ({', '.join(outcome.parameters)}); let it take these"
                ) from None
            except ValueError:
                pass  # a callable of C, which does not say
            self._registry.follow(args_type, FollowUpSpec(outcome, function))
            return function

        return register

    def cron(
        self,
        expression: str,
        /,
        args: object = None,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        missed: MissedFires | str = MissedFires.COALESCE,
        catch_up: int = 100,
        tolerance: float = 60.0,
        **options: Unpack[EnqueueOptions],
    ) -> Callable[[F], F]:
        """Enqueue jobs at times of the day: ``@app.cron("0 9 * * 1-5", timezone="Europe/Paris")``.

        Put on a task, above ``@app.task``, it enqueues that. Put on an ordinary function
        ``f(fire)`` it enqueues what that returns when it fires: arguments, an
        `EnqueueRequest`, a list of these, or None. Options are those of an enqueue.

        Every worker of the app may fire it, and exactly one does: for each instant once,
        in the statement that inserts the jobs. An instant whose jobs are all duplicates has
        been fired for. The handler finds it in ``job.scheduled_for``.

        Args:
          expression: minute, hour, day of the month, month, day of the week; or six fields,
              with the second first; or ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``,
              ``@yearly``. Times that a zone's clock skips or shows twice:
              docs/how-to/cron.md.
          args: the arguments of a task's jobs; not needed if their class has defaults for
              all of its fields.
          timezone: an IANA name, as in ``"Pacific/Auckland"``.
          name: of the schedule, unique in the database; default, the kind of the task, or
              the function's name.
          missed: what becomes of instants at which no worker ran: ``"coalesce"``, one fire
              for the last of them; ``"skip"``; ``"catch_up"``, one for each. A schedule that
              is new, or whose expression has changed, has missed none.
          catch_up: how many are caught up with, the last ones, 1 to 10,000.
          tolerance: seconds a fire may be late before it is skipped, with ``missed="skip"``.
          options: ``queue, priority, max_attempts, tags, metadata, unique_opts,
              ordering_key, deadline``, and ``kind`` of a function's dict.

        Raises:
          ConfigurationError: there is no such expression or zone; the function is neither a
              task nor can make jobs; the arguments or options break a rule; or the name is
              taken. Nothing was registered.
          TypeError: a value is of another type.
        """
        rule = cron_rule(expression, timezone)
        policy = policy_of(missed, catch_up, tolerance)
        return self._schedule(rule, policy, name, args, options)

    def periodic(
        self,
        period: float | timedelta,
        /,
        args: object = None,
        *,
        name: str | None = None,
        missed: MissedFires | str = MissedFires.COALESCE,
        catch_up: int = 100,
        tolerance: float = 60.0,
        **options: Unpack[EnqueueOptions],
    ) -> Callable[[F], F]:
        """Enqueue jobs every so often: ``@app.periodic(300)``, or with a timedelta.

        As `cron`. Periods count from when the database first knew of the schedule, or of this
        period, for every worker alike: a restart does not begin anew.

        Args:
          period: seconds, or a timedelta; at least one second.
          args: as for `cron`.
          name: as for `cron`.
          missed: as for `cron`.
          catch_up: as for `cron`.
          tolerance: as for `cron`.
          options: as for `cron`.

        Raises:
          ConfigurationError: as `cron`; or the period is out of its range.
          TypeError: as `cron`.
        """
        rule = every(period)
        policy = policy_of(missed, catch_up, tolerance)
        return self._schedule(rule, policy, name, args, options)

    def _schedule(
        self,
        rule: Rule,
        policy: Policy,
        name: str | None,
        args: object,
        options: EnqueueOptions,
    ) -> Callable[[F], F]:
        def register(function: F) -> F:
            made = schedule_of(self._registry, function, rule, policy, name, args, options)
            self._registry.schedule(made)
            return function

        return register

    @property
    def schedules(self) -> tuple[str, ...]:
        """The names of this app's schedules."""
        return tuple(self._registry.schedules)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that this app's tasks run."""
        return tuple(self._registry.tasks)

    def __repr__(self) -> str:
        return f"<App with tasks for {', '.join(self.kinds) or 'nothing'}>"


def registry_of(app: App) -> Registry:
    """Return what an app has registered."""
    return app._registry


def worker_queues(
    app: App,
    queues: Mapping[str, QueueSettings | int | None] | typing.Iterable[str] | None,
) -> dict[str, QueueSettings]:
    """Return the queues a worker serves: as given, else all that the app knows.

    Raises:
      ConfigurationError: a value is out of its range, or there is no queue.
      TypeError: these are no names.
    """
    registry = registry_of(app)
    if queues is None:
        names = {"default", *registry.queues, *registry.task_queues}
        return {name: registry.queue_settings(name) for name in sorted(names)}
    if isinstance(queues, str):
        raise ConfigurationError(f"queues={queues!r}: give a list of names, as in [{queues!r}]")
    if not isinstance(queues, typing.Iterable):
        raise TypeError(
            f"queues: give a list of names, or a mapping to settings, not {name_of(queues)}"
        )
    chosen: dict[str, QueueSettings] = {}
    for name in queues:
        _check_queue(name)
        given = queues[name] if isinstance(queues, Mapping) else None
        if given is None:
            given = registry.queue_settings(name)
        elif not isinstance(given, QueueSettings):
            given = attrs.evolve(registry.queue_settings(name), max_workers=given)
        chosen[name] = given
    if not chosen:
        raise ConfigurationError("queues is empty: a worker needs at least one queue to serve")
    return chosen


def declared_queues(
    app: App,
    queues: Mapping[str, QueueSettings | int | None] | typing.Iterable[str] | None,
    chosen: Mapping[str, QueueSettings],
) -> dict[str, QueueSettings]:
    """Return those of a worker's queues whose settings somebody has set: the app, or its caller."""
    given = queues if isinstance(queues, Mapping) else {}
    set_by_app = registry_of(app).queues
    return {
        name: settings
        for name, settings in chosen.items()
        if name in set_by_app or isinstance(given.get(name), QueueSettings)
    }


def _default_kind(args_type: Any, handler: Callable[..., Any] | None) -> str:
    if isinstance(args_type, type) and args_type is not dict and not typing.get_args(args_type):
        return kind_of(args_type)
    whose = "" if handler is None else f" of handler {name_of_function(handler)}"
    raise ConfigurationError(
        f"the arguments{whose} have no class to name their kind after; give kind=..."
    )


def _runs_in_thread(handler: Callable[..., Any], asyncio: object) -> bool:
    if type(asyncio) is not bool:
        raise ConfigurationError(f"asyncio={asyncio!r}: give True or False")
    function = written(handler)
    if _is_generator(function):
        raise ConfigurationError(
            f"handler {name_of_function(handler)} is a generator; it must return, not yield"
        )
    if inspect.iscoroutinefunction(function):
        return False
    # A decorator's ordinary function around a coroutine function returns its coroutine.
    in_thread = not inspect.iscoroutinefunction(written(inspect.unwrap(function)))
    if in_thread and asyncio:
        raise ConfigurationError(
            f"handler {name_of_function(handler)} is an ordinary function, which runs in a thread:"
            " make it async, or leave out asyncio=True"
        )
    return in_thread


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _check_queue(name: object) -> None:
    try:
        check_queue(name)
    except InvalidRequest as error:
        raise ConfigurationError(str(error)) from None

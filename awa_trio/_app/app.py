"""The app: a registry with decorators, and no I/O."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, final

from .._core.backoff import Backoff
from .._core.codec import Codec
from .._core.errors import ConfigurationError, InvalidRequest
from .._core.jsontext import name_of
from .._core.kinds import kind_of
from .._core.plan import FollowUpSpec, Outcome
from .._core.registry import Registry, Task
from .._core.request import KindDefaults, check_queue
from .._core.settings import QueueSettings
from .._runtime.job import Job

F = TypeVar("F", bound=Callable[..., Any])


@final
class App:
    """What one application knows: its tasks, their follow-ups, its queues.

    Holds no connection and starts nothing, so it can be built at import.

    Args:
      codec: how arguments become JSON, if the usual way is not enough.
    """

    def __init__(self, *, codec: Codec | None = None) -> None:
        self._registry = Registry(codec or Codec())

    def task(
        self,
        *,
        kind: str | None = None,
        queue: str = "default",
        priority: int = 2,
        max_attempts: int = 25,
        deadline: float | None = None,
        backoff: Backoff | None = None,
        args: Any = None,
    ) -> Callable[[F], F]:
        """Register a handler for the jobs whose arguments its annotation names.

        The handler takes one parameter, annotated `Job[Args]`. A coroutine function runs in
        the worker's event loop; an ordinary function runs in a thread.

        Args:
          kind: what its jobs are called in the database; default, the class's name in
              snake case. Required where the arguments are a plain dict.
          queue: where its jobs go unless their enqueue says otherwise.
          priority: 1 runs first, 4 last; likewise.
          max_attempts: attempts a job may spend, 1 to 1000; likewise.
          deadline: seconds an attempt may take; 0 for no limit; default, the queue's.
          backoff: returns the seconds before the next attempt, given the number of the one
              that failed; default, about ``2**attempt``, at most a day.
          args: the class of the arguments, where the annotation cannot be evaluated.

        Raises:
          ConfigurationError: the handler is a generator, or its annotation does not name a
              class; the kind or class is registered twice, or cannot be stored; or a value
              is out of its range. Nothing was registered.
        """
        # Names of classes that are local to a function are only known to that function.
        local_names = dict(sys._getframe(1).f_locals)

        def register(handler: F) -> F:
            args_type = args if args is not None else _args_type(handler, local_names)
            name = _default_kind(args_type, handler) if kind is None else kind
            if deadline is not None:
                QueueSettings(deadline=deadline)  # the same range
            if backoff is not None and not callable(backoff):
                raise ConfigurationError(
                    f"backoff={backoff!r}: give a function from the number of the attempt that"
                    " failed to seconds"
                )
            self._registry.add(
                Task(
                    kind=name,
                    args_type=args_type,
                    handler=handler,
                    defaults=KindDefaults(queue, priority, max_attempts, args_type),
                    deadline=deadline,
                    backoff=backoff,
                    in_thread=_runs_in_thread(handler),
                )
            )
            return handler

        return register

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

    def queue(self, name: str, *, max_workers: int = 50, deadline: float = 300.0) -> None:
        """Set how a worker serves one queue.

        Args:
          name: the queue.
          max_workers: attempts that one worker runs at once.
          deadline: seconds an attempt may take, unless its task or job says otherwise; 0
              for no limit.

        Raises:
          ConfigurationError: the queue is set twice, or a value is out of its range.
        """
        _check_queue(name)
        if name in self._registry.queues:
            raise ConfigurationError(f"queue {name!r} is set twice; remove one of them")
        self._registry.queues[name] = QueueSettings(max_workers=max_workers, deadline=deadline)

    def on_completed(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for jobs of a class that complete.

        The function gets the arguments and the job's row, and returns arguments, an
        `EnqueueRequest`, a list of these, or None. It is an ordinary function, runs before
        the completing transaction, and what it returns commits with the completion, before
        what the handler staged. If it raises, the attempt fails.

        Args:
          args_type: the class of the arguments of the jobs that complete. Its task may be
              registered later.

        Raises:
          ConfigurationError: the function is a coroutine function or a generator, or the
              class is a plain dict.

        Source: ADR-046, "How they are inserted".
        """
        return self._follow(args_type, Outcome.COMPLETED)

    def on_exhausted(self, args_type: type) -> Callable[[F], F]:
        """Register a follow-up for jobs of a class that fail for good.

        As `on_completed`, with the recorded error as the third argument. It runs for a
        terminal error, a last attempt, and an attempt that a staging error poisoned. If it
        raises, that is logged, and the job fails without it.

        Args:
          args_type: the class of the arguments of the jobs that fail.

        Raises:
          ConfigurationError: as `on_completed`.
        """
        return self._follow(args_type, Outcome.EXHAUSTED)

    def _follow(self, args_type: type, outcome: Outcome) -> Callable[[F], F]:
        def register(function: F) -> F:
            plain = _plain(function)
            if inspect.iscoroutinefunction(plain) or _is_generator(plain):
                raise ConfigurationError(
                    f"follow-up {_name(function)} must be an ordinary function that returns: it"
                    " runs between the handler and its commit, and must not wait for anything"
                )
            self._registry.follow(args_type, FollowUpSpec(outcome, function))
            return function

        return register

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
        names = {"default", *registry.queues}
        names |= {task.defaults.queue or "default" for task in registry.tasks.values()}
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
            deadline = registry.queue_settings(name).deadline
            given = QueueSettings(max_workers=given, deadline=deadline)
        chosen[name] = given
    if not chosen:
        raise ConfigurationError("queues is empty: a worker needs at least one queue to serve")
    return chosen


def _args_type(handler: Callable[..., Any], local_names: dict[str, Any]) -> Any:
    """The class in the annotation of a handler's parameter."""
    name = _name(handler)
    try:
        parameters = [
            p
            for p in inspect.signature(handler).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            or (p.kind is p.KEYWORD_ONLY and p.default is p.empty)
        ]
    except (TypeError, ValueError):
        parameters = []
    if len(parameters) != 1 or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigurationError(
            f"handler {name} must take exactly one parameter, as in"
            f" async def {getattr(handler, '__name__', 'handler')}(job: awa.Job[MyArgs])"
        )
    try:
        hints = typing.get_type_hints(_plain(handler), localns=local_names)
    except Exception as error:  # evaluating an annotation can raise anything
        raise ConfigurationError(
            f"the annotation of handler {name} cannot be evaluated ({error});"
            " give the class itself, as in @app.task(args=MyArgs)"
        ) from error
    hint = hints.get(parameters[0].name)
    if hint is None or typing.get_origin(hint) is not Job or len(typing.get_args(hint)) != 1:
        raise ConfigurationError(
            f"annotate the parameter of handler {name} with the class of its arguments, as in"
            f" ({parameters[0].name}: awa.Job[MyArgs])"
        )
    return typing.get_args(hint)[0]


def _default_kind(args_type: Any, handler: Callable[..., Any] | None) -> str:
    if isinstance(args_type, type) and args_type is not dict and not typing.get_args(args_type):
        return kind_of(args_type)
    whose = "" if handler is None else f" of handler {_name(handler)}"
    raise ConfigurationError(
        f"the arguments{whose} have no class to name their kind after; give kind=..."
    )


def _runs_in_thread(handler: Callable[..., Any]) -> bool:
    function = _plain(handler)
    if _is_generator(function):
        raise ConfigurationError(
            f"handler {_name(handler)} is a generator; it must return, not yield"
        )
    if inspect.iscoroutinefunction(function):
        return False
    # A decorator's ordinary function around a coroutine function returns its coroutine.
    return not inspect.iscoroutinefunction(_plain(inspect.unwrap(function)))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose code is run: behind partials, and objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _name(function: Callable[..., Any]) -> str:
    """How messages name a function, or whatever was given instead of one."""
    return getattr(function, "__qualname__", None) or repr(function)


def _check_queue(name: object) -> None:
    try:
        check_queue(name)
    except InvalidRequest as error:
        raise ConfigurationError(str(error)) from None

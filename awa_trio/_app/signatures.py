"""What a function asks for, and what it provides, by its annotations."""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from .._core.errors import ConfigurationError
from .._core.naming import name_of_function
from .._core.resources import Resource, Scope
from .._core.shapes import spell
from .._runtime.job import Job


@attrs.frozen
class Asked:
    """What a handler asks for."""

    args_type: Any
    """The class of its jobs' arguments."""
    requests: Mapping[str, Any]
    """The resources, by parameter."""


def asked_by(handler: Callable[..., Any], args: Any, local_names: Mapping[str, Any]) -> Asked:
    """Read what a handler takes: a job, and resources.

    Parameters with a default keep it.

    Args:
      handler: the function, or another callable.
      args: the class of the arguments, where it is not to be read; None to read it.
      local_names: names known where the handler was written.

    Raises:
      ConfigurationError: an annotation is missing, or cannot be evaluated.
    """
    name = f"handler {name_of_function(handler)}"
    hints = _Hints(handler, local_names)
    parameters = list(hints.parameters.values())
    if args is None:
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise ConfigurationError(
                f"{name} must take a job as its first parameter, as in async def"
                f" {getattr(handler, '__name__', 'handler')}(job: awa.Job[MyArgs])"
            )
        try:
            hint = hints.evaluate(parameters[0].annotation)
        except Exception as error:
            raise ConfigurationError(
                f"the annotation of {name} cannot be evaluated ({error});"
                " give the class itself, as in @app.task(args=MyArgs)"
            ) from error
        if typing.get_origin(hint) is not Job or len(typing.get_args(hint)) != 1:
            raise ConfigurationError(
                f"annotate the first parameter of {name} with the class of its arguments, as in"
                f" ({parameters[0].name}: awa.Job[MyArgs])"
            )
        args = typing.get_args(hint)[0]
    requests = {
        parameter.name: _key(parameter, name, hints)
        for parameter in parameters[1:]
        if _must_be_given(parameter)
    }
    return Asked(args, requests)


def resource_of(
    function: Callable[..., Any],
    scope: Scope,
    provides: Any,
    local_names: Mapping[str, Any],
) -> Resource:
    """Read what a function that opens a resource provides, and what it uses.

    Args:
      function: an async generator function, or one that returns an async context manager.
      scope: how long the resource lives.
      provides: the type it provides, where it is not to be read; None to read it.
      local_names: names known where the function was written.

    Raises:
      ConfigurationError: it is no such function, an annotation is missing or cannot be
          evaluated, or the scope is none.
    """
    name = f"resource {name_of_function(function)}"
    if scope not in typing.get_args(Scope):
        raise ConfigurationError(f"{name}: scope={scope!r}: give 'worker' or 'attempt'")
    hints = _Hints(function, local_names)
    generates = inspect.isasyncgenfunction(function)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(
            f"{name} must be an async generator function, which yields once, or an ordinary"
            " function that returns an async context manager"
        )
    key = _provided(name, function, hints) if provides is None else provides
    _check_key(key, f"{name} provides")
    requests: dict[str, Any] = {}
    job: str | None = None
    job_args: Any = None
    for parameter in filter(_must_be_given, hints.parameters.values()):
        asked = _key(parameter, name, hints, may_be_job=True)
        if typing.get_origin(asked) is not Job and asked is not Job:
            requests[parameter.name] = asked
            continue
        if scope == "worker":
            raise ConfigurationError(
                f"{name} lives as long as the worker and has no job;"
                " give it scope='attempt' to open it for each attempt"
            )
        job, job_args = parameter.name, next(iter(typing.get_args(asked)), None)
        job_args = None if job_args is Any else job_args
    return Resource(
        key=key,
        name=name_of_function(function),
        scope=scope,
        open=contextlib.asynccontextmanager(function) if generates else function,
        requests=requests,
        job_parameter=job,
        job_args=job_args,
    )


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _must_be_given(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in _VARIABLE


class _Hints:
    """A function's annotations, each evaluated when it is looked at."""

    def __init__(self, function: Callable[..., Any], local_names: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = inspect.Signature()
        self.parameters = signature.parameters
        self.returned = signature.return_annotation
        self._function = function
        self._locals = dict(local_names)

    def evaluate(self, annotation: Any) -> Any:
        """Evaluate one annotation.

        Raises:
          Exception: whatever evaluating it raises, such as NameError.
        """
        names = getattr(inspect.unwrap(written(self._function)), "__globals__", {})
        stub = type("Annotated", (), {"__annotations__": {"it": annotation}})
        hints = typing.get_type_hints(stub, names, self._locals, include_extras=True)
        return hints["it"]


def _key(
    parameter: inspect.Parameter, name: str, hints: _Hints, *, may_be_job: bool = False
) -> Any:
    """What a parameter requests."""
    where = f"parameter {parameter.name!r} of {name}"
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ConfigurationError(f"{where} is given by name; remove the '/' after it")
    if parameter.annotation is parameter.empty:
        raise ConfigurationError(
            f"annotate {where} with the type of a resource, or give it a default"
        )
    try:
        key = hints.evaluate(parameter.annotation)
    except Exception as error:
        raise ConfigurationError(
            f"the annotation of {where} cannot be evaluated ({error});"
            " import what it names when the program runs, not only for type checkers"
        ) from error
    if not may_be_job and (key is Job or typing.get_origin(key) is Job):
        raise ConfigurationError(f"{where}: a handler takes its job as the first parameter")
    _check_key(key, f"{where} requests")
    return key


def _check_key(key: Any, who: str) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise ConfigurationError(
            f"{who} {spell(key)}, by which nothing can be looked up ({error});"
            " use a class or a NewType"
        ) from error
    if key is Any or key is object or key is type(None):
        raise ConfigurationError(f"{who} {spell(key)}, which could be anything; name a class")


_OPENED_BY_ENTERING = (contextlib.AbstractAsyncContextManager,)
_OPENED_BY_YIELDING = (abc.AsyncIterator, abc.AsyncGenerator, abc.AsyncIterable)


def _provided(name: str, function: Callable[..., Any], hints: _Hints) -> Any:
    """What a function that opens a resource says it provides."""
    yields = inspect.isasyncgenfunction(inspect.unwrap(function))
    expected = (
        f"annotate what {name} returns, as in -> "
        + ("AsyncIterator[Database]" if yields else "AbstractAsyncContextManager[Database]")
        + "; or give the type, as in @app.resource(provides=Database)"
    )
    if hints.returned is inspect.Signature.empty:
        raise ConfigurationError(expected)
    try:
        hint = hints.evaluate(hints.returned)
    except Exception as error:
        raise ConfigurationError(f"{expected} (evaluating it: {error})") from error
    origin = typing.get_origin(hint)
    if origin in (_OPENED_BY_YIELDING if yields else _OPENED_BY_ENTERING):
        return typing.get_args(hint)[0]
    if (
        not yields
        and origin is None
        and hasattr(hint, "__aenter__")
        and hint not in _OPENED_BY_ENTERING
    ):
        return hint  # such as a client that is a context manager of itself
    raise ConfigurationError(expected)


def written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose code is run: behind partials, and objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__

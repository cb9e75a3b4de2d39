"""What handlers request besides their job, and in which order that makes resources open.

A resource is requested by the type it provides. A worker's resources live as long as the
worker, an attempt's as long as the attempt; an attempt's may use a worker's, never the
other way round. Nothing is opened here: a `Wiring` says what to open, in which order, for
whom, or it cannot be made and says why.

Elsewhere: what a signature requests, `_app.signatures`; opening and closing,
`_runtime.resources`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from .._slips import nearest
from .errors import ConfigurationError
from .naming import name_of_function
from .shapes import spell

if TYPE_CHECKING:
    from .registry import Task

Scope: TypeAlias = Literal["worker", "attempt"]


@attrs.frozen(eq=False)
class Resource:
    """How something that handlers request is opened, and closed."""

    key: Any
    """What requests it: the annotation of the type it provides."""
    name: str
    """The function that opens it."""
    scope: Scope
    """Whether there is one for the worker, or one for each attempt."""
    open: Callable[..., AbstractAsyncContextManager[Any]]
    """Takes what it requests, by name."""
    requests: Mapping[str, Any]
    """The resources it uses itself, by parameter."""
    job_parameter: str | None = None
    """The parameter that takes the attempt's job; None if it does not ask for that."""
    job_args: Any = None
    """The class of that job's arguments; None for any."""

    def __str__(self) -> str:
        return f"{spell(self.key)} ({self.name})"


@attrs.frozen(eq=False)
class Wiring:
    """What one worker opens, and what it lends to whom."""

    given: Mapping[Any, Any] = attrs.field(factory=dict)
    """Instances that the caller opened, and closes."""
    worker: tuple[Resource, ...] = ()
    """Opened before the worker claims, in this order."""
    attempts: Mapping[str, tuple[Resource, ...]] = attrs.field(factory=dict)
    """By kind, what each attempt opens, in this order; only kinds that do."""


def wire(
    tasks: Mapping[str, Task],
    resources: Mapping[Any, Resource],
    given: Mapping[Any, Any],
    kinds: Collection[str] | None = None,
) -> Wiring:
    """Say what to open for an application's tasks: what they request, and what that uses.

    Those registered first open first, but after what they use.

    Args:
      tasks: all tasks, by kind.
      resources: all resources, by key, in the order of their registration.
      given: instances that stand in for resources, by key.
      kinds: the tasks that will run; default, all.

    Raises:
      ConfigurationError: something is requested that nobody provides; resources use each
          other in a circle; a worker's resource uses an attempt's; an attempt's resource
          takes jobs of another class than a handler that requests it; nothing requests
          an instance that was given.
    """
    graph = _Graph(resources, given)
    requested = {key for task in tasks.values() for key in task.requests.values()}
    requested.update(key for r in resources.values() for key in r.requests.values())
    for key in given:
        if key not in resources and key not in requested:
            raise ConfigurationError(
                f"resources={{{spell(key)}: ...}}: nothing requests {spell(key)}"
                f"{graph.hint(key, requested)}"
            )
    running = {k: t for k, t in tasks.items() if t.requests and (kinds is None or k in kinds)}
    used: dict[str, dict[Any, Resource]] = {}
    for kind, task in running.items():
        found = used[kind] = {}
        name = f"handler {name_of_function(task.handler)}"
        for parameter, key in task.requests.items():
            graph.follow(key, name, parameter, found)
        for resource in found.values():
            _check_job(resource, task, name)
    order: dict[Any, Resource] = {}
    for key in resources:
        if any(key in found for found in used.values()):
            graph.follow(key, "", "", order)
    attempts = {
        kind: tuple(r for r in order.values() if r.scope == "attempt" and r.key in found)
        for kind, found in used.items()
    }
    return Wiring(
        dict(given),
        tuple(r for r in order.values() if r.scope == "worker"),
        {kind: opened for kind, opened in attempts.items() if opened},
    )


@attrs.frozen
class _Graph:
    """Which resource uses which."""

    resources: Mapping[Any, Resource]
    given: Mapping[Any, Any]
    path: list[Resource] = attrs.field(factory=list)
    """From a request to the resource that is looked at."""

    def follow(
        self, key: Any, user: str, parameter: str, found: dict[Any, Resource]
    ) -> Resource | None:
        """Add a resource to those found, after what it uses; None if it is given."""
        if key in self.given:
            return None
        resource = self.resources.get(key)
        if resource is None:
            raise ConfigurationError(
                f"{user} requests {spell(key)} as its parameter {parameter!r}, and no resource"
                f" provides that{self.hint(key)}; register one with @app.resource, or give"
                " resources={...}"
            )
        if resource in self.path:
            circle = [*self.path[self.path.index(resource) :], resource]
            raise ConfigurationError(
                "resources use each other in a circle: "
                + " uses ".join(map(str, circle))
                + "; open what they share in a resource of its own"
            )
        if key not in found:
            self.path.append(resource)
            for inner_parameter, inner_key in resource.requests.items():
                inner = self.follow(
                    inner_key, f"resource {resource.name}", inner_parameter, found
                )
                if resource.scope == "worker" and inner is not None and inner.scope != "worker":
                    raise ConfigurationError(
                        f"resource {resource} lives as long as the worker and cannot use"
                        f" {inner}, which lives as long as an attempt; give {resource.name}"
                        " scope='attempt', or the other scope='worker'"
                    )
            self.path.pop()
            found[key] = resource
        return resource

    def hint(self, key: Any, others: Iterable[Any] = ()) -> str:
        """What was probably meant: a class above or below it, or one of a similar name."""
        known = dict.fromkeys([*self.resources, *self.given, *others])
        known.pop(key, None)
        for other in known:
            if _related(key, other):
                return f" (it is looked up by the exact type; did you mean {spell(other)}?)"
        names = {spell(other): other for other in known}
        near = nearest(spell(key), names)
        return f" (did you mean {near[0]}?)" if near else ""


def _related(one: Any, other: Any) -> bool:
    if not (isinstance(one, type) and isinstance(other, type)):
        return False
    return one in other.__mro__ or other in one.__mro__


def _check_job(resource: Resource, task: Task, name: str) -> None:
    wanted, args = resource.job_args, task.args_type
    if not (isinstance(wanted, type) and isinstance(args, type)):
        return
    if wanted not in args.__mro__:
        raise ConfigurationError(
            f"{name} runs jobs of {spell(args)} and requests resource {resource}, whose"
            f" parameter {resource.job_parameter!r} takes jobs of {spell(wanted)};"
            " annotate that with Job[Any] if any job will do"
        )

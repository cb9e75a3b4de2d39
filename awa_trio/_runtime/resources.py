"""What handlers request besides their job: opened in order, closed in reverse.

The worker's resources are opened and closed by the task that runs the worker, around the
nursery of its attempts, so that one may hold a nursery or a cancel scope around its
``yield``: if its background work fails, what it surrounds is cancelled, and nothing else.

An attempt's resources are opened and closed by the attempt's task, around its nursery and
inside the scope that can cut it: whatever cuts the handler cuts them too.

Elsewhere: which to open, and in which order, `_core.resources`. Source: ADR 0018.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import trio

from .._core.errors import ResourceFailed
from .._core.outcome import leaves
from .._core.registry import Task
from .._core.resources import Resource, Wiring
from .job import Job

logger = logging.getLogger("awa_trio.worker")

Held = AbstractAsyncContextManager[Mapping[str, Any]]
"""Opens an attempt's resources, and gives what its handler requests, by parameter."""


class Resources:
    """The resources of one worker.

    Args:
      wiring: what to open.
      close_timeout: seconds each of the worker's may take to close.
    """

    def __init__(self, wiring: Wiring, close_timeout: float) -> None:
        self._wiring = wiring
        self._close_timeout = close_timeout
        self._values: dict[Any, Any] = dict(wiring.given)
        self._opening: trio.CancelScope | None = None
        self._shut = False

    # ---- the worker's

    @property
    def any_of_worker(self) -> bool:
        """Whether the worker has any to open."""
        return bool(self._wiring.worker)

    def cut(self) -> None:
        """Open no more; whatever is being opened is cancelled, and what is open is closed."""
        self._shut = True
        if self._opening is not None:
            self._opening.cancel(reason="awa_trio: the worker stops before it has started")

    async def hold(self, body: Callable[[], Awaitable[None]]) -> None:
        """Open the worker's resources, run ``body``, close them in reverse.

        ``body`` is not run if `cut` came first.

        Raises:
          ResourceFailed: one of them failed to open or to close, or while ``body`` ran,
              which was cancelled then.
        """
        await self._hold(self._wiring.worker, body)

    async def _hold(
        self, resources: Sequence[Resource], body: Callable[[], Awaitable[None]]
    ) -> None:
        """Hold the first, and inside it the others."""
        if not resources:
            await body()
            return
        resource, *others = resources
        opened = cut = False
        inside: BaseException | None = None
        # Around all of its life: leaving a scope in which a nursery was opened and not
        # closed would break both.
        with trio.CancelScope() as scope:
            self._opening = scope
            if self._shut:
                self.cut()
            try:
                async with resource.open(**self._requested(resource.requests)) as value:
                    opened, self._opening = True, None
                    cut = scope.cancel_called
                    self._values[resource.key] = value
                    try:
                        if not cut:
                            await self._hold(others, body)
                    except BaseException as error:
                        inside = error
                        raise
                    finally:
                        # Whoever is cancelled, what is open gets its time to close.
                        scope.shield = True
                        scope.deadline = trio.current_time() + self._close_timeout
            except BaseException as error:
                own = _besides(error, inside)
                if own is not None:
                    failure, cause = _failure(resource, own, opened=opened)
                    raise failure from cause
                if inside is None or _besides(inside) is None:
                    raise
                # It went through a nursery of the resource, which made a group of it.
        if not opened or cut:
            return
        if scope.cancelled_caught:
            logger.error(
                "resource %s did not close within %g s and was cancelled; if it holds a"
                " nursery, it must cancel that after its yield",
                resource,
                self._close_timeout,
            )
        if inside is None:
            return
        if _besides(inside) is not None:
            raise inside
        await trio.lowlevel.checkpoint_if_cancelled()
        raise ResourceFailed(
            resource.key,
            f"resource {resource} ended while the worker needed it: it cancelled the scope"
            " around its yield",
        )

    # ---- attempts'

    def lend(self, task: Task, job: Job[Any]) -> tuple[Callable[..., Any], Held | None]:
        """Return what to run for a job: the handler, and what to hold around the attempt.

        With nothing to hold, the handler has all it requests.
        """
        resources = self._wiring.attempts.get(task.kind)
        if resources is None:
            return partial(task.handler, **self._requested(task.requests)), None
        return task.handler, self._hold_for(task, resources, job)

    @asynccontextmanager
    async def _hold_for(
        self, task: Task, resources: Sequence[Resource], job: Job[Any]
    ) -> AsyncIterator[Mapping[str, Any]]:
        own: dict[Any, Any] = {}
        inside: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                for resource in resources:
                    given = self._requested(resource.requests, own)
                    if resource.job_parameter is not None:
                        given[resource.job_parameter] = job
                    own[resource.key] = await stack.enter_async_context(resource.open(**given))
                try:
                    yield self._requested(task.requests, own)
                except BaseException as error:
                    inside = error
                    raise
        except BaseException as error:
            if inside is None or inside is error or _besides(error, inside) is not None:
                raise
            # Of groups that nurseries of resources made, nothing is theirs.
        if inside is not None and _besides(inside) is not None:
            # Nor does a resource decide what becomes of an error that it swallowed.
            raise inside

    def _requested(
        self, requests: Mapping[str, Any], own: Mapping[Any, Any] | None = None
    ) -> dict[str, Any]:
        """What is requested, by parameter."""
        values = self._values
        if own is None:
            return {name: values[key] for name, key in requests.items()}
        return {name: own[key] if key in own else values[key] for name, key in requests.items()}


def _besides(error: BaseException, inside: BaseException | None = None) -> BaseException | None:
    """What of an error is no cancellation, and did not come from inside; None if nothing."""
    known = set() if inside is None else {id(leaf) for leaf in leaves(inside)}

    def is_known(part: BaseException) -> bool:
        return isinstance(part, trio.Cancelled) or id(part) in known

    if isinstance(error, BaseExceptionGroup):
        return error.split(is_known)[1]
    return None if is_known(error) else error


def _failure(
    resource: Resource, error: BaseException, *, opened: bool
) -> tuple[BaseException, BaseException | None]:
    """What a failure of the worker's resource is to the worker, and its cause."""
    parts = list(leaves(error))
    for part in parts:
        if not isinstance(part, Exception):
            return error, error.__cause__
    what = "failed" if opened else "could not be opened"
    why = "; ".join(f"{type(p).__name__}: {p}" if str(p) else type(p).__name__ for p in parts)
    failure = ResourceFailed(resource.key, f"resource {resource} {what}: {why}")
    return failure, parts[0] if len(parts) == 1 else error

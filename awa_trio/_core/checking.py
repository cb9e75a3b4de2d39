"""What is wrong with an application, said before it runs.

What can only be wrong in one place is refused where it is registered. What is left is how the
parts fit together, which nobody knows until the last of them is there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from .errors import ConfigurationError
from .registry import Registry
from .shapes import spell


class Severity(enum.StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """It does not work."""
    WARNING = "warning"
    """It works, and is hardly what was meant."""


@attrs.frozen
class Finding:
    """Something that is wrong with an application."""

    severity: Severity
    text: str
    """What, and how to mend it, as one sentence."""


def check_registry(
    registry: Registry, resources: Mapping[Any, object] | None = None
) -> list[Finding]:
    """Return what is wrong with how an application's parts fit together.

    Args:
      registry: all of them.
      resources: instances that stand in for resources, as for a worker.
    """
    found = []
    if not registry.tasks:
        text = "the app has no tasks, so no worker starts: register one with @app.task"
        found.append(Finding(Severity.ERROR, text))
    try:
        registry.wire(resources)
    except ConfigurationError as error:
        found.append(Finding(Severity.ERROR, str(error)))
    for args_type, outcomes in registry.unclaimed_follow_ups().items():
        names = " and ".join(f"on_{outcome.value}" for outcome in outcomes)
        text = (
            f"{names} is registered for {spell(args_type)}, which no task of the app takes, and"
            " which it does not declare: it never fires; import the module with the task"
        )
        found.append(Finding(Severity.WARNING, text))
    for name in registry.queues:
        if name not in registry.task_queues and name != "default":
            text = (
                f"queue {name!r} has settings, and no task or schedule of the app goes there unless an"
                " enqueue says so: is the name right?"
            )
            found.append(Finding(Severity.WARNING, text))
    return found


def strangers(waiting: Mapping[str, set[str]], known: Mapping[str, set[str]]) -> list[Finding]:
    """Return what is wrong if jobs wait that nobody runs.

    Args:
      waiting: by queue, the kinds of which jobs wait there.
      known: by queue, the kinds that somebody would run there.
    """
    found = []
    for queue, kinds in waiting.items():
        for kind in sorted(kinds - known[queue]):
            text = (
                f"jobs of kind {kind!r} wait in queue {queue!r}, and neither the app nor a live"
                " worker has a task for them: was it renamed or removed?"
            )
            found.append(Finding(Severity.WARNING, text))
    return found

"""Say of public names that they are where users import them from.

Tracebacks, reprs and pickles then read ``awa_trio.TerminalError``, not the private file
it is written in, which may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any


def publish(module: str, names: dict[str, Any]) -> None:
    """Rewrite ``__module__`` of the classes and functions that ``module`` re-exports."""
    for name, value in names.items():
        if name.startswith("_") or not isinstance(value, (type, FunctionType)):
            continue
        if value.__module__.startswith("awa_trio."):
            value.__module__ = module


def publish_later(
    module: str, names: dict[str, Any], places: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that re-exports more when it is asked to.

    All of it at once: what one of the names returns is then known by its public name, too.

    Args:
      module: which.
      names: its own, where the others are put.
      places: the modules that the others are in, as seen from there, with the names of each.
    """
    later = frozenset(name for found in places.values() for name in found)

    def get(name: str) -> Any:
        if name not in later:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        for place, found in places.items():
            loaded = import_module(place, module)
            names.update({one: getattr(loaded, one) for one in found})
        publish(module, names)
        return names[name]

    return get, lambda: sorted({*names, *later})

"""Say of public names that they are where users import them from.

Tracebacks, reprs and pickles then read ``awa_trio.TerminalError``, not the private file
it is written in, which may change.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any


def publish(module: str, names: dict[str, Any]) -> None:
    """Rewrite ``__module__`` of the classes and functions that ``module`` re-exports."""
    for name, value in names.items():
        if name.startswith("_") or not isinstance(value, (type, FunctionType)):
            continue
        if value.__module__.startswith("awa_trio."):
            value.__module__ = module

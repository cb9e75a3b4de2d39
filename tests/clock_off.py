"""A wall clock that is wrong, in this process: the machine's own stays right.

``python -m tests.clock_off SECONDS MODULE ARGUMENTS...`` runs a module with such a clock.
"""

from __future__ import annotations

import datetime as dt
import runpy
import sys
import time

_real = time.time
_off = 0.0


class _Off(dt.datetime):
    # As large as the real one, or extension modules take offence.
    __slots__ = ()

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> _Off:
        return super().now(tz) + dt.timedelta(seconds=_off)


def set_clock(seconds: float) -> None:
    """Put the clock so many seconds forward, or back, of what the machine says.

    What measures how long something takes, `time.monotonic` and Trio, goes on as it did.
    """
    global _off
    _off = seconds
    time.time = lambda: _real() + _off
    dt.datetime = _Off  # type: ignore[misc]


if __name__ == "__main__":
    _, seconds, module, *arguments = sys.argv
    set_clock(float(seconds))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)

"""Servers of a test's own, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from awa_trio._pg import server_data
from awa_trio.pg import DevServer

#: Seconds after which a test has failed: several times what anything here may take.
FAR = 90.0


def take_down(server: DevServer, how: signal.Signals) -> None:
    """End the postmaster as pg_ctl does, or as the kernel; return when it has ended."""
    postmaster = server_data.read_postmaster(server.root / "data")
    assert postmaster is not None
    os.kill(postmaster.pid, how)
    deadline = time.monotonic() + FAR
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(postmaster.pid, 0)
            time.sleep(0.01)
        raise AssertionError("PostgreSQL did not end")

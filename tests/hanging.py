"""A test that hangs fails, and says where: which tasks of Trio wait for what, and every thread.

The run would else be ended from outside after its quarter of an hour, with nothing to go by.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn, TextIO

import pytest
import trio

#: Seconds that a test may take; one that is marked slow may take more.
LIMIT, LIMIT_OF_SLOW = 300, 1800


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch a test, with its fixtures."""
    limit = LIMIT_OF_SLOW if item.get_closest_marker("slow") else LIMIT

    def tell(signum: int, frame: FrameType | None) -> NoReturn:
        write_where(sys.__stderr__ or sys.stderr, frame)
        pytest.fail(f"{item.nodeid} took more than {limit} s; its stderr says where it was")

    before = signal.signal(signal.SIGALRM, tell)
    signal.alarm(limit)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write_where(out: TextIO, frame: FrameType | None) -> None:
    """Write Trio's tasks, the frame that was interrupted, and the stack of each thread."""
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:
        root = None
    if root is not None:
        out.writelines(_tasks(root, 0))
    out.writelines(traceback.format_stack(frame))
    out.flush()
    faulthandler.dump_traceback(out)


def _tasks(task: trio.lowlevel.Task, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{task.name}\n"
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        yield f"{'  ' * depth}  {code.co_filename}:{line} {code.co_name}\n"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks(child, depth + 1)

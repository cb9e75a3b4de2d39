"""The parent's end of a process that measures: what it says, and what it takes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: Seconds in which a process must say something when it was asked to.
PATIENCE = 300.0


class ChildFailed(Exception):
    """A process ended, or said nothing, when it should have answered."""


class Child:
    """A process that speaks lines of JSON, ended when the block is left."""

    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        self._name = " ".join((module, *arguments[:1]))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed on leaving
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def hear(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Wait for the next line.

        Raises:
          ChildFailed: there is none.
        """
        try:
            line = self._lines.get(timeout=patience)
        except queue.Empty:
            raise ChildFailed(f"{self._name} said nothing for {patience:.0f} s") from None
        if line is None:
            self._errors.seek(0)
            raise ChildFailed(f"{self._name} ended:\n{self._errors.read()[-4000:]}")
        told: dict[str, Any] = json.loads(line)
        return told

    def heard(self) -> list[dict[str, Any]]:
        """Everything said so far, without waiting."""
        told = []
        while not self._lines.empty():
            told.append(self.hear(0))
        return told

    def say(self, line: object) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for the answer to a command, whatever is said before."""
        while "result" not in (told := self.hear()):
            pass
        result: dict[str, Any] = told["result"]
        return result

    def do(self, command: str, **options: object) -> dict[str, Any]:
        """Give a command, and wait for its answer; `let_go` if it is one that holds on."""
        self.say({"do": command, **options})
        return self.result()

    def let_go(self) -> None:
        """Let a command that has answered close its connections, or stop its worker."""
        self.say("over")

    def cpu(self) -> float:
        """Seconds of CPU that it has used, those of ended threads not counted."""
        return cpu_of(self._process.pid)

    def rss(self) -> int:
        """Bytes that it has in memory."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process's threads, to the nanosecond; 0 if it is gone."""
    total = 0
    for stat in Path(f"/proc/{pid}/task").glob("[0-9]*/schedstat"):
        try:
            total += int(stat.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9

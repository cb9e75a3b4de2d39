"""What everybody has seen, a line of JSON each, in files that no fault reaches.

Each process writes a file of its own. Every line says when, by a clock that all processes of
a machine have in common, and what happened, in the word that `evidence` reads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Ledger:
    """A file that lines are appended to: written when `write` returns, whoever is killed then.

    Args:
      path: the file.
      durable: whether they are to outlast the machine, too.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._durable = durable

    def write(self, what: str, **said: object) -> None:
        """Append a line."""
        line = {"what": what, "at": time.monotonic(), **said}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if self._durable:
            os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Reader:
    """Reads the ledgers in a folder, and what has come since it last did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[Line]:
        """Lines that have come, each with the name of its file under ``by``."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            # A process that is being killed may have begun a line.
            whole, _, _ = text.rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + (len(whole) + 1 if whole else 0)
            for line in whole.splitlines():
                yield {**json.loads(line), "by": path.stem}

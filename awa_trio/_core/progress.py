"""How far an attempt has come: a report for people, and a checkpoint for its next attempt.

A buffer begins with what earlier attempts left, and is made when a handler first asks for
it. Nothing here awaits; the lock makes a change whole between threads, because an
ordinary function reports from its own.

Elsewhere: when it is written, `_runtime.progress`; what a transition makes of it,
`plan.annotate`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from threading import Lock
from typing import Any

import attrs

from .arguments import check_string
from .errors import InvalidValue, LeaseLost
from .jsontext import compact, name_of, read, utf8_size
from .plain import encode_plain

#: It is held in memory for every attempt that reports, and written at every beat.
MAX_PROGRESS_BYTES = 64 * 1024

#: A line for a person to read; what is longer belongs in the metadata.
MAX_MESSAGE = 1_000


@attrs.frozen
class JobProgress:
    """How far a job had come when this was written."""

    percent: float | None = None
    """From 0 to 100; None if it was never said."""
    message: str | None = None
    """What it was doing, for people; None if it was never said."""
    metadata: dict[str, Any] = attrs.field(factory=dict)
    """Where the next attempt may go on, and whatever else its handler noted."""


def read_progress(raw: bytes | None) -> JobProgress:
    """Read progress as it is stored; what makes no sense was not said."""
    try:
        found = read(raw) if raw else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return JobProgress()
    percent, message = found.get("percent"), found.get("message")
    metadata = found.get("metadata")
    return JobProgress(
        percent if isinstance(percent, (int, float)) else None,
        message if isinstance(message, str) else None,
        metadata if isinstance(metadata, dict) else {},
    )


class ProgressBuffer:
    """One attempt's progress, until it is sealed.

    Args:
      raw: what earlier attempts left, as it is stored.
    """

    __slots__ = ("_changes", "_lock", "_metadata_text", "_now", "_sealed", "_text", "_written")

    def __init__(self, raw: bytes | None) -> None:
        self._lock = Lock()
        self._now = read_progress(raw)
        self._metadata_text = compact(self._now.metadata)
        self._text: bytes | None = None
        self._changes = 0
        self._written = 0
        self._sealed = False

    @property
    def now(self) -> JobProgress:
        """What has been said so far; the caller's to keep."""
        now = self._now
        return attrs.evolve(now, metadata=copy.deepcopy(now.metadata)) if now.metadata else now

    def set(
        self, percent: object = None, message: object = None, metadata: object = None
    ) -> None:
        """Say something new; what is None stays as it is, and metadata is merged by its keys.

        Raises:
          InvalidValue: it breaks a rule; nothing has changed.
          LeaseLost: the attempt is over.
        """
        changes: dict[str, Any] = {}
        if percent is not None:
            changes["percent"] = _percent(percent)
        if message is not None:
            changes["message"] = _message(message)
        given = None if metadata is None else _metadata(metadata)
        with self._lock:
            self._change(changes, None if given is None else {**self._now.metadata, **given})

    def clear(self) -> None:
        """Forget everything, also what earlier attempts left.

        Raises:
          LeaseLost: the attempt is over.
        """
        with self._lock:
            self._change({"percent": None, "message": None}, {})

    def _change(self, changes: dict[str, Any], metadata: dict[str, Any] | None) -> None:
        if self._sealed:
            raise LeaseLost("the attempt is over: its progress can no longer be set")
        metadata_text = self._metadata_text
        if metadata is not None:
            changes["metadata"] = metadata
            metadata_text = compact(metadata)
        now = attrs.evolve(self._now, **changes)
        said: dict[str, Any] = {"percent": now.percent, "message": now.message}
        head = compact({key: value for key, value in said.items() if value is not None})
        if now.metadata:
            comma = "," if len(head) > 2 else ""
            head = f'{head[:-1]}{comma}"metadata":{metadata_text}}}'
        text = head.encode("ascii")
        if len(text) > MAX_PROGRESS_BYTES and (size := utf8_size(text)) > MAX_PROGRESS_BYTES:
            raise InvalidValue(
                f"progress: {size:,} bytes of JSON in all; keep at most {MAX_PROGRESS_BYTES:,},"
                " and a reference to the rest"
            )
        self._now, self._metadata_text, self._text = now, metadata_text, text
        self._changes += 1

    def text(self) -> bytes | None:
        """What this attempt has said, as it is stored; None if it has said nothing."""
        return self._text

    def unwritten(self) -> tuple[int, bytes] | None:
        """What is not in the database yet, and the number to give to `wrote`; None if all is."""
        with self._lock:
            if self._text is None or self._changes == self._written:
                return None
            return self._changes, self._text

    def wrote(self, changes: int) -> None:
        """It is in the database."""
        with self._lock:
            self._written = max(self._written, changes)

    def seal(self) -> bytes | None:
        """Close it for good; return what this attempt has said."""
        with self._lock:
            self._sealed = True
            return self._text


def _percent(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValue(
            f"progress.percent: give a number from 0 to 100, not {name_of(value)}"
        )
    if not 0 <= value <= 100:
        raise InvalidValue("progress.percent: give a number from 0 to 100")
    return value


def _message(value: object) -> str:
    text = check_string("progress.message", value, error=InvalidValue, wrong_type=InvalidValue)
    if len(text) > MAX_MESSAGE:
        raise InvalidValue(
            f"progress.message: give at most {MAX_MESSAGE:,} characters, not {len(text):,};"
            " metadata has room for more"
        )
    return text


def _metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"progress.metadata: give a mapping, not {name_of(value)}")
    # Read back, so that later changes to the caller's objects are not seen.
    metadata: dict[str, Any] = read(encode_plain(dict(value), dict, "progress.metadata"))
    return metadata

"""What a process that runs on logs, on stderr: for people, or a line of JSON per record."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from ._output import note, visible_lines

JsonLog = Annotated[
    bool, Parameter(name="--json", negative="", help="Log JSON, an object per line.")
]
"""Whether to log for programs."""

#: What every record has; the rest was given with it, such as which job it is about.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_to_stderr(level: int, *, as_json: bool) -> None:
    """Log what is logged from now on."""
    handler = logging.StreamHandler()
    if as_json:
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(_Visible("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    # What it says of itself, a command has said, with how to stop it.
    logging.getLogger("hypercorn.error").setLevel(max(level, logging.WARNING))


def teller(*, as_json: bool) -> Callable[[str], None]:
    """Return what says how a process goes on: to people, or in the log for programs."""
    return logging.getLogger("awa_trio.cli").info if as_json else note


class _Visible(logging.Formatter):
    """Log records as a terminal shows them, whatever a job's kind or an error quotes."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


class _Json(logging.Formatter):
    """Log records as JSON, in which nothing can command a terminal, or end a line."""

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            facts["error"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str)

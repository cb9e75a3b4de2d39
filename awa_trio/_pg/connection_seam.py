"""The private names of psycopg that the Trio connection stands on, and no others.

They are imported here and nowhere else, after `selfcheck` has looked at them: a
psycopg that was moved is reported in one sentence, not as whatever name went missing.
"""

from __future__ import annotations

from awa_trio._pg import selfcheck

selfcheck.check()

try:
    from psycopg._connection_base import BaseConnection
    from psycopg._conninfo_utils import get_param, split_attempts
    from psycopg._copy_base import BaseCopy
    from psycopg._cursor_base import BaseCursor
    from psycopg._pipeline_base import BasePipeline
    from psycopg._server_cursor_base import ServerCursorMixin
    from psycopg.conninfo import timeout_from_conninfo
    from psycopg.errors import _WaitTimeout as WaitTimeout
    from psycopg.generators import copy_end, copy_to, notifies
    from psycopg.transaction import BaseTransaction
    from psycopg.waiting import _ready as ready_now
except ImportError as missing:  # pragma: no cover - the check names them first
    raise selfcheck.mismatch(f"from which an import failed ({missing})") from missing

__all__ = [
    "BaseConnection",
    "BaseCopy",
    "BaseCursor",
    "BasePipeline",
    "BaseTransaction",
    "ServerCursorMixin",
    "WaitTimeout",
    "copy_end",
    "copy_to",
    "get_param",
    "notifies",
    "ready_now",
    "split_attempts",
    "timeout_from_conninfo",
]

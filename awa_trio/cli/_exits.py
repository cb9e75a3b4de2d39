"""The exit codes, as docs/reference/cli.md lists them."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
SCHEMA = 4
INTERRUPTED = 130

#: As of a program that the system ends for it.
BROKEN_PIPE = 141

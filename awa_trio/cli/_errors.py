"""What the commands raise on purpose: each becomes one sentence and an exit code."""

from __future__ import annotations

from .. import AwaError


class UsageError(AwaError):
    """The command line makes no sense, whatever else there is: exit code 2."""


class CommandFailed(AwaError):
    """It could not be done: exit code 1."""


class ProgramBroken(CommandFailed):
    """A program of the user's could not be imported; chained from what it raised."""

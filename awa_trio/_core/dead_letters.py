"""Why a job that failed is a dead letter: one stable word, decided from how it ended.

The word is for filters, dashboards and `client.dlq`; the story is in the job's errors.
Where several fit, the most telling does: a job whose last attempt a follow-up poisoned
is poisoned, not out of attempts.
"""

from __future__ import annotations

import enum

from .errors import CallbackInvalid, FollowUpError, StagingError, TerminalError, UndecodableArgs
from .outcome import Ended, Interrupted, Raised, Refused, Rescued, Resolved, Returned, leaves


class DeadLetterReason(enum.StrEnum):
    """Why a job became a dead letter. The value is what the database keeps."""

    TERMINAL_ERROR = "terminal_error"
    """Its handler raised a `TerminalError`."""
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    """Its last attempt failed, or passed its deadline."""
    RESCUED = "rescued"
    """Its last attempt was lost with its worker."""
    CALLBACK_TIMEOUT = "callback_timeout"
    """Its last attempt waited for a callback that did not come in time."""
    CALLBACK_FAILED = "callback_failed"
    """An external system failed it: `Callbacks.fail`."""
    CALLBACK_INVALID = "callback_invalid"
    """It waited for a callback that its attempt had not registered."""
    POISONED = "poisoned"
    """A follow-up could not be staged: a `StagingError`."""
    UNDECODABLE = "undecodable"
    """Its arguments do not fit the task: `UndecodableArgs`."""
    FOLLOW_UP_ERROR = "follow_up_error"
    """A registered follow-up could not be made: a `FollowUpError`."""
    INTERRUPTED = "interrupted"
    """A shutdown cut the only attempt it had."""
    REFUSED = "refused"
    """The database refused what its attempt would have written."""


#: Of the errors that end a job whatever attempts remain, the more telling first.
_BY_ERROR: tuple[tuple[type[BaseException], DeadLetterReason], ...] = (
    (StagingError, DeadLetterReason.POISONED),
    (UndecodableArgs, DeadLetterReason.UNDECODABLE),
    (FollowUpError, DeadLetterReason.FOLLOW_UP_ERROR),
    (Interrupted, DeadLetterReason.INTERRUPTED),
    (TerminalError, DeadLetterReason.TERMINAL_ERROR),
)


def dead_letter_reason(ended: Ended, error: BaseException | str) -> DeadLetterReason:
    """Return why a job that failed is a dead letter.

    Args:
      ended: how its last attempt ended, or what was done to it.
      error: what is recorded of it.
    """
    match ended:
        case Rescued(lost):
            # A loss that has a word of its own has it under the same name.
            return DeadLetterReason.__members__.get(lost.name, DeadLetterReason.RESCUED)
        case Refused():
            return DeadLetterReason.REFUSED
        case Resolved():
            return DeadLetterReason.CALLBACK_FAILED
        case _:
            pass
    if isinstance(ended, (Returned, Raised)) and isinstance(error, CallbackInvalid):
        return DeadLetterReason.CALLBACK_INVALID
    if isinstance(error, BaseException):
        found = tuple(leaves(error))
        for kind, reason in _BY_ERROR:
            if any(isinstance(leaf, kind) for leaf in found):
                return reason
    return DeadLetterReason.ATTEMPTS_EXHAUSTED

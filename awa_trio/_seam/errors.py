"""How a store says that something did not work, in words the runtime can act on."""

from __future__ import annotations

import enum


class Lasting(enum.Enum):
    """Why nothing will work again by itself: somebody has taken away what a store works with."""

    SCHEMA = "the awa schema is gone"
    DATABASE = "the database is gone"
    RIGHTS = "the role has lost its rights"


class StoreError(Exception):
    """Base of what a store raises; always chained from the driver's own error."""

    headline: str
    """What may be logged of it. The message may quote a job: triggers say what they like."""
    lasting: Lasting | None = None
    """What it says is gone. Not to be believed of one call alone: a trigger of the user's, on
    a table that lacks something, says the same."""

    def __init__(self, message: str = "", headline: str | None = None) -> None:
        super().__init__(message)
        self.headline = message if headline is None else headline


class Transient(StoreError):
    """The database rolled it back, or the connection was lost on the way: try the same again.

    Whether it committed is unknown where the connection was lost; every call of a
    store may be repeated, because what it guards on has changed if it did.
    """


class LockTimeout(StoreError):
    """Someone else's transaction held a lock for longer than this call was to wait.

    Never a failure of a job: a producer may hold a unique key for as long as it likes.
    """


class Fenced(StoreError):
    """The worker missed its lease and was presumed dead: nothing it writes is accepted."""


class KeyTaken(StoreError):
    """A job needs its unique key back, and another holds it; nothing was changed."""

    holder_id: int
    """The job that holds the key."""

    def __init__(self, holder_id: int) -> None:
        super().__init__(f"job {holder_id} holds the unique key")
        self.holder_id = holder_id


class Rejected(StoreError):
    """The database refuses this for good; trying again would not help."""


class Draining(Rejected):
    """A queue takes no more jobs; nothing was inserted."""

    queue: str
    """The queue."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue} is being drained")
        self.queue = queue

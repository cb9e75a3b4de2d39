"""Every exception awa_trio raises on purpose: the class says what to do, the attributes say why."""

from __future__ import annotations

from collections.abc import Sequence


class AwaError(Exception):
    """Base of every exception awa_trio raises on purpose."""


# ---- What a producer meets -------------------------------------------------


class InvalidRequest(AwaError, ValueError):
    """A job, or the answer to a callback, cannot be stored as asked; nothing was sent to the database.

    Mend the request: the message names the option, or the path to the value
    inside the arguments.
    """

    problem: str
    """What is wrong and where, as in ``args.items[3].price: NaN is not JSON``."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class UnknownKind(AwaError, LookupError):
    """No task of this app handles the kind, so enqueueing it is probably a slip of the pen."""

    kind: str
    """The kind that was asked for."""
    nearest: Sequence[str]
    """The app's kinds that look most alike, best first."""

    def __init__(self, kind: str, nearest: Sequence[str] = ()) -> None:
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        super().__init__(f"this app has no task of kind {kind!r}{hint}")
        self.kind = kind
        self.nearest = nearest


class QueueFull(AwaError):
    """A queue has as many jobs waiting as its ``max_depth`` allows; nothing was enqueued.

    Slow down: shed the work, or wait with ``when_full="wait"`` or ``client.queues.wait_for_room``.
    """

    queue: str
    """The queue."""
    max_depth: int
    """Its limit."""

    def __init__(self, queue: str, max_depth: int) -> None:
        super().__init__(
            f"queue {queue!r} has no room below its max_depth of {max_depth:,}; enqueue later,"
            ' or wait with when_full="wait" inside a cancel scope'
        )
        self.queue = queue
        self.max_depth = max_depth


class QueueDraining(AwaError):
    """A queue is drained: its jobs run, and nothing is enqueued in it until it is resumed."""

    queue: str
    """The queue."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is being drained and takes no more jobs; enqueue in another, or"
            " resume it with client.queues.resume"
        )
        self.queue = queue


class UniqueConflict(AwaError):
    """Another job holds the unique key that this one needs back."""

    job_id: int
    """The job that was to move."""
    holder_id: int | None
    """The job that holds the key; None if it let go of it a moment later."""

    def __init__(self, job_id: int, holder_id: int | None) -> None:
        holder = "another job" if holder_id is None else f"job {holder_id}"
        super().__init__(
            f"job {job_id} cannot be retried: {holder} holds its unique key;"
            " cancel that one first, or let it do the work"
        )
        self.job_id = job_id
        self.holder_id = holder_id


class JobNotFound(AwaError, LookupError):
    """No job has this ID: it never had one, or retention has removed it."""

    job_id: int
    """The ID that was asked for."""

    def __init__(self, job_id: int) -> None:
        # Python does not print numbers of thousands of digits; nor would anybody read them.
        name = str(job_id) if abs(job_id) < 10**30 else "with so large an ID"
        super().__init__(f"there is no job {name}; retention may have removed it")
        self.job_id = job_id


class ScheduleNotFound(AwaError, LookupError):
    """There is no schedule of this name; the database knows those that a worker has run with."""

    name: str
    """The name that was asked for."""
    nearest: Sequence[str]
    """The names that look most alike, best first."""

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        super().__init__(f"there is no schedule {name!r}{hint}")
        self.name = name
        self.nearest = nearest


class InvalidTransition(AwaError):
    """A job is not in a state from which it can do what was asked."""


# ---- Callbacks ----------------------------------------------------------------


class CallbackError(AwaError):
    """Base of what goes wrong with callbacks."""


class CallbackInvalid(CallbackError, ValueError):
    """A handler used a callback in a way that cannot work; mend the handler.

    Registering: a timeout out of range, or while a wait is under way. Waiting: for a
    token that is not this attempt's latest, twice for one, or two at once.
    """


class CallbackNotFound(CallbackError, LookupError):
    """No job expects this callback.

    It was never registered, a later registration replaced it, it timed out, or its
    attempt ended without waiting for it. Whoever delivers it need not try again.
    """

    def __init__(self) -> None:
        super().__init__(
            "no job expects this callback: it was never registered, was replaced, has timed out,"
            " or its attempt ended without it"
        )


class CallbackAlreadyResolved(CallbackError):
    """This callback was resolved before, and the first resolution stands.

    A sender that delivers everything twice may take this for success.
    """

    job_id: int
    """The job it belongs to."""

    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"the callback of job {job_id} has been resolved already; the first resolution stands"
        )
        self.job_id = job_id


class CallbackSuperseded(CallbackError):
    """The job was settled from outside: this attempt has no say in it any more.

    Raised by `Job.wait_for_callback` and `Job.register_callback`. Someone completed or
    failed the job, let it run again, or the callback timed out; or the worker was presumed
    dead. What the attempt staged is discarded, and whatever its handler does now changes
    nothing: clean up, and let this pass.

    Source: ADR-046, "When staged follow-ups commit".
    """

    state: str | None
    """The job's new state, where it is known."""

    def __init__(self, state: str | None = None) -> None:
        became = "" if state is None else f"; the job is {state}"
        super().__init__(
            "the callback timed out, or the job was settled from outside: this attempt has no"
            f" say in it any more{became}"
        )
        self.state = state


# ---- What a handler raises, or meets ----------------------------------------


class TerminalError(AwaError):
    """Raise this in a handler to fail the job now, whatever attempts remain."""


class UndecodableArgs(TerminalError):
    """A job's stored arguments do not fit the type its task asks for.

    The job fails at once: the same bytes would not fit at the next attempt
    either. Deploy a task that accepts them, then retry the job.
    """


class StagingError(TerminalError):
    """A follow-up could not be staged, so this attempt must not complete.

    Raised by `Job.enqueue_on_completion`, always as one of its subclasses.
    Swallowing it changes nothing: a handler that then returns `Completed`
    still fails, with this error as the recorded cause. A handler may turn it
    into another ending, such as `RetryAfter`: only a completion is forbidden.

    Source: ADR-046, "Decision".
    """


class StagingInvalid(StagingError):
    """The follow-up breaks a rule that its insert would have enforced.

    Chained from the original error. The same request would fail at every
    attempt, so the job is not retried.
    """

    problem: str
    """What is wrong and where."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"this follow-up cannot be staged: {problem}")
        self.problem = problem


class StagingTooMany(StagingError):
    """This attempt has already staged as many follow-ups as it may.

    A handler whose fan-out varies from one attempt to the next may catch this
    and raise `RetryAfter` instead. For a large fan-out, stage one job that
    enqueues the rest.
    """

    limit: int
    """The most follow-ups one attempt may stage."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"an attempt may stage at most {limit} follow-ups;"
            " stage one job that enqueues the rest"
        )
        self.limit = limit


class StagingTooLarge(StagingError):
    """This attempt's follow-ups, taken together, are too large to hold in memory."""

    limit_bytes: int
    """The most bytes of serialized requests one attempt may stage."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"an attempt may stage at most {limit_bytes:,} bytes of follow-ups;"
            " stage a reference to the data instead of the data"
        )
        self.limit_bytes = limit_bytes


class StagingSealed(StagingError):
    """The attempt's nursery had already closed: the calling task or thread outlived its job."""

    def __init__(self) -> None:
        super().__init__(
            "the attempt is over; start tasks that stage follow-ups in job.nursery,"
            " which the attempt waits for"
        )


class StagingNotOffered(StagingError):
    """This attempt completes its job in a transaction of the handler's: insert follow-ups there.

    Raised by staging inside `Job.complete_in`, and by entering it with something staged.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; use await tx.enqueue(...) inside job.complete_in instead")


class FollowUpError(TerminalError):
    """A registered follow-up function raised, or returned what cannot be enqueued.

    Chained from the original error. The attempt fails, because it would otherwise
    commit without the follow-up it was to have. What a client asked for is refused,
    and nothing has changed: mend the function, or say ``without_follow_ups=True``.
    """

    function: str
    """The function, with its module."""

    def __init__(self, function: str, consequence: str = "") -> None:
        super().__init__(f"the registered follow-up {function} could not be made{consequence}")
        self.function = function


class FollowUpsUnknown(AwaError):
    """A client was asked to move a job whose registered follow-ups it cannot know.

    They are registered with an app, and would silently be left out. Connect with the app
    whose tasks run the kind, or say ``without_follow_ups=True``.
    """

    kind: str
    """The job's kind."""

    def __init__(self, doing: str, kind: str, has_app: bool) -> None:
        why = "the app of this client does not run it" if has_app else "this client has no app"
        super().__init__(
            f"{doing}: nobody here knows what follow-ups are registered for kind {kind!r},"
            f" because {why}; connect(..., app=...) with the app that does,"
            " or say without_follow_ups=True"
        )
        self.kind = kind


class InvalidValue(AwaError, ValueError):
    """What a handler wants kept on its job cannot be stored; nothing has changed.

    Raised by `Job.set_output` and `Progress.set`. It is an ordinary error: catch it and go
    on, or let it fail the attempt.
    """

    problem: str
    """What is wrong and where, as in ``output.items[3]: NaN is not JSON``."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class LeaseLost(AwaError):
    """This attempt may write nothing any more: it has ended, or the job is someone else's.

    The job was cancelled or settled from outside, another worker has taken it over, or the
    calling task or thread outlived its attempt. Stop working on it: whatever became of the
    job has been written by those who took it.
    """


# ---- What whoever wires an application meets ---------------------------------


class ConfigurationError(AwaError):
    """An app, a task or a setting contradicts itself or another; mend the code."""


class WrongEventLoop(AwaError, RuntimeError):
    """Called where no event loop of the right kind runs; the message says which is needed."""


class SchemaError(AwaError):
    """The database's ``awa`` schema is not the one this release works with."""


class SchemaMissing(SchemaError):
    """The database has no ``awa`` schema."""

    def __init__(self) -> None:
        super().__init__(
            "the database has no awa schema; create it with: awa-trio migrate --dsn ..."
        )


class SchemaOlder(SchemaError):
    """The database's schema is older than this release needs."""

    def __init__(self, found: int, needed: int) -> None:
        super().__init__(
            f"the database has awa schema version {found}, this release needs {needed};"
            " upgrade it with: awa-trio migrate --dsn ..."
        )


class SchemaNewer(SchemaError):
    """The database's schema has moved past what this release understands."""

    def __init__(self, found: int, oldest: int, known: int) -> None:
        super().__init__(
            f"the database has awa schema version {found}, which serves releases that know"
            f" version {oldest} or later, and this one knows {known}; upgrade it with:"
            " pip install --upgrade awa-trio"
        )


class SchemaUnversioned(SchemaError):
    """The ``awa`` schema has things in it, but does not say which version it is.

    Nothing is done to it: what is there may be jobs of yours.
    """

    def __init__(self) -> None:
        super().__init__(
            "the database has an awa schema that does not say its version (the row of"
            " awa.schema_version is missing), so it was restored in part, or is another"
            " program's, such as awa-pg's: then give awa_trio a database of its own. Or restore"
            " it whole, or DROP SCHEMA awa CASCADE, which deletes its jobs, and create it with:"
            " awa-trio migrate --dsn ..."
        )


class DatabaseUnavailable(AwaError):
    """PostgreSQL could not be reached, or did not answer in time; trying again may help.

    Chained from the driver's error. Nothing is known to have been written, and
    nothing is known not to have been, unless the call's own docstring says more.
    """


class WorkerCrashed(AwaError):
    """A service of the worker failed in a way that is a bug, and took the worker down."""


class ResourceFailed(AwaError):
    """A resource of the worker could not be opened, failed while it was open, or to close.

    Chained from the original error. What failed to open stops the worker before it
    claims anything; what failed later has stopped it at once, with its attempts handed
    back. Errors of an attempt's resources are errors of the attempt, as they are.
    """

    resource: object
    """The type that requests it."""

    def __init__(self, resource: object, problem: str) -> None:
        super().__init__(problem)
        self.resource = resource

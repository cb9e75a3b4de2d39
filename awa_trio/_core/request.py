"""From what a user asks for to what a store inserts.

`prepare` is where every rule of the schema is checked first, so that a request
which gets through is not refused by the database, neither now nor in the
transaction that completes a job. It depends on nothing but what it is given.

Elsewhere: arguments, `codec`; unique keys, `unique`; the limits of staged
follow-ups, `staging`.

Source: ADR-046, "Decision" and "Limits".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypedDict, Unpack

import attrs

from .arguments import check_seconds, check_string, check_whole
from .codec import Codec
from .errors import ConfigurationError, InvalidRequest
from .job import PreparedInsert
from .jsontext import name_of, read, utf8_size
from .kinds import kind_of
from .settings import MAX_SECONDS
from .shapes import shortened
from .unique import UniqueOpts, refuse_unknown, unique_key

#: Characters of a kind, a queue or an ordering key, as the schema has it.
MAX_NAME = 200
#: Tags of a job, as the schema has it.
MAX_TAGS = 20
#: Characters of a tag: the same as any other name.
MAX_TAG = 200
PRIORITIES = range(1, 5)
ATTEMPTS = range(1, 1001)

#: A claim fetches a batch of jobs whole, and their rows are written twice more. A
#: megabyte is well above any argument list and well below a document, which belongs
#: in a table or an object store, with its key in the arguments.
MAX_REQUEST_BYTES = 1024 * 1024

#: Metadata keys that begin so are awa_trio's own.
RESERVED_PREFIX = "awa:"

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 2
DEFAULT_MAX_ATTEMPTS = 25

#: Whatever is wrong with an option, its type or its size, is wrong with the request.
_check_whole = partial(check_whole, error=InvalidRequest, wrong_type=InvalidRequest)
_check_seconds = partial(check_seconds, error=InvalidRequest, wrong_type=InvalidRequest)


class EnqueueOptions(TypedDict, total=False):
    """The keyword arguments of everything that enqueues. None is the same as leaving one out."""

    kind: str | None
    """Which task runs the job, 1 to 200 characters. Default, the one registered for the
    class of the arguments, or its name in snake case."""
    queue: str | None
    """1 to 200 characters. Default, the task's, or ``"default"``."""
    priority: int | None
    """1, first, to 4, last. Default, the task's, or 2."""
    max_attempts: int | None
    """1 to 1000. Default, the task's, or 25."""
    tags: Collection[str] | None
    """At most 20 labels of 1 to 200 characters. Default, none."""
    metadata: Mapping[str, Any] | None
    """A JSON object that travels with the job and never counts for uniqueness. Keys that
    begin with ``awa:`` are reserved. Default, empty."""
    run_at: datetime | None
    """Earliest start, timezone-aware. Default, at once."""
    unique_opts: UniqueOpts | Mapping[str, Any] | None
    """What makes the job a duplicate; ``{}`` means the default options. Default, nothing."""
    ordering_key: str | None
    """Jobs of one queue with one key start in the order they became due, one at a time.
    1 to 200 characters. Default, no order."""
    limit_key: str | None
    """What ``max_per_key`` and ``rate_per_key`` of its queue count by: a customer, an account.
    1 to 200 characters. Default, no limit."""
    deadline: float | None
    """Seconds an attempt may take; 0 for no limit. Default, the task's, or the queue's."""


OPTION_NAMES = tuple(EnqueueOptions.__annotations__)


@attrs.frozen(init=False)
class EnqueueRequest:
    """A job to enqueue: its arguments and options, neither checked nor encoded yet.

    The typed spelling of arguments with keywords, for what is built in one place
    and enqueued in another. Its methods return a new request with one thing set.

    Args:
      args: an instance of an attrs class, a dataclass or the like, or a dict.
      **options: see `EnqueueOptions`.

    Raises:
      InvalidRequest: an option does not exist.
    """

    args: Any = attrs.field(repr=False)
    """The job's arguments. Not in the repr, which reaches logs; nor is the metadata."""
    kind: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    tags: Collection[str] | None = None
    _metadata: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    run_at: datetime | None = None
    unique_opts: UniqueOpts | Mapping[str, Any] | None = None
    ordering_key: str | None = None
    limit_key: str | None = None
    deadline: float | None = None

    def __init__(self, args: object, **options: Unpack[EnqueueOptions]) -> None:
        refuse_unknown("options", options, OPTION_NAMES)
        if isinstance(args, EnqueueRequest):
            raise InvalidRequest("args: this is a request already; use its options(...)")
        self.__attrs_init__(args, **options)  # pyright: ignore[reportAttributeAccessIssue]

    def options(self, **options: Unpack[EnqueueOptions]) -> EnqueueRequest:
        """Set these options, and leave the others as they are.

        Raises:
          InvalidRequest: an option does not exist.
        """
        changes: dict[str, Any] = {**options}
        return attrs.evolve(self, **changes)

    def unique(self, opts: UniqueOpts | Mapping[str, Any] | None = None) -> EnqueueRequest:
        """Make the job unique, with the default options unless others are given."""
        return self.options(unique_opts=UniqueOpts() if opts is None else opts)

    def metadata(self, metadata: Mapping[str, Any]) -> EnqueueRequest:
        """Set the metadata: what must not count for uniqueness, such as who asked."""
        return self.options(metadata=metadata)


@attrs.frozen
class KindDefaults:
    """What a task says about jobs of its kind that an enqueue does not."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    args_type: Any = None
    """The annotation of its arguments. It decides how they are encoded where their class
    does not say it all: a typed dict, a generic class, a union."""


_NO_DEFAULTS = KindDefaults()


def check_kind(kind: object, defaults: KindDefaults) -> None:
    """Check a kind, and what its task says about its jobs, by the rules of `prepare`.

    Raises:
      InvalidRequest: a rule is broken; the message names the option.
    """
    _name("kind", kind)
    if defaults.queue is not None:
        _name("queue", defaults.queue)
    if defaults.priority is not None:
        _whole("priority", defaults.priority, PRIORITIES)
    if defaults.max_attempts is not None:
        _whole("max_attempts", defaults.max_attempts, ATTEMPTS)


def check_queue(name: object) -> None:
    """Check the name of a queue, by the rules of `prepare`.

    Raises:
      InvalidRequest: it is none.
    """
    _name("queue", name)


def prepare(
    request: EnqueueRequest,
    codec: Codec,
    *,
    kind: str | None = None,
    defaults: KindDefaults | None = None,
    reserved: Mapping[str, str | int] | None = None,
) -> PreparedInsert:
    """Check a request, and turn it into what a store inserts.

    The same request always gives the same result.

    Args:
      request: what was asked for.
      codec: encodes the arguments.
      kind: the kind of its arguments' class, if the request does not say.
      defaults: what the task of the kind says where the request does not.
      reserved: metadata of awa_trio's own, under ``awa:`` keys; not counted in ``size``.

    Raises:
      InvalidRequest: a rule is broken. ``problem`` names the option, or the path to the
          value, and never holds a value of the arguments or the metadata.
    """
    template = make_template(request, codec, kind=kind, defaults=defaults, reserved=reserved)
    return template.fill(request.args, codec)


@attrs.frozen
class Template:
    """A request whose options are checked and encoded: many arguments may be put into it."""

    job: PreparedInsert
    """The job, but for its arguments and its key; its size without them."""
    opts: UniqueOpts | None
    args_type: Any
    """See `KindDefaults`."""

    def fill(self, args: object, codec: Codec) -> PreparedInsert:
        """Put arguments into it.

        Raises:
          InvalidRequest: as `prepare`.
        """
        job, opts = self.job, self.opts
        data = _args(args, codec, self.args_type)
        args_size = utf8_size(data)
        size = job.size + args_size
        if size > MAX_REQUEST_BYTES:
            raise InvalidRequest(
                f"args: the request takes {size:,} bytes, {args_size:,} of them for the arguments,"
                f" and may take {MAX_REQUEST_BYTES:,}; enqueue a reference to the data instead"
            )
        return PreparedInsert(
            job.kind,
            job.queue,
            data,
            job.priority,
            job.max_attempts,
            job.metadata,
            job.tags,
            job.run_at,
            None if opts is None else unique_key(job.kind, job.queue, read(data), opts),
            job.unique_states,
            job.ordering_key,
            job.limit_key,
            job.deadline,
            size,
        )


def make_template(
    request: EnqueueRequest,
    codec: Codec,
    *,
    kind: str | None = None,
    defaults: KindDefaults | None = None,
    reserved: Mapping[str, str | int] | None = None,
) -> Template:
    """Check everything of a request but its arguments; see `prepare`.

    Raises:
      InvalidRequest: as `prepare`.
    """
    defaults = defaults or _NO_DEFAULTS
    kind = _kind(request) if kind is None else _name("kind", kind)
    queue = _name("queue", _first(request.queue, defaults.queue, DEFAULT_QUEUE))
    priority = _first(request.priority, defaults.priority, DEFAULT_PRIORITY)
    priority = _whole("priority", priority, PRIORITIES)
    max_attempts = _first(request.max_attempts, defaults.max_attempts, DEFAULT_MAX_ATTEMPTS)
    max_attempts = _whole("max_attempts", max_attempts, ATTEMPTS)
    tags = _tags(request.tags)
    ordering_key = request.ordering_key
    if ordering_key is not None:
        ordering_key = _name("ordering_key", ordering_key)
    limit_key = request.limit_key
    if limit_key is not None:
        limit_key = _name("limit_key", limit_key)
    metadata, size = _metadata(request._metadata, codec, reserved)
    for text in (kind, queue, ordering_key or "", limit_key or "", *tags):
        size += len(text) if text.isascii() else len(text.encode())
    unique_opts = request.unique_opts
    opts = None if unique_opts is None else UniqueOpts.coerce(unique_opts)
    job = PreparedInsert(
        kind=kind,
        queue=queue,
        args=b"",
        priority=priority,
        max_attempts=max_attempts,
        metadata=metadata,
        tags=tags,
        run_at=None if request.run_at is None else _instant(request.run_at),
        unique_states=0 if opts is None else opts.states,
        ordering_key=ordering_key,
        limit_key=limit_key,
        deadline=_deadline(request.deadline),
        size=size,
    )
    return Template(job, opts, defaults.args_type)


@attrs.frozen
class Replacements:
    """What is to be different about a job that runs again; None leaves it as it was."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    """Earliest start, in UTC; None for at once."""


def replacements(
    *, queue: str | None, priority: int | None, run_at: datetime | None
) -> Replacements:
    """Check what is to be different about a job that runs again, by the rules of a request.

    Raises:
      InvalidRequest: one is broken.
    """
    return Replacements(
        None if queue is None else _name("queue", queue),
        None if priority is None else _whole("priority", priority, PRIORITIES),
        None if run_at is None else _instant(run_at),
    )


def stamped(
    job: PreparedInsert, codec: Codec, reserved: Mapping[str, str | int]
) -> PreparedInsert:
    """Add reserved metadata, which a job has none of yet; its size stays the same."""
    own = codec.encode(dict(reserved), dict, root="metadata")
    metadata = own if job.metadata is None else job.metadata[:-1] + b"," + own[1:]
    return attrs.evolve(job, metadata=metadata)


def public_metadata(metadata: bytes | str | None) -> dict[str, Any]:
    """Decode a job's metadata as its handler sees it: without what is reserved."""
    if metadata is None:
        return {}
    return {
        key: value
        for key, value in read(metadata).items()
        if not key.startswith(RESERVED_PREFIX)
    }


def _first(asked: Any, of_task: Any, otherwise: Any) -> Any:
    if asked is not None:
        return asked
    return otherwise if of_task is None else of_task


def _kind(request: EnqueueRequest) -> str:
    if request.kind is not None:
        return _name("kind", request.kind)
    if isinstance(request.args, type):
        name = request.args.__name__
        raise InvalidRequest(f"args: give an instance, {name}(...), not the class {name}")
    if type(request.args) is dict:
        raise InvalidRequest("kind: a dict has no class to take the kind from; give kind=...")
    if type(request.args).__module__ == "builtins":
        raise InvalidRequest(
            "args: give an instance of the class of a task's arguments; or a dict, with kind=...;"
            f" not {name_of(request.args)}"
        )
    try:
        return _name("kind", kind_of(type(request.args)))
    except ConfigurationError as error:
        raise InvalidRequest(f"kind: {error}") from error


def _args(args: object, codec: Codec, declared: object) -> bytes:
    cls = type(args)
    try:
        fits = declared is not None and cls in codec.classes(declared)
        data = codec.encode(args, declared if fits else cls)
    except ConfigurationError as error:
        raise InvalidRequest(f"args: {error}") from error
    if not data.startswith(b"{"):
        raise InvalidRequest(
            f"args: {name_of(args)} is not stored as a JSON object, which arguments are;"
            " give an instance of a class, or a dict"
        )
    return data


def _metadata(
    metadata: object, codec: Codec, reserved: Mapping[str, str | int] | None
) -> tuple[bytes | None, int]:
    """Encode metadata, and count the bytes of what is not reserved."""
    data = None
    if metadata is not None:
        if not isinstance(metadata, Mapping):
            raise InvalidRequest(f"metadata: give a mapping, not {name_of(metadata)}")
        for key in metadata:
            if isinstance(key, str) and key.startswith(RESERVED_PREFIX):
                raise InvalidRequest(
                    f"metadata[{shortened(key)}]: keys that begin with awa: are reserved"
                )
        if metadata:
            data = codec.encode(dict(metadata), dict, root="metadata")
    size = 0 if data is None else utf8_size(data)
    if reserved:
        own = codec.encode(dict(reserved), dict, root="metadata")
        data = own if data is None else data[:-1] + b"," + own[1:]
    return data, size


def _name(option: str, value: object, most: int = MAX_NAME) -> str:
    return check_string(
        option, value, most=most, error=InvalidRequest, wrong_type=InvalidRequest
    )


def _tags(tags: object) -> tuple[str, ...]:
    if tags is None:
        return ()
    if isinstance(tags, (set, frozenset)):
        # In an order of its own in every process, if left to itself.
        tags = sorted(tags, key=str)
    if not isinstance(tags, (list, tuple)):
        raise InvalidRequest(f"tags: give a list of str, not {name_of(tags)}")
    if len(tags) > MAX_TAGS:
        raise InvalidRequest(f"tags: give at most {MAX_TAGS}, not {len(tags):,}")
    return tuple([_name(f"tags[{index}]", tag, MAX_TAG) for index, tag in enumerate(tags)])


def _whole(option: str, value: object, allowed: range) -> int:
    if type(value) is int and value in allowed:
        return value
    _check_whole(option, value, allowed[0], allowed[-1])
    assert isinstance(value, int)
    return int(value)


def _instant(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidRequest(f"run_at: give a datetime, not {name_of(value)}")
    if value.utcoffset() is None:
        raise InvalidRequest(
            "run_at: give a timezone-aware datetime, such as datetime.now(UTC) plus a delay"
        )
    try:
        utc = value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise InvalidRequest("run_at: in UTC this is outside the years 1 to 9999") from None
    # Rebuilt, because subclasses carry what drivers do not know.
    return datetime.combine(utc.date(), utc.time(), UTC)


def _deadline(value: object) -> float | None:
    if value is None:
        return None
    instead = ", with 0 for no limit"
    return _check_seconds("deadline", value, most=MAX_SECONDS, instead=instead)

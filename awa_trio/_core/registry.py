"""What one application knows: its tasks, their follow-ups, its resources, queues and schedules.

A registry does nothing. It answers: which task runs this kind, with which arguments;
what does an enqueue of this class mean; what follows this outcome; what does a fire enqueue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC
from typing import Any

import attrs

from .._slips import nearest
from .backoff import Backoff
from .codec import Codec
from .errors import ConfigurationError, InvalidRequest, UndecodableArgs, UnknownKind
from .job import SCHEDULE, SCHEDULED_FOR, PreparedInsert
from .kinds import kind_of
from .plan import FollowUpSpec, Outcome
from .request import (
    EnqueueOptions,
    EnqueueRequest,
    KindDefaults,
    Template,
    check_kind,
    make_template,
)
from .resources import Resource, Wiring, wire
from .schedules import MOST_JOBS, TRIGGERED, Fire, Schedule
from .settings import QueueSettings
from .shapes import spell


@attrs.frozen(eq=False)
class Task:
    """What runs jobs of one kind."""

    kind: str
    args_type: Any
    """What a job's arguments are decoded to."""
    handler: Callable[..., Any]
    """Takes a `Job`, and what it requests, by name; a coroutine function, unless ``in_thread``."""
    defaults: KindDefaults
    """What an enqueue of this kind means where it does not say."""
    deadline: float | None = None
    """Seconds an attempt may take; 0 for no limit, None for the queue's."""
    backoff: Backoff | None = None
    """Its own delays between attempts; None for the usual ones."""
    in_thread: bool = False
    """Whether the handler is an ordinary function, to be run in a thread."""
    on_asyncio: bool = False
    """Whether it is a coroutine function of asyncio's, to be run in the worker's asyncio loop."""
    requests: Mapping[str, Any] = attrs.field(factory=dict)
    """The resources it gets besides its job, by parameter."""


@attrs.define(eq=False)
class Registry:
    """One application's tasks, follow-ups, resources, queues and schedules."""

    codec: Codec = attrs.field(factory=Codec)
    tasks: dict[str, Task] = attrs.field(factory=dict)
    queues: dict[str, QueueSettings] = attrs.field(factory=dict)
    schedules: dict[str, Schedule] = attrs.field(factory=dict)
    _resources: dict[Any, Resource] = attrs.field(factory=dict)
    _declared: dict[str, KindDefaults] = attrs.field(factory=dict)
    """Kinds that may be enqueued: those of the tasks, and those that others run."""
    _kinds: dict[type, str] = attrs.field(factory=dict)
    """The kind that an args class is registered as."""
    _specs: dict[tuple[str, Outcome], list[FollowUpSpec]] = attrs.field(factory=dict)
    _early: dict[type, list[FollowUpSpec]] = attrs.field(factory=dict)
    """Follow-ups of classes whose tasks are yet to be registered, filed under the kind that
    the class's name gives."""

    def declare(self, args_type: Any, kind: str, defaults: KindDefaults) -> None:
        """Make a kind known, so that it can be enqueued.

        Raises:
          ConfigurationError: the kind or the class is known already, the class cannot be
              stored, or a default is out of its range. Nothing was registered.
        """
        try:
            check_kind(kind, defaults)
        except InvalidRequest as error:
            raise ConfigurationError(str(error)) from None
        if kind in self._declared:
            raise ConfigurationError(
                f"kind {kind!r} is registered twice; give one of them another kind=..."
            )
        named = isinstance(args_type, type) and args_type is not dict
        if named and args_type in self._kinds:
            raise ConfigurationError(
                f"{args_type.__qualname__} is registered twice, as kinds"
                f" {self._kinds[args_type]!r} and {kind!r}; give each task a class of its own"
            )
        self.codec.check(args_type)
        self._declared[kind] = defaults
        if named:
            self._kinds[args_type] = kind
            self._move_early(args_type, kind)

    def add(self, task: Task) -> None:
        """Register a task.

        Raises:
          ConfigurationError: as `declare`.
        """
        self.declare(task.args_type, task.kind, task.defaults)
        self.tasks[task.kind] = task

    def provide(self, resource: Resource) -> None:
        """Register a resource.

        Raises:
          ConfigurationError: another provides the same.
        """
        other = self._resources.get(resource.key)
        if other is not None:
            raise ConfigurationError(
                f"{spell(resource.key)} is provided twice, by {other.name} and"
                f" {resource.name}; give one of them a type of its own, such as a NewType"
            )
        self._resources[resource.key] = resource

    def schedule(self, schedule: Schedule) -> None:
        """Register a schedule.

        Raises:
          ConfigurationError: another has its name.
        """
        if schedule.name in self.schedules:
            raise ConfigurationError(
                f"schedule {schedule.name!r} is registered twice; give one of them another"
                " name=..."
            )
        self.schedules[schedule.name] = schedule

    def jobs_of(self, schedule: Schedule, fire: Fire) -> list[PreparedInsert]:
        """Return the jobs of one fire.

        Raises:
          InvalidRequest: one of them breaks a rule, or there are too many.
          UnknownKind: its kind is not known here.
          Exception: whatever a function of the user's raises.
        """
        reserved: dict[str, str | int] = {
            SCHEDULE: schedule.name,
            SCHEDULED_FOR: fire.at.astimezone(UTC).isoformat(),
        }
        if fire.triggered:
            reserved[TRIGGERED] = 1
        made = schedule.make(fire)
        if made is None:
            return []
        several = made if isinstance(made, list) else [made]
        if len(several) > MOST_JOBS:
            raise InvalidRequest(
                f"schedule {schedule.name!r} made {len(several):,} jobs for one fire, and may"
                f" make {MOST_JOBS:,}; let it make one that enqueues the rest"
            )
        return [
            self.prepare(
                one,
                {} if isinstance(one, EnqueueRequest) else schedule.options,
                reserved=reserved,
            )
            for one in several
        ]

    def wire(
        self, given: Mapping[Any, Any] | None = None, kinds: Collection[str] | None = None
    ) -> Wiring:
        """Say which resources to open for the tasks.

        Args:
          given: instances that stand in for resources, by the type they are requested as.
          kinds: the tasks that will run; default, all.

        Raises:
          ConfigurationError: see `resources.wire`.
        """
        return wire(self.tasks, self._resources, given or {}, kinds)

    def follow(self, args_type: type, spec: FollowUpSpec) -> None:
        """Register a follow-up for an outcome of a class's jobs, before or after its task.

        Raises:
          ConfigurationError: it is not a class whose jobs have a kind.
        """
        if args_type is dict:
            raise ConfigurationError(
                "a dict has no kind of its own to register a follow-up for; give its task a class"
            )
        kind = self._kinds.get(args_type)
        if kind is None:
            kind = kind_of(args_type)
            self._early.setdefault(args_type, []).append(spec)
        self._specs.setdefault((kind, spec.outcome), []).append(spec)

    def specs(self, kind: str, outcome: Outcome) -> list[FollowUpSpec]:
        """The follow-ups of an outcome, in the order they were registered."""
        return self._specs.get((kind, outcome), [])

    def knows_follow_ups(self, kind: str) -> bool:
        """Whether this application would know of follow-ups registered for a kind.

        It does if it runs the kind. One that only declares it, to enqueue it, has not
        imported what follows; unless something is registered for it here.
        """
        return kind in self.tasks or any(of == kind for of, _ in self._specs)

    def unclaimed_follow_ups(self) -> dict[type, list[Outcome]]:
        """The outcomes for which something is registered of classes that have no kind here."""
        return {of: [spec.outcome for spec in specs] for of, specs in self._early.items()}

    def _move_early(self, args_type: type, kind: str) -> None:
        """File what was registered for a class before it under the kind that it has."""
        for spec in self._early.pop(args_type, ()):
            self._specs[kind_of(args_type), spec.outcome].remove(spec)
            self._specs.setdefault((kind, spec.outcome), []).append(spec)

    def prepare(
        self,
        args: object,
        options: EnqueueOptions,
        *,
        reserved: Mapping[str, str | int] | None = None,
        known_only: bool = True,
    ) -> PreparedInsert:
        """Turn arguments, or a whole request, into a job ready to insert.

        Args:
          args: an instance of an args class, a dict, or an `EnqueueRequest`, which brings
              its own options.
          options: see `EnqueueOptions`.
          reserved: metadata under ``awa:`` keys.
          known_only: refuse kinds that this application neither runs nor declares.

        Raises:
          InvalidRequest: the request breaks a rule; nothing is sent.
          UnknownKind: the kind is not known here.
        """
        request = self._request(args, options)
        template = self._template(request, reserved, known_only)
        return template.fill(request.args, self.codec)

    def prepare_many(
        self, jobs: Iterable[object], options: EnqueueOptions, *, known_only: bool = True
    ) -> list[PreparedInsert]:
        """Turn many into jobs ready to insert; ``options`` are of those that bring none.

        Raises:
          InvalidRequest: as `prepare`.
          UnknownKind: as `prepare`.
        """
        templates: dict[type, Template] = {}
        prepared: list[PreparedInsert] = []
        for args in jobs:
            if isinstance(args, EnqueueRequest):
                prepared.append(self.prepare(args, {}, known_only=known_only))
                continue
            template = templates.get(type(args))
            if template is None:
                template = self._template(self._request(args, options), None, known_only)
                # A class object as arguments is refused above, so its type stands for it.
                templates[type(args)] = template
            prepared.append(template.fill(args, self.codec))
        return prepared

    def _request(self, args: object, options: EnqueueOptions) -> EnqueueRequest:
        if not isinstance(args, EnqueueRequest):
            return EnqueueRequest(args, **options)
        if options:
            raise InvalidRequest(
                "an EnqueueRequest brings its own options: set"
                f" {', '.join(options)} on it, with .options(...)"
            )
        return args

    def _template(
        self,
        request: EnqueueRequest,
        reserved: Mapping[str, str | int] | None,
        known_only: bool,
    ) -> Template:
        kind, cls = request.kind, type(request.args)
        if kind is None and cls is not dict:
            kind = self._kinds.get(cls)
            # Of Python's own types, as of a class, the request itself says what to give.
            if (
                kind is None
                and not isinstance(request.args, type)
                and cls.__module__ != "builtins"
            ):
                try:
                    kind = kind_of(cls)
                except ConfigurationError as error:
                    raise InvalidRequest(f"kind: {error}") from error
        if kind is not None and type(kind) is not str:
            check_kind(kind, KindDefaults())  # it may not even be hashable
        defaults = None if kind is None else self._declared.get(kind)
        if kind is not None and defaults is None and known_only:
            raise UnknownKind(kind, nearest(kind, self._declared))
        return make_template(
            request, self.codec, kind=kind, defaults=defaults, reserved=reserved
        )

    def decode(self, task: Task, raw: bytes) -> Any:
        """Decode a job's arguments for its task.

        Raises:
          UndecodableArgs: they do not fit.
        """
        return self.codec.decode(raw, task.args_type)

    def decode_kind(self, kind: str, raw: bytes) -> Any:
        """Decode the arguments of a job that may be another application's to run.

        Raises:
          UndecodableArgs: they do not fit, or the kind is not known here.
        """
        known = self._declared.get(kind)
        if known is None:
            raise UndecodableArgs(f"this application does not know kind {kind!r}")
        return self.codec.decode(raw, known.args_type)

    def queue_settings(self, queue: str) -> QueueSettings:
        """A queue's settings: as registered, else the defaults."""
        return self.queues.get(queue) or QueueSettings()

    @property
    def task_queues(self) -> set[str]:
        """Where jobs of its tasks and schedules go, unless an enqueue or a function says so."""
        queues = {task.defaults.queue or "default" for task in self.tasks.values()}
        return queues | {
            made.queue for made in self.schedules.values() if made.queue is not None
        }

    @property
    def limits_depth(self) -> bool:
        """Whether any of its queues has a ``max_depth``."""
        return any(settings.max_depth is not None for settings in self.queues.values())

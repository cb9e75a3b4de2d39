"""A durable job queue for Trio, whose only server is PostgreSQL.

    import trio
    import awa_trio as awa

    app = awa.App()

    @app.task()
    async def greet(job: awa.Job[Greet]) -> None: ...

Private packages begin with ``_`` and are layers: `_core` decides, `_seam` says what a
store is, `_pg` is PostgreSQL on Trio and knows no jobs, `_store` keeps the jobs,
`_runtime` runs them, `_app` wires it all together. What users import is here, and in
`awa_trio.aio`, `awa_trio.bridge`, `awa_trio.callbacks`, `awa_trio.events`, `awa_trio.health`,
`awa_trio.pg`, `awa_trio.telemetry` and `awa_trio.testing`.
"""

import typing as _typing

from . import _publish
from ._app.app import App as App
from ._app.callbacks import Callbacks as Callbacks
from ._app.client import Client as Client
from ._app.client import Transaction as Transaction
from ._app.connect import connect as connect
from ._app.dead_letters import DeadLetters as DeadLetters
from ._app.jobs import Jobs as Jobs
from ._app.jobs import Many as Many
from ._app.joining import enqueue as enqueue
from ._app.joining import enqueue_many as enqueue_many
from ._app.queues import Queues as Queues
from ._app.run import run_worker as run_worker
from ._app.schedules import Schedules as Schedules
from ._app.schema import Engine as Engine
from ._app.workers import Activity as Activity
from ._app.workers import Workers as Workers
from ._core.activity import Latency as Latency
from ._core.callbacks import CallbackAnswer as CallbackAnswer
from ._core.codec import Codec as Codec
from ._core.cron import MissedFires as MissedFires
from ._core.dead_letters import DeadLetterReason as DeadLetterReason
from ._core.errors import AwaError as AwaError
from ._core.errors import CallbackAlreadyResolved as CallbackAlreadyResolved
from ._core.errors import CallbackError as CallbackError
from ._core.errors import CallbackInvalid as CallbackInvalid
from ._core.errors import CallbackNotFound as CallbackNotFound
from ._core.errors import CallbackSuperseded as CallbackSuperseded
from ._core.errors import ConfigurationError as ConfigurationError
from ._core.errors import DatabaseUnavailable as DatabaseUnavailable
from ._core.errors import FollowUpError as FollowUpError
from ._core.errors import FollowUpsUnknown as FollowUpsUnknown
from ._core.errors import InvalidRequest as InvalidRequest
from ._core.errors import InvalidTransition as InvalidTransition
from ._core.errors import InvalidValue as InvalidValue
from ._core.errors import JobNotFound as JobNotFound
from ._core.errors import LeaseLost as LeaseLost
from ._core.errors import QueueDraining as QueueDraining
from ._core.errors import QueueFull as QueueFull
from ._core.errors import ResourceFailed as ResourceFailed
from ._core.errors import ScheduleNotFound as ScheduleNotFound
from ._core.errors import SchemaError as SchemaError
from ._core.errors import SchemaMissing as SchemaMissing
from ._core.errors import SchemaNewer as SchemaNewer
from ._core.errors import SchemaOlder as SchemaOlder
from ._core.errors import SchemaUnversioned as SchemaUnversioned
from ._core.errors import StagingError as StagingError
from ._core.errors import StagingInvalid as StagingInvalid
from ._core.errors import StagingNotOffered as StagingNotOffered
from ._core.errors import StagingSealed as StagingSealed
from ._core.errors import StagingTooLarge as StagingTooLarge
from ._core.errors import StagingTooMany as StagingTooMany
from ._core.errors import TerminalError as TerminalError
from ._core.errors import UndecodableArgs as UndecodableArgs
from ._core.errors import UniqueConflict as UniqueConflict
from ._core.errors import UnknownKind as UnknownKind
from ._core.errors import WorkerCrashed as WorkerCrashed
from ._core.errors import WrongEventLoop as WrongEventLoop
from ._core.explaining import Explanation as Explanation
from ._core.explaining import Reason as Reason
from ._core.health import WorkerHealth as WorkerHealth
from ._core.history import History as History
from ._core.history import Step as Step
from ._core.job import JobDetails as JobDetails
from ._core.job import JobError as JobError
from ._core.job import JobRow as JobRow
from ._core.job import JobState as JobState
from ._core.observer import Observer as Observer
from ._core.progress import JobProgress as JobProgress
from ._core.queues import QueueOverrides as QueueOverrides
from ._core.queues import QueueStatus as QueueStatus
from ._core.rates import Rate as Rate
from ._core.request import EnqueueOptions as EnqueueOptions
from ._core.request import EnqueueRequest as EnqueueRequest
from ._core.results import Cancel as Cancel
from ._core.results import Completed as Completed
from ._core.results import RetryAfter as RetryAfter
from ._core.results import Snooze as Snooze
from ._core.results import WaitForCallback as WaitForCallback
from ._core.schedules import Fire as Fire
from ._core.schedules import ScheduleRow as ScheduleRow
from ._core.settings import QueueSettings as QueueSettings
from ._core.settings import Retention as Retention
from ._core.settings import Timings as Timings
from ._core.timeline import TimelineEntry as TimelineEntry
from ._core.timeline import TimelineEvent as TimelineEvent
from ._core.unique import UniqueOpts as UniqueOpts
from ._core.unique import period_bucket as period_bucket
from ._core.workers import WorkerRow as WorkerRow
from ._runtime.completing import CompletionTransaction as CompletionTransaction
from ._runtime.job import FollowUps as FollowUps
from ._runtime.job import Job as Job
from ._runtime.job import Progress as Progress
from ._runtime.worker import Worker as Worker
from ._runtime.worker import WorkerStatistics as WorkerStatistics
from ._seam.values import Backlog as Backlog
from ._seam.values import Enqueued as Enqueued
from ._version import __version__ as __version__

#: What is needed neither to enqueue nor to work is imported by whoever asks for it first.
_SELDOM = {
    "._app.blocking": (
        "BlockingCallbacks",
        "BlockingClient",
        "BlockingDeadLetters",
        "BlockingJobs",
        "BlockingQueues",
        "BlockingSchedules",
        "BlockingTransaction",
        "BlockingWorkers",
    ),
    "._app.checking": ("check",),
    "._app.maintenance": (
        "StoragePart",
        "StorageStatus",
        "migrate",
        "schema_script",
        "schema_status",
        "storage_status",
    ),
    "._app.rights": (
        "Rights",
        "grants_script",
    ),
    "._core.checking": (
        "Finding",
        "Severity",
    ),
}

_publish.publish(__name__, globals())

if _typing.TYPE_CHECKING:
    from ._app.blocking import BlockingCallbacks as BlockingCallbacks
    from ._app.blocking import BlockingClient as BlockingClient
    from ._app.blocking import BlockingDeadLetters as BlockingDeadLetters
    from ._app.blocking import BlockingJobs as BlockingJobs
    from ._app.blocking import BlockingQueues as BlockingQueues
    from ._app.blocking import BlockingSchedules as BlockingSchedules
    from ._app.blocking import BlockingTransaction as BlockingTransaction
    from ._app.blocking import BlockingWorkers as BlockingWorkers
    from ._app.checking import check as check
    from ._app.maintenance import StoragePart as StoragePart
    from ._app.maintenance import StorageStatus as StorageStatus
    from ._app.maintenance import migrate as migrate
    from ._app.maintenance import schema_script as schema_script
    from ._app.maintenance import schema_status as schema_status
    from ._app.maintenance import storage_status as storage_status
    from ._app.rights import Rights as Rights
    from ._app.rights import grants_script as grants_script
    from ._core.checking import Finding as Finding
    from ._core.checking import Severity as Severity
else:
    __getattr__, __dir__ = _publish.publish_later(__name__, globals(), _SELDOM)

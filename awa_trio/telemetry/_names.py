"""The names of attributes and instruments: a contract with dashboards and alerts.

docs/reference/telemetry.md prints them, and a test compares the two.

Source: OpenTelemetry, "Semantic conventions for messaging spans", for those that begin
with ``messaging``; "General attributes" for ``error.type``.
"""

from __future__ import annotations

from typing import Literal

import attrs

# ---- Attributes ---------------------------------------------------------------

SYSTEM = "messaging.system"
QUEUE = "messaging.destination.name"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
BATCH = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
KIND = "awa_trio.job.kind"
STATE = "awa_trio.job.state"
ATTEMPT = "awa_trio.job.attempt"
MAX_ATTEMPTS = "awa_trio.job.max_attempts"
WORKER = "awa_trio.worker.id"
ENDING = "awa_trio.attempt.ending"
REASON = "awa_trio.reason"

# ---- Instruments --------------------------------------------------------------


@attrs.frozen
class Instrument:
    """One metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()


ENQUEUED = Instrument(
    "awa_trio.job.enqueued", "counter", "{job}", "Jobs that clients enqueued.", (KIND, QUEUE)
)
DEDUPLICATED = Instrument(
    "awa_trio.job.deduplicated",
    "counter",
    "{job}",
    "Enqueues of clients that found their unique key held.",
    (KIND, QUEUE),
)
CLAIMED = Instrument(
    "awa_trio.job.claimed", "counter", "{job}", "Jobs that workers claimed.", (KIND, QUEUE)
)
SETTLED = Instrument(
    "awa_trio.job.settled",
    "counter",
    "{job}",
    "Transitions that committed, by the state moved to.",
    (STATE, KIND, QUEUE),
)
RESCUED = Instrument(
    "awa_trio.job.rescued",
    "counter",
    "{job}",
    "Attempts that were taken from their workers.",
    (REASON, KIND, QUEUE),
)
STALE = Instrument(
    "awa_trio.job.stale",
    "counter",
    "{job}",
    "Attempts whose jobs were someone else's when they ended.",
    (KIND, QUEUE),
)
GIVEN_UP = Instrument(
    "awa_trio.job.given_up",
    "counter",
    "{job}",
    "Settlements of which nobody knows whether they committed.",
    (KIND, QUEUE),
)
STAGED = Instrument(
    "awa_trio.follow_up.staged",
    "counter",
    "{job}",
    "Follow-ups that attempts staged.",
    (KIND,),
)
INSERTED = Instrument(
    "awa_trio.follow_up.inserted",
    "counter",
    "{job}",
    "Follow-ups enqueued, staged and registered ones.",
    (KIND,),
)
FOLLOW_UP_DEDUPLICATED = Instrument(
    "awa_trio.follow_up.deduplicated",
    "counter",
    "{job}",
    "Follow-ups left out because a job holds their unique key.",
    (KIND,),
)
DISCARDED = Instrument(
    "awa_trio.follow_up.discarded",
    "counter",
    "{job}",
    "Staged follow-ups that went with their attempt.",
    (REASON, KIND),
)
FENCED = Instrument(
    "awa_trio.worker.fenced", "counter", "{worker}", "Workers that lost their lease."
)
CLAIM_DURATION = Instrument(
    "awa_trio.claim.duration", "histogram", "s", "Time that one claim took."
)
FINALIZE_DURATION = Instrument(
    "awa_trio.finalize.duration",
    "histogram",
    "s",
    "Time that one transaction of settlements took.",
)
ATTEMPT_DURATION = Instrument(
    "awa_trio.attempt.duration",
    "histogram",
    "s",
    "Time from the start of an attempt to its end.",
    (ENDING, KIND, QUEUE),
)
PICKUP_DELAY = Instrument(
    "awa_trio.job.pickup_delay",
    "histogram",
    "s",
    "Time from when a job was due to the start of its attempt.",
    (KIND, QUEUE),
)
QUEUE_DEPTH = Instrument(
    "awa_trio.queue.depth",
    "gauge",
    "{job}",
    "Jobs that are due and not claimed, counted up to 10,000.",
    (QUEUE,),
)
QUEUE_AGE = Instrument(
    "awa_trio.queue.age", "gauge", "s", "Time since the oldest of these was due.", (QUEUE,)
)
SLOTS = Instrument(
    "awa_trio.worker.slots",
    "gauge",
    "{attempt}",
    "Attempts that the process's workers may run at once.",
    (QUEUE,),
)
SLOTS_IN_USE = Instrument(
    "awa_trio.worker.slots_in_use",
    "gauge",
    "{attempt}",
    "Of these, those that are taken.",
    (QUEUE,),
)
RUNNING = Instrument(
    "awa_trio.worker.running",
    "gauge",
    "{attempt}",
    "Attempts whose handlers have not ended.",
)
OVERDUE = Instrument(
    "awa_trio.worker.overdue",
    "gauge",
    "{attempt}",
    "Of these, those that were settled without waiting for them.",
)
WAITING = Instrument(
    "awa_trio.worker.waiting", "gauge", "{attempt}", "Handlers that wait for a callback."
)
FINALIZING = Instrument(
    "awa_trio.worker.finalizing",
    "gauge",
    "{attempt}",
    "Settlements on their way to the database.",
)
LISTENING = Instrument(
    "awa_trio.worker.listening",
    "gauge",
    "{worker}",
    "Workers of the process that hear of new jobs; the others poll.",
)

INSTRUMENTS = tuple(
    value for value in list(globals().values()) if isinstance(value, Instrument)
)

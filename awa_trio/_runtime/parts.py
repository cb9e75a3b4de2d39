"""The parts of a worker, made to know each other.

A worker runs them in its nurseries; the test harness runs some of them, so that a job
worked in a test is worked by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import attrs
import trio

from .._core.events import Fenced
from .._core.registry import Registry
from .._core.resources import Wiring
from .._core.settings import MAX_WAITING, QueueSettings, Retention, Timings
from .._seam.protocol import WorkerStore
from .asyncio_loop import AsyncioLoop, require_trio_asyncio
from .completing import Completer
from .dispatch import Dispatcher, Slots
from .finalize import Finalizer
from .job import Services
from .ledger import Ledger
from .life import Life
from .observing import Observers
from .planner import Planner
from .progress import ProgressWriter
from .resources import Resources
from .sampling import Sampler
from .schedules import Firing
from .steering import Steering
from .upkeep import Upkeep
from .waits import Waits


@attrs.frozen
class Parts:
    """What a worker consists of."""

    life: Life
    dispatcher: Dispatcher
    ledger: Ledger
    finalizer: Finalizer
    upkeep: Upkeep
    firing: Firing
    progress: ProgressWriter
    resources: Resources
    waits: Waits
    asyncio: AsyncioLoop
    steering: Steering
    sampler: Sampler | None
    """If there are observers."""


def assemble(
    registry: Registry,
    store: WorkerStore,
    *,
    name: str,
    queues: Mapping[str, QueueSettings],
    timings: Timings,
    retention: Retention,
    random: Random,
    wiring: Wiring,
    crashed: Callable[[BaseException], None],
    max_waiting: int = MAX_WAITING,
    cap: int | None = None,
    declared: Mapping[str, QueueSettings] | None = None,
    observers: Observers | None = None,
    listening: Callable[[], bool] = lambda: False,
) -> Parts:
    """Make the parts of one worker; nothing runs yet.

    Args:
      registry: the tasks and follow-ups.
      store: opened for this worker.
      name: how people know the worker.
      queues: the queues it serves.
      timings: how often it does what nobody asks it to do.
      retention: how long settled jobs are kept.
      random: for jitter.
      wiring: the resources it opens.
      crashed: told of what must bring the worker down.
      max_waiting: attempts that may wait for callbacks at once.
      cap: attempts of all queues together that may run at once.
      declared: of the queues, those whose settings somebody has set.
      observers: told of what happens.
      listening: whether the worker hears of new jobs at this moment.
    """
    trace = None if observers is None else observers.trace
    planner = Planner(registry, random, queues, trace)
    slots = [Slots(queue, settings) for queue, settings in queues.items()]
    kinds = {kind: task.deadline for kind, task in registry.tasks.items()}
    threads = trio.CapacityLimiter(max(1, sum(s.settings.max_workers for s in slots)))
    resources = Resources(wiring, timings.close_timeout)
    ledger = Ledger(registry, store, planner, timings, threads, resources, crashed, observers)

    def lost(worker_id: int) -> None:
        ledger.lost(worker_id)
        if observers is not None:
            observers.tell(Fenced(worker_id))

    life = Life(store, name, timings, lost, queues=list(queues), kinds=list(kinds))
    finalizer = Finalizer(store, ledger, timings, random, observers=observers)
    dispatcher = Dispatcher(
        store,
        slots,
        kinds,
        hold=ledger.hold,
        run=ledger.run,
        worker_id=life.present_id,
        uncertain=ledger.reconcile_soon,
        fenced=life.fenced,
        timings=timings,
        random=random,
        max_waiting=max_waiting,
        cap=cap,
        observers=observers,
    )

    def resized() -> None:
        threads.total_tokens = max(1, sum(s.settings.max_workers for s in slots))

    steering = Steering(store, dispatcher, queues, declared or {}, timings, resized)
    ledger.waits = waits = Waits(
        store,
        timings,
        random,
        slots=dispatcher,
        threads=threads,
        attempt_of=ledger.attempt_of,
        shut=ledger.shut,
        changed=ledger.cut_waiting,
    )
    writer = ProgressWriter(store, ledger, timings)
    completer = Completer(store, planner, ledger, timings)
    ledger.asyncio = asyncio = AsyncioLoop(crashed)
    if any(task.on_asyncio for task in registry.tasks.values()):
        require_trio_asyncio()
    ledger.services = Services(
        asyncio.anywhere(writer.flush),
        asyncio.not_there(completer.complete_in, "job.complete_in"),
        asyncio.anywhere(waits.register),
        asyncio.anywhere(waits.wait),
    )
    ledger.finalizer = finalizer
    ledger.dispatcher = dispatcher
    upkeep = Upkeep(store, finalizer, planner, list(kinds), life.present_id, timings, retention)
    sampler = None
    if observers is not None:
        sampler = Sampler(
            store, dispatcher, ledger, finalizer, life, timings, listening, observers
        )
    firing = Firing(registry, store, life.present_id, timings, random, observers)
    return Parts(
        life,
        dispatcher,
        ledger,
        finalizer,
        upkeep,
        firing,
        writer,
        resources,
        waits,
        asyncio,
        steering,
        sampler,
    )

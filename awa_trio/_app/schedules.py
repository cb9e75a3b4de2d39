"""The schedules of a client: look at them, pause them, trigger them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import NoReturn, final

from .._core.arguments import check_string
from .._core.errors import ConfigurationError, InvalidRequest, ScheduleNotFound
from .._core.job import PreparedInsert
from .._core.request import MAX_NAME
from .._core.schedules import Fire, ScheduleRow
from .._seam.protocol import Scheduling
from .._seam.values import Enqueued
from .._slips import nearest
from .app import App, registry_of
from .calls import public_errors


@final
class Schedules:
    """Look at schedules, pause and resume them, trigger and remove them: ``client.cron``.

    The database knows a schedule from when a worker first ran with it.
    """

    def __init__(
        self,
        store: Scheduling,
        app: App | None,
        enqueue: Callable[[list[PreparedInsert]], Awaitable[list[Enqueued]]],
    ) -> None:
        self._store = store
        self._app = app
        self._enqueue = enqueue

    async def list(self) -> list[ScheduleRow]:
        """Read all schedules, in the order of their names.

        Raises:
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        with public_errors("listing schedules"):
            return await self._store.schedules()

    async def get(self, name: str) -> ScheduleRow:
        """Read one schedule.

        Raises:
          ScheduleNotFound: there is none of this name.
          InvalidRequest: no schedule can have this name.
          TypeError: it is no str.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        _check_name(name)
        with public_errors("reading a schedule"):
            found = await self._store.schedules([name])
        if not found:
            await self._refuse(name)
        return found[0]

    async def pause(self, name: str) -> None:
        """Keep a schedule from firing, in every worker, until `resume`.

        What it has enqueued runs on. One that is paused stays so.

        Raises:
          ScheduleNotFound: as `get`.
          InvalidRequest: as `get`.
          TypeError: as `get`.
          DatabaseUnavailable: as `get`.
        """
        await self._pause(name, True)

    async def resume(self, name: str) -> None:
        """Let a schedule fire again, from now on.

        Instants that passed while it was paused are not missed: nothing fires for them,
        whatever its policy.

        Raises:
          ScheduleNotFound: as `get`.
          InvalidRequest: as `get`.
          TypeError: as `get`.
          DatabaseUnavailable: as `get`.
        """
        await self._pause(name, False)

    async def trigger(self, name: str) -> Sequence[Enqueued]:
        """Fire a schedule now, beside its instants, also while it is paused.

        What it enqueues is up to the client's app, which must have it. The instant that the
        jobs are for is now, to the second.

        Returns:
          What became of each job, as `Client.enqueue_many`; none, if its function makes none.

        Raises:
          ConfigurationError: the client has no app.
          ScheduleNotFound: its app has no schedule of this name.
          InvalidRequest: no schedule can have this name, or what its function made breaks a rule.
          UnknownKind: its function made one of a kind that the app does not know.
          QueueFull: as `Client.enqueue_many`.
          QueueDraining: likewise.
          Exception: whatever its function raises.
          TypeError: as `get`.
          DatabaseUnavailable: as `get`.
        """
        _check_name(name)
        if self._app is None:
            raise ConfigurationError(
                f"to trigger schedule {name!r} takes the app that has it; give it to"
                " connect(app=...), or --app"
            )
        registry = registry_of(self._app)
        schedule = registry.schedules.get(name)
        if schedule is None:
            raise ScheduleNotFound(name, nearest(name, registry.schedules))
        with public_errors("reading a schedule"):
            known = await self._store.schedules([name])
        # By the database's clock; by this machine's, if no worker has run with it yet.
        now = known[0].now if known else datetime.now(UTC)
        now = now.replace(microsecond=0).astimezone(schedule.rule.zone or UTC)
        return await self._enqueue(registry.jobs_of(schedule, Fire(name, now, True)))

    async def remove(self, name: str) -> None:
        """Forget a schedule; its jobs stay.

        For one that no app has any more: a worker that still has it brings it back within
        a minute, as a new one. To stop it, `pause` it.

        Raises:
          ScheduleNotFound: as `get`.
          InvalidRequest: as `get`.
          TypeError: as `get`.
          DatabaseUnavailable: as `get`.
        """
        _check_name(name)
        with public_errors("removing a schedule"):
            if await self._store.remove_schedule(name):
                return
        await self._refuse(name)

    async def _pause(self, name: str, paused: bool) -> None:
        _check_name(name)
        with public_errors("pausing a schedule" if paused else "resuming a schedule"):
            if await self._store.pause_schedule(name, paused):
                return
        await self._refuse(name)

    async def _refuse(self, name: str) -> NoReturn:
        """Say that there is none, and what there is."""
        names = [row.name for row in await self.list()]
        raise ScheduleNotFound(name, nearest(name, names))


def _check_name(name: object) -> None:
    check_string("name", name, most=MAX_NAME, error=InvalidRequest)

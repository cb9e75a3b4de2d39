"""Schedules: every second, and what was missed while nobody was there.

    AWA_DSN=postgresql://... python cron.py

The first worker fires for three seconds and stops. Two more seconds pass. The next worker,
which might be another process, fires for the seconds that were missed too, and goes on;
the database knows how far the schedule has come. Two workers fire no more than one does.
"""

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()
seconds: list[int] = []


@frozen
class Tick:
    second: int


@app.task
async def tick(job: awa.Job[Tick]) -> None:
    assert job.scheduled_for is not None
    seconds.append(int(job.scheduled_for.timestamp()))


@app.cron("* * * * * *", timezone="Europe/Paris", missed="catch_up")
def every_second(fire: awa.Fire) -> Tick:
    """The arguments may depend on the instant."""
    return Tick(fire.at.second)


async def work_until(client: awa.Client, count: int, workers: int) -> None:
    async with trio.open_nursery() as nursery:
        running = [await nursery.start(awa.run_worker, app, client) for _ in range(workers)]
        while len(seconds) < count:
            await trio.sleep(0.1)
        for worker in running:
            worker.stop()


async def main() -> None:
    await awa.migrate()
    async with awa.connect(app=app) as client:
        await work_until(client, 3, workers=1)
        await trio.sleep(2)
        await work_until(client, 7, workers=2)

        one_after_another = list(range(min(seconds), max(seconds) + 1))
        print(
            "no second was left out, or fired for twice:", sorted(seconds) == one_after_another
        )

        await client.cron.pause("every_second")
        [schedule] = await client.cron.list()
        print(f"{schedule.name}: {schedule.expression}, paused: {schedule.paused}")


if __name__ == "__main__":
    trio.run(main)

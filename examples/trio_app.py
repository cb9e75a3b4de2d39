"""A Trio program that hosts the worker in its own nursery.

A thermometer is read; a reading that is too high becomes a job. Ctrl-C, or the end of the
readings, stops the worker in peace: running jobs end first. AWA_DSN=... python trio_app.py
"""

import signal

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()
app.queue("alarms", max_workers=5, deadline=10)


@frozen
class Alarm:
    sensor: str
    degrees: float


@app.task(queue="alarms")
async def raise_alarm(job: awa.Job[Alarm]) -> None:
    await trio.sleep(0.05)  # call somebody
    print(f"{job.args.sensor} is at {job.args.degrees} degrees")


@app.task(queue="alarms", kind="write_report")
def write_report(job: awa.Job[dict]) -> None:  # type: ignore[type-arg]
    """An ordinary function runs in a thread, so it may block."""
    print(f"{job.args['count']} readings")


async def read_thermometer(client: awa.Client, readings: list[float]) -> None:
    for degrees in readings:
        await trio.sleep(0.01)
        if degrees > 80:
            # The same alarm again while one is on its way is no new alarm.
            await client.enqueue(Alarm("boiler", degrees), unique_opts={"states": 0b10111})
    await client.enqueue({"count": len(readings)}, kind="write_report")


async def stop_on_signal(worker: awa.Worker) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            worker.stop()
            return


async def main() -> None:
    await awa.migrate()
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        nursery.start_soon(stop_on_signal, worker)
        await read_thermometer(client, [70.0, 85.0, 75.0, 90.5])
        while await client.jobs.list(state=["available", "running"], limit=1):
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    print("the worker is gone, and left nothing behind")


if __name__ == "__main__":
    trio.run(main)

"""asyncio inside a Trio worker: call asyncio functions from Trio handlers, and the other way round.

    from awa_trio import aio

    @app.task(asyncio=True)
    async def fetch(job: awa.Job[Fetch], session: aiohttp.ClientSession) -> None:
        async with session.get(job.args.url) as response:       # a handler of asyncio's
            ...

    @app.task
    async def crawl(job: awa.Job[Crawl]) -> None:
        page = await aio.run(fetch_page, job.args.url)          # of Trio's, that calls some

Both run in one asyncio loop, which the worker opens when it is first needed and closes after the
last attempt. Cancellation crosses in both directions. Needs the extra ``asyncio``:
``pip install 'awa-trio[asyncio]'``.
"""

from .._publish import publish as _publish
from .._runtime.aio import open_loop as open_loop
from .._runtime.aio import opened as opened
from .._runtime.aio import run as run
from .._runtime.aio import trio as trio

_publish(__name__, globals())

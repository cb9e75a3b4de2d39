"""A FastAPI application that enqueues: one client for its life, on asyncio.

The worker is another process, on Trio: awa-trio worker fastapi_producer:app.
Serve it: AWA_DSN=... uvicorn fastapi_producer:api. Run alone, it asks itself. Needs fastapi, httpx.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from attrs import frozen
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

import awa_trio as awa

app = awa.App()


@frozen
class Resize:
    image: str
    width: int


@app.task
async def resize(job: awa.Job[Resize]) -> None: ...


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with awa.connect(app=app) as client:
        api.state.jobs = client
        yield


def jobs_of(request: Request) -> awa.Client:
    client: awa.Client = request.app.state.jobs
    return client


Jobs = Annotated[awa.Client, Depends(jobs_of)]
api = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    image: str = Field(min_length=1)
    width: int = Field(gt=0, le=4000)


@api.post("/images", status_code=202)
async def accept(order: Order, jobs: Jobs) -> dict[str, int | bool]:
    answer = await jobs.enqueue(Resize(order.image, order.width), unique_opts={})
    return {"job": answer.id, "new": answer.inserted}


@api.get("/jobs/{job_id}")
async def look(job_id: int, jobs: Jobs) -> dict[str, str]:
    try:
        return {"state": (await jobs.jobs.get(job_id)).state}
    except awa.JobNotFound as error:
        raise HTTPException(404, str(error)) from error


async def main() -> None:
    asgi = httpx.ASGITransport(api)
    async with lifespan(api), httpx.AsyncClient(transport=asgi, base_url="http://me") as http:
        accepted = await http.post("/images", json={"image": "cat.jpg", "width": 200})
        print(accepted.status_code, accepted.json())
        print((await http.post("/images", json={"image": "cat.jpg", "width": 200})).json())
        print((await http.get(f"/jobs/{accepted.json()['job']}")).json())
        print((await http.get("/jobs/404404")).status_code)


if __name__ == "__main__":
    asyncio.run(awa.migrate())
    asyncio.run(main())

"""A view of Django's whose row and job commit together; all of the project in one file.

The handler runs in a thread, and may use the ORM. Needs django. AWA_DSN=... python django_view.py
"""

import os
from typing import Any

import django
import trio
from attrs import frozen
from django.conf import settings
from django.db import close_old_connections, connection, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

import awa_trio as awa
from awa_trio import bridge
from awa_trio.testing import drain

app = awa.App()
dsn = conninfo_to_dict(os.environ.get("AWA_DSN", ""))

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": dsn.get("dbname", "postgres"),
            **{key.upper(): dsn.get(key, "") for key in ("host", "port", "user", "password")},
        }
    },
)
django.setup()


@frozen
class Welcome:
    user: str


@app.task
def welcome(job: awa.Job[Welcome]) -> None:
    close_old_connections()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE people SET welcomed = true WHERE name = %s", [job.args.user])
    print(f"welcome, {job.args.user}")
    connection.close()  # this thread's own


@transaction.atomic  # type: ignore[untyped-decorator]
def sign_up(request: HttpRequest, user: str) -> JsonResponse:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO people (name) VALUES (%s)", [user])
    job = bridge.enqueue(connection, Welcome(user), app=app, unique_opts={})
    if user == "root":
        raise PermissionError("no such name")  # rolls back the row and the job
    return JsonResponse({"job": job.id}, status=202)


urlpatterns = [path("sign-up/<str:user>", sign_up)]


async def work() -> None:
    async with awa.connect(app=app) as client:
        await drain(app, client)  # in production: awa-trio worker django_view:app


if __name__ == "__main__":
    trio.run(awa.migrate)
    connection.cursor().execute("CREATE TABLE IF NOT EXISTS people (name text, welcomed bool)")
    browser = Client(raise_request_exception=False)
    for name in ("ada", "root"):
        response: Any = browser.post(f"/sign-up/{name}")
        print(f"{name}: {response.status_code}")
    trio.run(work)

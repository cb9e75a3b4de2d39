"""The pages as a visitor without a browser gets them: what they show, do, hide and refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import trio

import awa_trio as awa
from awa_trio.testing import drain, memory_client
from awa_trio.web import _live, create_app
from awa_trio.web._access import Policy
from awa_trio.web._app import WebApp
from awa_trio.web._live import Shared, Streams
from awa_trio.web._routes import routes
from awa_trio.web._site import Site

from .rig import (
    HERE,
    TOKEN,
    Charge,
    Receipt,
    app,
    form_token,
    log_in,
    stream,
    submit,
    visiting,
    with_jobs,
)

S = awa.JobState
FORM = {"content-type": "application/x-www-form-urlencoded"}

PAGES = [
    "/", "/jobs", "/jobs/1", "/jobs/2", "/jobs/3", "/jobs/4", "/jobs/5", "/jobs/5/cancel",
    "/dead-letters", "/dead-letters/2/purge", "/dead-letters/all/retry",
    "/dead-letters/all/purge?queue=payments", "/queues", "/queues/of?queue=mail", "/cron",
    "/workers",
]  # fmt: skip


@pytest.fixture
async def client() -> awa.Client:
    return await with_jobs()


@pytest.fixture
def web(client: awa.Client) -> WebApp:
    """The page of somebody who may do everything."""
    return create_app(client, read_only=False)


def _no_client() -> awa.Client:
    raise AssertionError


def posts() -> list[str]:
    """The path of every action, of a job that there is."""
    found = [
        route.path.replace("{job_id:int}", "2")
        for route in routes(Site(_no_client, Policy(None, True, False), Shared(), Streams()))
        if "POST" in (route.methods or ())
    ]
    said = {"/queues/{what}": "/queues/pause", "/cron/{what}": "/cron/pause"}
    return [said.get(path, path.replace("{what}", "purge")) for path in found]


# ---- what is shown


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_is_whole_and_hides_what_applications_put_in(
    web: WebApp, path: str
) -> None:
    async with visiting(web) as visitor:
        page = await visitor.get(path)
    assert page.status_code == 200, page.text
    assert page.text.rstrip().endswith("</html>")
    assert "visa-4242" not in page.text
    assert "no money" not in page.text
    # Nothing of the page is in the page: its policy would not let it run, or look right.
    assert not re.search(
        r"<script(?! defer src=)|<style|\sstyle=|\son[a-z]+=|javascript:", page.text
    )


async def test_what_applications_put_in_is_shown_where_that_is_allowed(
    client: awa.Client,
) -> None:
    async with visiting(create_app(client, show_args=True)) as visitor:
        charged = (await visitor.get("/jobs/1")).text
        declined = (await visitor.get("/jobs/2")).text
        letters = (await visitor.get("/dead-letters")).text
    assert "&#34;card&#34;: &#34;visa-4242&#34;" in charged  # arguments
    assert "&#34;charged&#34;: &#34;visa-4242&#34;" in charged  # output
    assert "&#34;note&#34;: &#34;visa-4242&#34;" in charged  # metadata
    assert "no money on card declined" in declined
    assert "no money on card declined" in letters


async def test_an_error_shows_its_type_and_place_where_its_message_is_hidden(
    web: WebApp,
) -> None:
    async with visiting(web) as visitor:
        page = await visitor.get("/jobs/2")
    assert re.search(r"Attempt 1 failed: ValueError at rig\.py:\d+ in charge", page.text)


async def test_a_job_leads_to_its_follow_ups_and_they_lead_back(web: WebApp) -> None:
    async with visiting(web) as visitor:
        origin, follow_up = await visitor.get("/jobs/1"), await visitor.get("/jobs/3")
    assert re.search(r'1 job was\s+enqueued.*href="/jobs/3"', origin.text, re.DOTALL)
    assert 'Enqueued by <a href="/jobs/1">job 1</a>' in follow_up.text


async def test_filters_and_older_jobs(client: awa.Client, web: WebApp) -> None:
    for n in range(120):
        await client.enqueue(Receipt(n), queue="many", tags=["even"] if n % 2 == 0 else [])

    async def ids(visitor: httpx.AsyncClient, path: str) -> tuple[list[int], str]:
        page = await visitor.get(path)
        assert page.status_code == 200
        older = re.search(r'rel="next" href="([^"]+)"', page.text)
        listed = [
            int(i)
            for i in re.findall(r'<td class="number"[^>]*><a href="/jobs/(\d+)"', page.text)
        ]
        return listed, older[1].replace("&amp;", "&") if older else ""

    async with visiting(web) as visitor:
        assert (await ids(visitor, "/jobs?state=failed"))[0] == [2]
        assert (await ids(visitor, "/jobs?tag=vip"))[0] == [1]
        assert (await ids(visitor, "/jobs?kind=charge&queue=payments"))[0] == [2, 1]
        seen: list[int] = []
        path = "/jobs?queue=many&tag=even"
        while path:
            found, path = await ids(visitor, path)
            seen += found
    assert len(seen) == 60
    assert seen == sorted(set(seen), reverse=True)


@pytest.mark.parametrize(
    "path",
    ["/jobs?state=huh", "/jobs?before=x", "/jobs?before=0", "/jobs?before=" + "9" * 30,
     "/jobs?queue=%00", "/dead-letters?reason=none",
     "/queues/of?queue=", "/queues/of", "/jobs/find?id=-1"],
)  # fmt: skip
async def test_what_makes_no_sense_is_said_to_make_none(web: WebApp, path: str) -> None:
    async with visiting(web) as visitor:
        page = await visitor.get(path)
    assert page.status_code == 400, page.text
    assert "<h1>" in page.text


@pytest.mark.parametrize(
    "path", ["/jobs/99", "/jobs/0", "/jobs/" + "9" * 40, "/nothing", "/static/nothing",
             "/static/..%2f__init__.py", "/events/nothing", "/dead-letters/all/eat", "//evil.example"]
)  # fmt: skip
async def test_what_there_is_not(web: WebApp, path: str) -> None:
    async with visiting(web) as visitor:
        page = await visitor.get(HERE + path)
    assert page.status_code == 404, page.text


HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}&amp;"


async def test_no_text_of_a_job_becomes_anything_but_text() -> None:
    anything = awa.App()

    @anything.task(kind=HOSTILE, queue=HOSTILE, max_attempts=1)
    async def hostile(job: awa.Job[dict[str, Any]]) -> None:
        job.progress.set(percent=5, message=HOSTILE)
        raise RuntimeError(HOSTILE + "\x1b[31m\u202e\u0000\ud800")

    client = memory_client(anything)
    more: Any = {"tags": [HOSTILE], "ordering_key": HOSTILE, "metadata": {HOSTILE: HOSTILE}}
    await client.enqueue({"a": HOSTILE}, kind=HOSTILE, **more)
    await drain(anything, client)
    await client.enqueue({"a": HOSTILE}, kind=HOSTILE, queue=HOSTILE, **more)
    paths = ["/", "/jobs", "/jobs/1", "/jobs/2", "/dead-letters", "/queues", "/workers",
             "/jobs/2/cancel", "/dead-letters/1/purge"]  # fmt: skip
    paths += [
        str(httpx.URL(path, params={name: HOSTILE, "did": HOSTILE, "n": HOSTILE}))
        for path in (
            "/jobs",
            "/dead-letters",
            "/dead-letters/all/purge",
            "/queues/of",
            "/login",
        )
        for name in ("queue", "kind", "tag", "state", "reason")
    ]
    seen = 0
    async with visiting(create_app(client, read_only=False, show_args=True)) as visitor:
        for path in paths:
            page = await visitor.get(path)
            assert page.status_code in (200, 303, 400), path
            for bad in ("<script>", "<img src=x", "\x1b", "\u202e"):
                assert bad not in page.text, (path, bad)
            seen += page.text.count("&lt;script&gt;")
    assert seen > 40


# ---- what is done


async def test_a_dead_letter_is_retried_and_runs_again(client: awa.Client, web: WebApp) -> None:
    async with visiting(web) as visitor:
        done = await submit(
            visitor, "/dead-letters?queue=payments", "/jobs/2/retry",
            **{"from": "dead-letters", "queue": "payments"},
        )  # fmt: skip
        assert (done.status_code, done.headers["location"]) == (
            303,
            "/dead-letters?queue=payments&did=retried",
        )
        assert "It will run again." in (await visitor.get(done.headers["location"])).text
    job = await client.jobs.get(2)
    assert (job.state, job.dead_letter) == (S.AVAILABLE, None)


async def test_a_dead_letter_is_purged(client: awa.Client, web: WebApp) -> None:
    async with visiting(web) as visitor:
        done = await submit(visitor, "/dead-letters/2/purge", "/dead-letters/2/purge")
        assert done.status_code == 303
        assert (await visitor.get("/jobs/2")).status_code == 404
    with pytest.raises(awa.JobNotFound):
        await client.jobs.get(2)


@pytest.mark.parametrize(("queue", "left"), [("payments", [3]), ("mail", [2]), ("", [])])
async def test_all_dead_letters_of_a_filter_are_swept_and_no_others(
    queue: str, left: list[int]
) -> None:
    client = memory_client(app)
    await client.enqueue(Receipt(1))
    await client.enqueue(Charge("declined"), max_attempts=1)
    await client.enqueue(Charge("declined"), max_attempts=1, queue="mail")
    await drain(app, client)
    assert {job.id for job in await client.dlq.list()} == {2, 3}
    fields = {"queue": queue} if queue else {}
    path = "/dead-letters/all/purge"
    async with visiting(create_app(client, read_only=False)) as visitor:
        done = await submit(visitor, f"{path}?queue={queue}", path, **fields)
        assert done.status_code == 303, done.text
        assert "gone for good" in (await visitor.get(done.headers["location"])).text
    assert [job.id for job in await client.dlq.list()] == left


async def test_a_job_is_cancelled_with_a_reason(client: awa.Client, web: WebApp) -> None:
    async with visiting(web) as visitor:
        done = await submit(visitor, "/jobs/5/cancel", "/jobs/5/cancel", reason="no longer")
    assert done.headers["location"] == "/jobs/5?did=cancelled"
    job = await client.jobs.get(5)
    assert (job.state, job.errors[-1].error) == (S.CANCELLED, "cancelled: no longer")


async def test_a_page_that_does_not_know_the_follow_ups_says_how_to_go_on() -> None:
    ignorant = memory_client(None)
    await ignorant.enqueue({}, kind="unknown")
    async with visiting(create_app(ignorant, read_only=False)) as visitor:
        asked = await submit(visitor, "/jobs/1/cancel", "/jobs/1/cancel")
        assert asked.status_code == 409
        assert "Leave out its follow-ups" in asked.text
        assert (await ignorant.jobs.get(1)).state is S.AVAILABLE
        fields = {"form_token": form_token(asked), "without_follow_ups": "yes"}
        done = await visitor.post("/jobs/1/cancel", data=fields)
    assert done.status_code == 303
    assert (await ignorant.jobs.get(1)).state is S.CANCELLED


async def test_a_queue_with_nothing_in_it_is_listed_and_steered() -> None:
    quiet = awa.App()

    @quiet.task(queue="a & b")
    async def nap(job: awa.Job[Receipt]) -> None: ...

    client = memory_client(quiet)
    async with trio.open_nursery() as nursery:
        await nursery.start(awa.run_worker, quiet, client)
        async with visiting(create_app(client, read_only=False)) as visitor:
            for page in ("/", "/queues", "/workers"):
                assert "queue=a+%26+b" in (await visitor.get(page)).text
            await submit(visitor, "/queues", "/queues/pause", queue="a & b")
        assert (await client.queues.get("a & b")).paused
        nursery.cancel_scope.cancel()


async def test_a_schedule_is_steered() -> None:
    regular = awa.App()

    @regular.periodic(3600, name="tidy up", args=Receipt(1))
    @regular.task(queue="tidying")
    async def tidy(job: awa.Job[Receipt]) -> None: ...

    client = memory_client(regular)
    async with trio.open_nursery() as nursery:
        await nursery.start(awa.run_worker, regular, client)
        nursery.cancel_scope.cancel()
    page = create_app(client, read_only=False)
    async with visiting(page) as visitor:
        assert "every 3600 s" in (await visitor.get("/cron")).text
        heard = await stream(page, "/events/cron", lambda said: "event: live" in said)
        assert "every 3600 s" in "".join(heard)
        await submit(visitor, "/cron", "/cron/pause", schedule="tidy up")
        assert (await client.cron.get("tidy up")).paused
        assert "paused" in (await visitor.get("/cron")).text
        await submit(visitor, "/cron", "/cron/resume", schedule="tidy up")
        assert not (await client.cron.get("tidy up")).paused
        done = await submit(visitor, "/cron", "/cron/trigger", schedule="tidy up")
        assert done.headers["location"] == "/cron?did=trigger&n=1"
        assert [job.kind for job in await client.jobs.list()] == ["receipt"]
        gone = await submit(visitor, "/cron", "/cron/pause", schedule="tidy")
        assert (gone.status_code, "did you mean" in gone.text) == (404, True)
        done = await submit(visitor, "/cron", "/cron/remove", schedule="tidy up")
        assert done.status_code == 303
        assert await client.cron.list() == []


async def test_a_queue_is_paused_and_goes_on(client: awa.Client, web: WebApp) -> None:
    async with visiting(web) as visitor:
        await submit(visitor, "/queues", "/queues/pause", queue="mail")
        assert (await client.queues.get("mail")).paused
        await submit(visitor, "/queues", "/queues/drain", queue="mail")
        assert (await client.queues.get("mail")).draining
        await submit(visitor, "/queues", "/queues/resume", queue="mail")
    status = await client.queues.get("mail")
    assert (status.paused, status.draining) == (False, False)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/jobs/1/retry", 409), ("/jobs/99/retry", 404), ("/dead-letters/1/purge", 409),
     ("/queues/eat", 404), ("/cron/eat", 404), ("/cron/pause", 400), ("/queues/pause", 400)],
)  # fmt: skip
async def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
    web: WebApp, path: str, status: int
) -> None:
    async with visiting(web) as visitor:
        answer = await submit(visitor, "/queues", path)
    assert answer.status_code == status, answer.text
    assert answer.text.count("<h1>") == 1


# ---- who may


#: What somebody might try who may not.
ATTACKS = ["no token", "a wrong token", "another visitor's token", "another site", "another origin",
           "null", "no cookie", "json", "read-only", "not logged in"]  # fmt: skip

#: One logs in and out where one may only look, and before one is logged in.
FOR_ALL = {
    (attack, path)
    for attack in ("read-only", "not logged in")
    for path in ("/login", "/logout")
}


@pytest.mark.parametrize(
    ("attack", "path"),
    [(attack, path) for attack in ATTACKS for path in posts() if (attack, path) not in FOR_ALL],
)
async def test_nothing_is_done_for_anybody_else(
    client: awa.Client, attack: str, path: str
) -> None:
    token = TOKEN if attack == "not logged in" or path in ("/login", "/logout") else None
    web = create_app(client, token=token, read_only=attack == "read-only")
    before = await state_of(client)
    async with visiting(web) as visitor, visiting(web) as other:
        if token is not None and attack != "not logged in" and path != "/login":
            await log_in(visitor)
        at = "/login" if path == "/login" or attack == "not logged in" else "/queues"
        fields = {"queue": "mail", "token": TOKEN}
        headers = dict(FORM)
        page = await visitor.get(at)
        if attack != "read-only":
            fields["form_token"] = form_token(page)
        match attack:
            case "no token":
                del fields["form_token"]
            case "a wrong token":
                fields["form_token"] = "0" * 64
            case "another visitor's token":
                if path == "/logout":
                    await log_in(other)
                fields["form_token"] = form_token(await other.get(at))
            case "another site":
                headers["sec-fetch-site"] = "cross-site"
            case "another origin":
                headers["origin"] = "http://localhost:4002"
            case "null":
                headers["origin"] = "null"
            case "no cookie":
                visitor.cookies.clear()
            case "json":
                headers["content-type"] = "application/json"
        body = json.dumps(fields) if attack == "json" else str(httpx.QueryParams(fields))
        answer = await visitor.post(path, content=body, headers=headers)
    assert answer.status_code in (401, 403, 415), (answer.status_code, answer.text)
    assert "set-cookie" not in answer.headers or "session" not in answer.headers["set-cookie"]
    assert await state_of(client) == before


async def state_of(client: awa.Client) -> object:
    jobs = [(job.id, job.state) for job in await client.jobs.list()]
    return jobs, [(q.name, q.paused) for q in await client.queues.list()]


async def test_every_action_is_among_those_tried() -> None:
    assert len(posts()) == 8
    assert "/jobs/2/retry" in posts()


async def test_without_a_token_a_mounted_page_is_for_looking_only(client: awa.Client) -> None:
    async with visiting(create_app(client)) as visitor:
        page = await visitor.get("/dead-letters")
    assert '<form method="post"' not in page.text
    assert "read-only" in page.text
    assert "set-cookie" not in page.headers


async def test_with_a_token_nobody_sees_anything_before_they_have_given_it(
    client: awa.Client,
) -> None:
    async with visiting(create_app(client, token=TOKEN)) as visitor:
        for path in (*PAGES, "/nothing"):
            page = await visitor.get(path)
            assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert (await visitor.get("/events/overview")).status_code == 401
        wrong = await log_in(visitor, "another token of sixteen")
        assert wrong.status_code == 401
        assert "That is not the token." in wrong.text
        assert (await visitor.get("/jobs")).status_code == 303
        right = await log_in(visitor)
        assert right.status_code == 303
        cookie = right.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert TOKEN not in cookie
        assert (await visitor.get("/jobs")).status_code == 200
        done = await submit(visitor, "/queues", "/queues/pause", queue="mail")
        assert done.status_code == 303
        out = await submit(visitor, "/jobs", "/logout")
        assert out.headers["location"] == "/login"
        assert (await visitor.get("/jobs")).status_code == 303


async def test_a_token_and_read_only_is_for_looking_after_a_login(client: awa.Client) -> None:
    async with visiting(create_app(client, token=TOKEN, read_only=True)) as visitor:
        assert (await visitor.get("/jobs")).status_code == 303
        await log_in(visitor)
        assert "read-only" in (await visitor.get("/jobs")).text


async def test_a_cookie_is_for_https_where_that_is_spoken(client: awa.Client) -> None:
    web = create_app(client, token=TOKEN)
    async with visiting(web, base_url="https://jobs.example", headers={}) as visitor:
        assert "; Secure" in (await log_in(visitor)).headers["set-cookie"]
    async with visiting(web, headers={"x-forwarded-proto": "https"}) as visitor:
        assert "; Secure" in (await visitor.get("/login")).headers["set-cookie"]
    async with visiting(web) as visitor:
        assert "; Secure" not in (await visitor.get("/login")).headers["set-cookie"]


@pytest.mark.parametrize("path", ["/", "/jobs", "/nothing", "/static/awa.css", "/login"])
async def test_every_answer_says_what_a_browser_may_do_with_it(web: WebApp, path: str) -> None:
    async with visiting(web) as visitor:
        headers = (await visitor.get(path)).headers
    assert "unsafe" not in headers["content-security-policy"]
    for needed in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert needed in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == (
        "no-cache" if path.startswith("/static") else "no-store"
    )


async def test_only_the_names_that_are_known_lead_here(client: awa.Client) -> None:
    web = create_app(client, read_only=False, allow_hosts=["jobs.example"])
    heard: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        heard.append(message)

    twice = [(b"host", b"jobs.example"), (b"host", b"evil.example")]
    scope = {"type": "http", "method": "GET", "path": "/jobs", "headers": twice}
    await web(scope, receive, send)
    assert heard[0]["status"] == 421
    async with visiting(web) as visitor:
        for host, status in (
            ("jobs.example", 200), ("127.0.0.1:4001", 200), ("evil.example", 421), ("", 421),
        ):  # fmt: skip
            answer = await visitor.get("/jobs", headers={"host": host})
            assert answer.status_code == status, host
    assert "--allow-host evil.example" in (
        await visiting_once(web, "/jobs", {"host": "evil.example"})
    )


async def visiting_once(web: WebApp, path: str, headers: dict[str, str]) -> str:
    async with visiting(web) as visitor:
        return (await visitor.get(path, headers=headers)).text


async def test_where_it_is_mounted_everything_leads_there(client: awa.Client) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    web = create_app(client, read_only=False)
    outer = Starlette(routes=[Mount("/ops/queue", app=web)])
    async with visiting(outer) as visitor:  # type: ignore[arg-type]
        for path in ("/", "/jobs", "/jobs/2", "/dead-letters", "/queues"):
            page = await visitor.get(f"/ops/queue{path}")
            assert page.status_code == 200
            leads = re.findall(r'(?:href|src|action|sse-connect)="(/[^"]*)"', page.text)
            assert len(leads) > 8
            assert all(lead.startswith("/ops/queue/") for lead in leads), leads
            assert "Path=/ops/queue" in page.headers.get("set-cookie", "Path=/ops/queue")
        done = await submit(visitor, "/ops/queue/jobs/2", "/ops/queue/jobs/2/retry")
    assert done.headers["location"] == "/ops/queue/jobs/2?did=retried"


@pytest.mark.parametrize(
    ("options", "error"),
    [({"token": "short"}, awa.ConfigurationError), ({"token": b"x" * 20}, TypeError),
     ({"token": "x" * 20 + "\n"}, awa.ConfigurationError), ({"read_only": "no"}, TypeError),
     ({"show_args": "no"}, TypeError), ({"allow_hosts": "name"}, TypeError),
     ({"trust_proxies": 1}, TypeError)],
)  # fmt: skip
async def test_what_could_mean_that_everybody_may_is_refused(
    client: awa.Client, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        create_app(client, **options)
    with pytest.raises(TypeError):
        create_app("postgresql://")  # type: ignore[arg-type]


# ---- what lasts


async def test_a_stream_ends_when_its_visitor_goes(web: WebApp) -> None:
    heard = await stream(web, "/events/queues", lambda said: "event: live" in said)
    assert "retry:" in heard[1]
    assert "data: <table" in "".join(heard)


@pytest.mark.virtual_time
async def test_a_stream_says_what_has_changed_and_ends_by_itself() -> None:
    web = create_app(memory_client(app))
    started = trio.current_time()
    heard = await stream(web, "/events/queues", lambda said: False)
    assert trio.current_time() - started == pytest.approx(_live.LASTS)
    assert "".join(heard).count("event: live") == 1
    assert "".join(heard).count(": the same") >= 10


async def test_all_streams_end_at_once_when_the_page_stops(web: WebApp) -> None:
    opened = 0

    def one_more(said: str) -> bool:
        nonlocal opened
        opened += "event: live" in said
        if opened == 3:
            web.stop()
        return False

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for path in ("/events/queues", "/events/workers", "/events/jobs/5"):
                nursery.start_soon(stream, web, path, one_more)
        # And none lasts that is opened then.
        await stream(web, "/events/overview", lambda said: False)
    assert opened >= 3


async def test_no_more_look_at_once_than_there_is_room_for(
    web: WebApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_live, "MOST_STREAMS", 0)
    async with visiting(web) as visitor:
        answer = await visitor.get("/events/queues")
    assert answer.status_code == 503
    assert "Too many look at once" in answer.text


async def test_those_who_look_at_the_same_ask_once(client: awa.Client) -> None:
    asked = 0

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

    listed = client.queues.list

    async def counted() -> Any:
        nonlocal asked
        asked += 1
        return await listed()

    client.queues.list = counted  # type: ignore[method-assign]
    web = create_app(client)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(
                stream, web, "/events/queues", lambda said: "event: live" in said
            )
    assert asked == 1

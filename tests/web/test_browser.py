"""The page in a real browser: keys, small screens, dark, live plots, and no complaint of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio.testing.fixtures import fresh_database
from awa_trio.web import _live

from .browser import chromium, opened
from .rig import TOKEN
from .scene import shop_elsewhere

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAM = chromium()
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(
        PROGRAM is None,
        reason="there is no Chromium; install one, such as with: apt-get install chromium",
    ),
]

PAGES = ["/", "/jobs", "/jobs/3", "/jobs/1", "/jobs/5/cancel", "/dead-letters",
         "/dead-letters/3/purge", "/dead-letters/all/purge", "/queues", "/queues/of?queue=payments",
         "/cron", "/workers", "/nothing"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened(PROGRAM) as browser:
        yield browser


@pytest.fixture(scope="module")
def where(awa_server: str, awa_template: str) -> Iterator[str]:
    """The address of a shop's page, at work."""
    with (
        fresh_database(awa_server, template=awa_template) as name,
        shop_elsewhere(make_conninfo(awa_server, dbname=name), per_second=10) as where,
    ):
        yield where


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab, in which nothing may go wrong."""
    page = browser.new_page()
    page.set_default_timeout(20_000)
    page.complaints = complaints = []  # type: ignore[attr-defined]
    page.on(
        "console",
        lambda said: (
            complaints.append(said.text) if said.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert complaints == []


@contextmanager
def shop_for(page: Page, dsn: str, **options: Any) -> Iterator[str]:
    """A shop that a tab leaves before it closes: what listens would complain that it is gone."""
    with shop_elsewhere(dsn, **options) as where:
        yield where
        page.goto("about:blank")


def text(page: Page) -> str:
    return page.inner_text("main")


def test_plots_move_while_a_worker_works(
    where: str, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Streams end, and the browser opens others; nobody is to see or hear of that.
    monkeypatch.setattr(_live, "LASTS", 2.5)
    page.goto(where)
    page.wait_for_selector("[data-live=on]")
    page.wait_for_selector(".plot .ok[d^=M]", state="attached")
    before = page.get_attribute(".plot .ok", "d")
    page.wait_for_function(
        "before => document.querySelector('.plot .ok').getAttribute('d') !== before", arg=before
    )
    assert re.search(r"[\d.]+ completed a second", text(page))
    # It is drawn: the bars have a height, in the colour of the style sheet.
    box = page.locator(".plot .ok").bounding_box()
    assert box is not None
    assert box["height"] > 1
    colour = page.evaluate("getComputedStyle(document.querySelector('.plot .ok')).fill")
    assert colour == "rgb(29, 91, 184)"
    with page.expect_request("**/events/overview"):
        pass
    assert page.get_attribute("[data-live]", "data-live") == "on"
    page.goto("about:blank")


def test_a_dead_letter_is_retried_with_the_keyboard_alone(migrated: str, page: Page) -> None:
    with shop_for(page, migrated) as where:
        page.goto(where)
        # The first key leads past the navigation, if one likes.
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        for _ in range(10):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == "Dead letters":
                break
        assert is_outlined(page)
        page.keyboard.press("Enter")
        page.wait_for_url("**/dead-letters")
        page.wait_for_selector("text=CardDeclined")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.ariaLabel") == "Retry job 3":
                break
        assert is_outlined(page)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=It will run again.")
        # It ran, was declined once more, and came back.
        page.goto(f"{where}/jobs/3")
        page.wait_for_selector("text=Dead letter because")
        assert text(page).count("CardDeclined") == 2


def is_outlined(page: Page) -> bool:
    """Whether one sees where one is."""
    style = page.evaluate(
        "(() => { const s = getComputedStyle(document.activeElement);"
        " return [s.outlineStyle, parseFloat(s.outlineWidth)] })()"
    )
    return bool(style[0] == "solid" and style[1] >= 2)


def test_what_is_gone_for_good_is_asked_about_first(migrated: str, page: Page) -> None:
    with shop_for(page, migrated) as where:
        page.goto(f"{where}/dead-letters")
        page.wait_for_selector("text=CardDeclined")
        page.click("[aria-label='Purge job 3…']")
        page.wait_for_selector("h1:has-text('Purge job 3?')")
        page.click("button:has-text('Purge it')")
        page.wait_for_selector("text=It is gone for good.")
        page.goto(f"{where}/jobs?state=failed")
        assert page.locator("tbody tr").count() == 1
        page.select_option("select[name=state]", "running")  # sends the filter by itself
        page.wait_for_url("**/jobs?state=running*")
        assert "render_report" in text(page)


def test_no_page_is_wider_than_a_small_screen(migrated: str, browser: Browser) -> None:
    long = "unbreakable" * 18

    async def more() -> int:
        async with awa.connect(migrated) as client:
            names: Any = {"kind": long, "queue": long, "tags": [long], "ordering_key": long}
            return (await client.enqueue({long: [long]}, metadata={long: long}, **names)).id

    with shop_elsewhere(migrated, show_args=True) as where:
        long_one = trio.run(more)
        tab = browser.new_page(viewport={"width": 360, "height": 740})
        for path in (
            *PAGES,
            f"/jobs/{long_one}",
            f"/queues/of?queue={long}",
            f"/jobs?tag={long}",
        ):
            tab.goto(where + path)
            wide = tab.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, f"{path} is {wide} wide"
            # And nothing is cut off by something that hides it.
            beyond = tab.evaluate(
                "[...document.querySelectorAll('main *')].filter(e => !e.closest('svg, .unseen, thead')"
                " && e.getBoundingClientRect().right > 361).map(e => e.outerHTML.slice(0, 90))"
            )
            assert beyond == [], path
        tab.goto(where + "/workers")
        apart = tab.evaluate(
            "[...document.querySelectorAll('td .chip')].map(chip =>"
            " chip.getBoundingClientRect().left"
            " - chip.previousElementSibling.getBoundingClientRect().right)"
        )
        # What is said in one cell stands together, beside its label.
        assert apart
        assert all(0 <= gap < 12 for gap in apart), apart
        # A job takes two lines, and a finger that hits any place of them finds it.
        tab.goto(where + "/jobs?state=scheduled")
        box = tab.locator("tbody tr").bounding_box()
        assert box is not None
        assert box["height"] < 90
        tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 5)
        tab.wait_for_url(re.compile(r"/jobs/\d+$"))
        tab.goto(where + "/dead-letters")
        tab.click("[aria-label='Purge job 3…']")
        tab.wait_for_url("**/dead-letters/3/purge")
        tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(where: str, browser: Browser, scheme: Any) -> None:
    """At least 4.5 to 1, as WCAG asks of text, on every page, in light and in dark."""
    tab = browser.new_page(color_scheme=scheme)
    seen = 0
    for path in ("/", "/jobs", "/jobs/3", "/dead-letters", "/queues", "/cron", "/workers"):
        tab.goto(where + path)
        for word, ink, ground in tab.evaluate(COLOURS):
            assert contrast(ink, ground) >= 4.5, (path, word, ink, ground)
            seen += 1
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(rgb(ground)) < 0.1) == (scheme == "dark")
    assert seen > 100
    tab.close()


#: Each text on a page, its colour and what is behind it.
COLOURS = """[...document.querySelectorAll('body *')].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())
    && e.getClientRects().length && !e.closest('.unseen, .skip, script')
).map(e => {
    let behind = e, ground;
    do { ground = getComputedStyle(behind).backgroundColor; behind = behind.parentElement }
    while (/rgba\\(.*, 0\\)/.test(ground) && behind)
    return [e.textContent.trim().slice(0, 30), getComputedStyle(e).color, ground]
})"""


def rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = [float(part) for part in re.findall(r"[\d.]+", colour)[:3]]
    return red / 255, green / 255, blue / 255


def luminance(colour: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, ground: str) -> float:
    light, dark = sorted((luminance(rgb(ink)), luminance(rgb(ground))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_a_queue_is_paused_where_the_page_is_live(where: str, page: Page) -> None:
    page.goto(f"{where}/queues")
    page.wait_for_selector("[data-live=on]")
    page.click("[aria-label='Pause queue reports']")
    page.wait_for_selector("text=It is paused.")
    page.goto(f"{where}/queues")
    page.wait_for_selector("tr:has-text('reports') >> text=paused")
    # What has the focus keeps it, whatever is drawn anew around it.
    page.focus("[aria-label='Resume queue reports']")
    page.wait_for_function(
        "new Promise(done => document.addEventListener('htmx:sseMessage', () => done(true)))"
    )
    assert page.evaluate("document.activeElement.ariaLabel") == "Resume queue reports"
    page.goto("about:blank")


def test_everything_can_be_done_without_scripts(migrated: str, browser: Browser) -> None:
    with shop_elsewhere(migrated) as where:
        tab = browser.new_page(java_script_enabled=False)
        tab.goto(f"{where}/dead-letters?kind=charge_card")
        tab.click("[aria-label='Retry job 3']")
        tab.wait_for_selector("text=It will run again.")
        tab.goto(f"{where}/queues")
        assert "reports" in text(tab)
        tab.click("[aria-label='Pause queue reports']")
        tab.wait_for_selector("text=It is paused.")
        tab.goto(where)
        assert "completed a second" in text(tab)
        tab.close()


def test_one_logs_in_and_out(migrated: str, page: Page) -> None:
    with shop_for(page, migrated, token=TOKEN) as where:
        page.goto(f"{where}/jobs")
        page.wait_for_url("**/login")
        assert page.locator("nav").count() == 0
        page.fill("[name=token]", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("[data-live=on]")
        cookies = page.context.cookies()
        assert {(c["httpOnly"], c["sameSite"]) for c in cookies} == {(True, "Strict")}
        page.click("text=Log out")
        page.wait_for_selector("h1:has-text('Log in')")
        page.goto(f"{where}/jobs")
        page.wait_for_url("**/login")
        page.goto("about:blank")


def test_another_site_gets_nothing_done(where: str, browser: Browser) -> None:
    """A form on a page of somebody else's, sent by a browser that has been here."""
    tab = browser.new_page()
    tab.goto(f"{where}/dead-letters")
    tab.wait_for_selector("text=CardDeclined")
    key = tab.get_attribute("input[name=form_token]", "value")
    tab.goto("about:blank")
    tab.set_content(
        f'<form method="post" action="{where}/jobs/3/retry">'
        f'<input name="form_token" value="{key}"><button>win</button></form>'
    )
    tab.click("button")
    tab.wait_for_selector("text=Nothing was changed")
    tab.goto(f"{where}/jobs/3")
    assert "failed" in text(tab)
    tab.close()

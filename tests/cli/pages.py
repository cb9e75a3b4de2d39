"""The commands and their options, as docs/reference/cli.md has them.

``python -m tests.cli.pages`` writes them there; a test holds that it was done.
"""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App

from awa_trio.cli._main import app
from awa_trio.cli._usage import place

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
BEGIN, END = "<!-- from the commands: just cli-page -->", "<!-- until here -->"


def commands(
    of: App = app, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command that does something, by its words."""
    if path and of.default_command is not None:
        yield path, of
    for name in of:
        if not name.startswith("-"):
            yield from commands(of[name], (*path, name))


def options(command: App) -> list[Any]:
    """What a command takes."""
    return [a for a in command.assemble_argument_collection(parse_docstring=True) if a.show]


def rendered() -> str:
    """Return the part of the page that is made."""
    return "\n".join(_section(path, command) for path, command in commands())


def _section(path: tuple[str, ...], command: App) -> str:
    taken = options(command)
    places = " ".join(place(a) for a in taken if not a.names[0].startswith("-"))
    words = re.split(r"\n\s*Parameters\n", command.default_command.__doc__ or "")[0]
    paragraphs = [" ".join(p.split()) for p in words.strip().split("\n\n")]
    rows = [f"| {_names(a)} | {_what(a)} |" for a in taken]
    title = f"### `{' '.join(['awa-trio', *path, places]).strip()}`"
    table = ["| | |", "|---|---|", *rows] if rows else []
    return "\n".join([title, "", "\n\n".join(paragraphs), "", *table, ""])


def _names(argument: Any) -> str:
    names = [f"`{name}`" for name in argument.names]
    value = "" if _is_flag(argument.hint) or not argument.names[0].startswith("-") else " VALUE"
    return ", ".join(names).replace("`,", "`,") + (f"{value}" if value else "")


def _is_flag(hint: Any) -> bool:
    return hint is bool or bool in typing.get_args(hint)


def _what(argument: Any) -> str:
    said = [" ".join((argument.parameter.help or "").split())]
    if choices := _choices(argument.hint):
        said.append(f"One of {', '.join(f'`{one}`' for one in choices)}.")
    default = argument.field_info.default
    shown = isinstance(default, (int, float, str)) and not isinstance(default, bool)
    if shown and default != "" and not isinstance(default, type):
        said.append(f"Default, `{default}`.")
    if argument.parameter.env_var:
        said.append(f"Or the environment variable `{argument.parameter.env_var[0]}`.")
    return " ".join(filter(None, said)).replace("|", "\\|")


def _choices(hint: Any) -> list[str]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (tuple, typing.Union):
        for inner in typing.get_args(hint):
            if found := _choices(inner):
                return found
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return [one.value for one in hint]
    return []


def page_with(made: str) -> str:
    """Return the page with this part in it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with(rendered()))

"""All pages in one folder, as the site's builder takes them, with a navigation.

The navigation is what the index, ``docs/README.md``, lists under its headings, in its
order: a page that is in the index is in the navigation. The reference's pages come below
the page that names the public modules.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path, PurePosixPath

from .links import page_of, rewrite
from .reference import Reference

#: The page of the index below which the reference's pages are.
API = "reference/api.md"

_ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+)\) \|", re.MULTILINE)

Entry = dict[str, "str | list[Entry]"]


def stage(root: Path, to: Path, reference: Reference) -> None:
    """Write the pages, and the builder's settings, into an empty folder.

    Args:
      root: the repository.
      to: the folder; what it holds is removed.
      reference: whose pages to write.
    """
    shutil.rmtree(to, ignore_errors=True)
    pages = to / "pages"
    for file in (root / "docs").rglob("*"):
        if file.is_file() and file.suffix not in (".md", ".toml"):
            kept = pages / file.relative_to(root / "docs")
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, kept)
    waiting = [f.relative_to(root).as_posix() for f in (root / "docs").rglob("*.md")]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        text, files = _page(root, path)
        _write(pages / page_of(path), text)
        new = {file for file in files if _shown(root / file)} - seen
        seen |= new
        waiting += new
    for module in reference.modules:
        _write(pages / "reference" / "api" / f"{module}.md", reference.page(module))
    index = pages / API
    if reference.modules:
        index.write_text(_with_links(index.read_text(), reference))
    settings = (root / "docs" / "zensical.toml").read_text()
    nav = navigation((root / "docs" / "README.md").read_text(), reference.modules)
    (to / "zensical.toml").write_text(_with_nav(settings, nav))


def navigation(index: str, modules: tuple[str, ...]) -> list[Entry]:
    """Return the sections of the index, each with its pages."""
    found: list[Entry] = [{"awa_trio": "README.md"}]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        pages: list[Entry] = []
        for title, target in _ROW.findall(section):
            if target == API:
                api: list[Entry] = [{title: API}]
                api += [{module: f"reference/api/{module}.md"} for module in modules]
                pages.append({title: api})
            elif target.startswith("../"):
                folder = target.removeprefix("../").strip("/")
                pages.append({title: page_of(f"{folder}/README.md")})
            else:
                pages.append({title: target})
        if pages:
            found.append({section.splitlines()[0].strip(): pages})
    return found


def _page(root: Path, path: str) -> tuple[str, list[str]]:
    """A file as a page of the site, and the files that it links to."""
    file = root / path
    if file.is_dir():  # without a README: what is in it
        inside = [f"{path}/{entry.name}" for entry in sorted(file.iterdir()) if entry.is_file()]
        here = PurePosixPath(page_of(path)).parent
        items = [f"- [{entry}]({os.path.relpath(page_of(entry), here)})" for entry in inside]
        return f"# {path}\n\n" + "\n".join(items) + "\n", inside
    if file.suffix != ".md":
        fence = "````"  # a docstring may hold a fence of three
        return (
            f"# {file.name}\n\n`{path}`\n\n{fence}{_lexer(file)}\n{file.read_text()}{fence}\n",
            [],
        )

    def file_of(target: str) -> str:
        readme = f"{target}/README.md"
        return readme if (root / readme).is_file() else target

    text, files = rewrite(file.read_text(), path, file_of)
    return text.replace("```python no-run\n", "```python\n"), files


def _shown(file: Path) -> bool:
    """Whether a linked file has a page: pictures are shown as they are, and of one that is
    missing the builder says where the link is."""
    return file.exists() and file.suffix not in (".svg", ".png")


def _lexer(file: Path) -> str:
    return {".py": "python", ".sql": "sql", ".toml": "toml", ".json": "json"}.get(
        file.suffix, "text"
    )


def _with_links(text: str, reference: Reference) -> str:
    for module in reference.modules:
        text = text.replace(f"| `{module}` |", f"| [`{module}`](api/{module}.md) |")
    return text


def _with_nav(settings: str, nav: list[Entry]) -> str:
    before, place, after = settings.partition("nav = []")
    assert place, "the settings have no place for the navigation"
    return f"{before}nav = {_toml(nav)}{after}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _toml(nav: list[Entry]) -> str:
    def value(of: str | list[Entry]) -> str:
        if isinstance(of, str):
            return json.dumps(of)
        inner = ",\n".join(
            f"{{ {json.dumps(k)} = {value(v)} }}" for e in of for k, v in e.items()
        )
        return f"[\n{inner}\n]"

    return value(nav)

"""The site: it builds, needs nothing from elsewhere, and its reference leads somewhere."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from pathlib import Path

import psycopg
import pytest

from .docsite.__main__ import build
from .docsite.docstrings import markdown
from .docsite.links import rewrite
from .docsite.reference import Reference
from .docsite.stage import API, navigation, stage

ROOT = Path(__file__).parents[1]

#: What the runtime raises where nobody but `run_worker`, which translates it, can see it.
INSIDE = {"StoreError"}


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def test_it_builds_and_needs_nothing_from_elsewhere(
    reference: Reference, tmp_path: Path
) -> None:
    pytest.importorskip("zensical")
    built = build(ROOT, tmp_path, reference)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    client = (site / "reference" / "api" / "awa_trio.html").read_text()
    assert 'id="awa_trio.Client.enqueue"' in client
    assert (site / "source" / "examples" / "quickstart.py.html").exists()
    loaded = re.compile(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//|url\(["\']?(?:https?:)?//')  # fmt: skip
    for file in site.rglob("*"):
        if file.suffix in (".html", ".css"):
            assert not loaded.search(file.read_text()), file.name


def test_a_link_that_leads_nowhere_fails_it(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "README.md").write_text(
        "# Top\n\n[a](gone.md) [b](other.md#gone) [c](../code.py)\n"
    )
    (docs / "other.md").write_text("# Other\n")
    (docs / "site.css").write_text("")
    (docs / "zensical.toml").write_text((ROOT / "docs" / "zensical.toml").read_text())
    (tmp_path / "code.py").write_text('"""Code."""\n')
    built = build(tmp_path, tmp_path / "to", Reference(()))
    assert built.returncode != 0
    assert "2 issues" in built.stderr


def test_every_public_module_has_its_row(reference: Reference) -> None:
    rows = re.findall(
        r"^\| `(awa_trio[\w.]*)` \|", (ROOT / "docs" / API).read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(reference.modules)


def test_every_public_name_is_on_its_page(reference: Reference) -> None:
    for module in reference.modules:
        page = reference.page(module)
        for name in reference.names[module]:
            assert f"{{ #{module}.{name} }}" in page
    assert {"awa_trio.run_worker", "awa_trio.Job.nursery", "awa_trio.Timings.lease"} <= set(
        reference.anchors
    )


def test_references_in_docstrings_lead_somewhere(reference: Reference) -> None:
    """To a public name; or to one of Python, Trio or psycopg, or a private package."""
    for module in reference.modules:
        reference.page(module)
    assert reference.unresolved  # such as ValueError
    lost = [found for found in reference.unresolved if not elsewhere(found.split(": ")[1])]
    assert not lost


def elsewhere(name: str) -> bool:
    if name.startswith("_") or name in INSIDE or hasattr(builtins, name):
        return True
    if hasattr(psycopg.AsyncConnection, name):
        return True  # a connection's, inherited
    module, _, attribute = name.rpartition(".")
    try:
        found = importlib.import_module(module or name)
    except ImportError:
        return False
    return hasattr(found, attribute) or not module


def test_a_docstring_becomes_markdown() -> None:
    def example(colour: str) -> None:
        """Paint it, as `other` says; ``not this``. Two `other`\\ s.

        Args:
          colour: red,
              or `other`.
          size (int): of the brush.

        Returns:
          What `other` returned.

        Raises:
          ValueError: no such colour.
        """

    links = {"other": "page.md#other", "ValueError": "errors.md"}
    assert markdown(inspect.getdoc(example) or "", links.get).split("\n\n") == [
        "Paint it, as [`other`](page.md#other) says; ``not this``. Two [`other`](page.md#other)s.",
        "**Args**",
        "- ``colour``: red,\n  or [`other`](page.md#other).\n- ``size`` (int): of the brush.",
        "**Returns**",
        "What [`other`](page.md#other) returned.",
        "**Raises**",
        "- [`ValueError`](errors.md): no such colour.",
    ]


def test_links_out_of_the_folder_lead_to_pages_that_show_the_file() -> None:
    text = "[a](../README.md#top) `[b](c.md)` [`d`](e.md) [f](https://g)\n```\n[h](i)\n```\n"
    changed, files = rewrite(text, "docs/how-to/page.md", lambda target: target)
    assert changed == text
    assert files == ["docs/README.md", "docs/how-to/e.md"]
    changed, files = rewrite("[a](../../examples/b.py)", "docs/how-to/page.md", str)
    assert (changed, files) == ("[a](../source/examples/b.py.md)", ["examples/b.py"])


def test_the_navigation_is_the_index() -> None:
    index = "# Docs\n\n## Learn\n\n| [One](a/b.md) | x |\n| [Two](../examples) | y |\n\n## Else\n\ntext\n"
    assert navigation(index, ()) == [
        {"awa_trio": "README.md"},
        {"Learn": [{"One": "a/b.md"}, {"Two": "source/examples/README.md"}]},
    ]


def test_a_folder_without_a_readme_is_a_list_of_what_is_in_it(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (tmp_path / "examples" / "deploy").mkdir(parents=True)
    (tmp_path / "examples" / "deploy" / "Dockerfile").write_text("FROM scratch\n")
    docs.mkdir()
    (docs / "README.md").write_text("# Top\n\n[deploy](../examples/deploy)\n")
    (docs / "zensical.toml").write_text("nav = []\n")
    stage(tmp_path, tmp_path / "to", Reference(()))
    pages = tmp_path / "to" / "pages"
    assert "](source/examples/deploy.md)" in (pages / "README.md").read_text()
    listed = (pages / "source" / "examples" / "deploy.md").read_text()
    assert "[examples/deploy/Dockerfile](deploy/Dockerfile.md)" in listed
    assert (
        "FROM scratch"
        in (pages / "source" / "examples" / "deploy" / "Dockerfile.md").read_text()
    )

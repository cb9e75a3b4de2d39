"""The documentation is true: snippets run, and every setting is mentioned.

Commands: `cli.test_looking`.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import attrs
import pytest
from cyclopts import MissingArgumentError

import awa_trio as awa
from awa_trio.cli._main import app as command_line
from awa_trio.testing import memory_client

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def programs(page: Path) -> dict[str, str]:
    """The Python of a page: by its title what is a file, and the rest as one program.

    Blocks marked ``no-run`` are pictures.
    """
    found: dict[str, list[str]] = {}
    fence = re.compile(
        r'^```python(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL
    )
    for title, block in fence.findall(page.read_text()):
        found.setdefault(title or "snippets.py", []).append(block)
    return {
        title: "\n".join(blocks).replace(
            '"postgresql://..."', '__import__("os").environ["AWA_DSN"]'
        )
        for title, blocks in found.items()
    }


RUN = [page for page in PAGES if programs(page)]

#: Pages that have pictures of Python: how the worker is built, files of pytest's, other queues,
#: transactions of other libraries (tests/bridge has them).
PICTURES = {
    "architecture.md",
    "testing.md",
    "from-procrastinate.md",
    "from-awa-pg.md",
    "producers.md",
}


@pytest.mark.parametrize("page", RUN, ids=[str(p.relative_to(ROOT)) for p in RUN])
def test_its_snippets_run(page: Path, migrated: str, tmp_path: Path) -> None:
    for title, text in programs(page).items():
        (tmp_path / title).write_text(text)
        run = (
            ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
            if title.startswith("test_")
            else []
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", *run, title],
            env={**os.environ, "AWA_DSN": migrated},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_python_is_run_unless_it_is_a_picture() -> None:
    """So a fence that is spelled in a way that nobody runs is noticed, too."""
    for page in PAGES:
        fences = re.findall(r"^ *```py.*$", page.read_text(), re.MULTILINE)
        run = [fence for fence in fences if re.fullmatch(r'```python( title="[\w.]+")?', fence)]
        assert len(run) == len(fences) or page.name in PICTURES, page.name


def test_some_snippets_are_there_to_run() -> None:
    assert {page.name for page in RUN} >= {"README.md", "pipeline.md"}


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=[p.name for p in TUTORIALS])
def test_the_files_of_a_tutorial_can_be_typed_as_they_stand(page: Path) -> None:
    """Each has a name, so nobody has to guess; and what a command takes the app from is one."""
    files = programs(page)
    assert "snippets.py" not in files
    served = set(re.findall(r"awa-trio .*?(\w+):app\b", page.read_text()))
    assert {f"{module}.py" for module in served} <= set(files)


def commands() -> list[tuple[str, list[str]]]:
    """Each command of ours that a page types or mentions, and the page; the reference is made from them."""
    found = []
    for page in PAGES:
        text = page.read_text()
        if page.name == "cli.md":
            continue
        typed = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
        mentioned = re.findall(r"`(awa-trio [^`]+)`", text)
        for line in [*typed, *mentioned]:
            for command in re.findall(r"(?:^|[;&|] )(?:[A-Z_]+=\S+ )*awa-trio ([^;&|]*)", line):
                example = re.sub(r"\bID\b", "1", command)
                found.append((page.name, shlex.split(example, comments=True)))
    return found


def test_tables_are_shown_with_the_columns_that_they_have() -> None:
    columns = {
        tuple(getattr(one, "value", None) for one in node.elts)
        for source in (ROOT / "awa_trio" / "cli").glob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Tuple)
    }
    shown = [
        (page.name, tuple(re.split(r" {2,}", heads)))
        for page in PAGES
        for heads in re.findall(r"^((?:id|name) {2,}\w.*)$", page.read_text(), re.MULTILINE)
    ]
    assert len(shown) >= 4
    assert [one for one in shown if one[1] not in columns] == []


def test_every_command_that_is_typed_or_mentioned_would_be_understood() -> None:
    for page, words in commands():
        try:
            command_line.parse_args(words, exit_on_error=False, print_error=False)
        except MissingArgumentError as error:  # `awa-trio worker --telemetry` names an option
            assert {*(error.unused_tokens or ())} <= {error.keyword}, (page, words)
    assert len(commands()) > 100


def test_what_is_mentioned_of_the_client_and_of_the_package_exists() -> None:
    roots = {"client": memory_client(awa.App()), "awa": awa}
    name = re.compile(r"(?<![\w./:-])(client|awa)((?:\.[A-Za-z_]\w*)+)")
    seen = 0
    for page in [ROOT / "README.md", *TUTORIALS, *(ROOT / "docs" / "how-to").glob("*.md")]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        if page.name.startswith("from-"):  # the first cell is of the other queue
            text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
        for code in re.findall(r"`([^`]+)`", text):
            for root, attributes in name.findall(code):
                value: object = roots[root]
                for attribute in attributes.split(".")[1:]:
                    assert hasattr(value, attribute), (page.name, code)
                    value = getattr(value, attribute)
                seen += 1
    assert seen > 30


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_its_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / unquote(target)).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        if name != "README.md" and not name.startswith("adr/0"):
            assert f"]({name})" in index


def test_every_state_and_its_bit_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    for state in awa.JobState:
        held = "yes" if awa.UniqueOpts().states & state.bit else ""
        assert re.search(
            rf"^\| `{state.name}` \| {state.bit} \| {held} ?\|", page, re.MULTILINE
        )


@pytest.mark.parametrize("settings", [awa.QueueSettings, awa.Timings, awa.Retention])
def test_every_setting_and_its_default_is_in_the_reference(settings: type) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    for field in attrs.fields(settings):
        rows = re.findall(rf"^\| `{field.name}` \| ([^|]+) \|", page, re.MULTILINE)
        assert field.default in map(documented, rows), field.name


def documented(default: str) -> float | None:
    """A default as the reference has it: a number, of hours if it says so, or a word of Python's."""
    text = default.strip()
    if text == "None":
        return None
    if text in ("True", "False"):
        return text == "True"
    return float(text.removesuffix(" h")) * (3600 if text.endswith(" h") else 1)


def settable() -> list[tuple[str, str]]:
    """Every parameter by which a program sets something, and what it is a parameter of."""
    functions = {
        "run_worker": awa.run_worker,
        "awa.connect": awa.connect,
        **{f"app.{name}": function for name, function in vars(awa.App).items()},
    }
    return [
        (of, parameter.name)
        for of, function in functions.items()
        if inspect.isroutine(function) and not of.startswith("app._")
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY or of == "awa.connect"
        if parameter.name != "task_status"  # Trio's
    ]


@pytest.mark.parametrize(("of", "parameter"), settable())
def test_every_parameter_is_in_a_section_about_it(of: str, parameter: str) -> None:
    """As the first cell of a row, in a section whose title names the function."""
    found = []
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for section in re.split(r"^(?=##+ )", page.read_text(), flags=re.MULTILINE):
            if f"{of}(" in section.splitlines()[0] or f"@{of}" in section.splitlines()[0]:
                found += re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
                found += re.findall(r"^##+ .*`(\w+)=", section, re.MULTILINE)
    assert any(re.search(rf"\b{parameter}\b", cell) for cell in found)


def test_every_variable_of_the_environment_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    listed = re.findall(r"^\| `(AWA_\w+)` \|", page, re.MULTILINE)
    read = {
        name
        for file in (ROOT / "awa_trio").rglob("*.py")
        for name in re.findall(r"\bAWA_[A-Z_]+\b", file.read_text())
    }
    assert read == set(listed)


@pytest.mark.parametrize("option", sorted(awa.EnqueueOptions.__annotations__))
def test_every_enqueue_option_is_in_the_reference(option: str) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert re.search(rf"`[^`]*\b{option}\b[^`]*`", page)


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "adr" / "README.md").read_text()
    for page in (ROOT / "docs" / "adr").glob("0*.md"):
        assert page.name in listed


def test_every_verb_of_the_justfile_has_a_comment() -> None:
    lines = (ROOT / "justfile").read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if re.match(r"^[a-z][\w-]*( \*?\w+)*:", line):
            assert before.startswith("# "), line


def test_nothing_names_a_machine() -> None:
    """Paths of a developer's machine, and hosts of package registries."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    pattern = re.compile(rb"/" rb"work/|/" rb"root/|pypi\.org/simple|python" rb"hosted")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.exists():
            assert not pattern.search(path.read_bytes()), name

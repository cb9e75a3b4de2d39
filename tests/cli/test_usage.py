"""A command line that makes no sense: one sentence says what is wrong with it, and how to mend it."""

from __future__ import annotations

import typing

import pytest

from awa_trio.cli._main import run
from awa_trio.cli._usage import place

from .pages import commands, options
from .test_commands import Capture

#: What the library says that reads command lines, of types and tokens.
NOT_OURS = ("parameter", "requires", "Invalid value", "Unknown", "Unused", "convert", "Must be")


def said(capsys: Capture, arguments: list[str]) -> str:
    """What is said of a command line that makes no sense."""
    assert run(arguments) == 2, arguments
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    assert not any(word in printed.err for word in NOT_OURS), printed.err
    return printed.err


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: " ".join(command[0]))
def test_every_command_says_how_it_is_given(
    command: tuple[tuple[str, ...], typing.Any],
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWA_APP", raising=False)
    path, app = command
    taken = options(app)
    called = " ".join(path)
    known = [place(one) for one in taken if not one.name.startswith("-")]
    if any(one.required for one in taken):
        text = said(capsys, [*path])
        assert " is missing" in text
        assert f"; give awa-trio {' '.join([called, *known])}" in text
    assert f"--nosuch is no option of {called}; " in said(capsys, [*path, "--nosuch"])
    for one in taken:
        is_option, kinds = one.name.startswith("-"), {one.hint, *typing.get_args(one.hint)}
        if bool not in kinds and is_option:
            assert f"{one.name} has no value; give {one.name} VALUE" in said(
                capsys, [*path, one.name]
            )
        # What is missing is said first.
        others = [other for other in taken if other.required and other is not one]
        if not others and str not in kinds and (is_option or one is taken[0]):
            given = f"{one.name}=nonsense" if is_option else "nonsense"
            assert " nonsense: give " in said(capsys, [*path, given])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("jbos", "jbos is no command; did you mean jobs?"),
        ("jobs zzz", "jobs zzz is no command; awa-trio jobs --help has all"),
        ("--frob", "--frob is no option; awa-trio --help has all"),
        ("jobs list --stat failed", "--stat is no option of jobs list; did you mean --state?"),
        (
            "jobs list failed",
            "failed: this is more than jobs list takes; give awa-trio jobs list",
        ),
        ("jobs list --limit 0", "--limit 0: give a whole number, 1 at least"),
        ("web --port 99999", "--port 99999: give a whole number, 65,535 at most"),
        ("jobs list --kind a --kind b", "--kind is given twice; give it once"),
        ("jobs list --json=maybe", "--json maybe: give no value, or yes or no"),
        ("completion tcsh", "SHELL tcsh: give one of bash, zsh, fish"),
        (
            "cron trigger nightly",
            (
                "--app is missing (MODULE:APP, or FILE.py:APP, which has the schedule and knows what it"
                " enqueues); give awa-trio cron trigger NAME --app VALUE, or set AWA_APP"
            ),
        ),
    ],
)
def test_a_sentence_says_what_is_wrong_and_what_would_be_right(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    monkeypatch.delenv("AWA_APP", raising=False)
    assert said(capsys, arguments.split()) == f"awa-trio: {sentence}\n"

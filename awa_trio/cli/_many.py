"""What is done to many: to each that is named; or to all of a filter, counted first, agreed to, seen
while it goes, and told at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import attrs
import trio
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import AwaError, DatabaseUnavailable
from ._errors import UsageError
from ._exits import FAILED, OK
from ._output import drawn, err, note, print_record, problem, say
from ._signals import until_signalled

#: Counting further would take longer than it is worth: "at least a million" says enough.
MOST = 1_000_000


T = TypeVar("T")


@attrs.frozen
class Asked:
    """How somebody wants it done."""

    dry_run: bool
    """Only count."""
    yes: bool
    """Ask nobody."""
    json: bool
    """Print for programs."""


def check_ways(
    named: bool,
    filtered: bool,
    everything: bool,
    dry_run: bool,
    *,
    filters: str,
    names: str = "IDs",
) -> None:
    """Refuse what does not say in exactly one way which jobs are meant.

    Args:
      named: whether some are named.
      filtered: whether a filter is given.
      everything: whether all are meant.
      dry_run: whether they are only to be counted.
      filters: the options that make a filter.
      names: how some are named.

    Raises:
      UsageError: none does, or several; or nothing is to be counted.
    """
    ways = [named, filtered, everything].count(True)
    if ways != 1:
        say_which = "say which jobs" if ways == 0 else "say which jobs in one way only"
        raise UsageError(f"{say_which}: {names}; or a filter, {filters}; or --all")
    if named and dry_run:
        raise UsageError("--dry-run: only with a filter, or --all")


async def each(targets: Iterable[T], act: Callable[[T], Awaitable[object]]) -> int:
    """Do something to each that is named, also if it cannot be done to one; return the exit code.

    Raises:
      DatabaseUnavailable: PostgreSQL could not be reached, so that the rest is in vain.
    """
    code = OK
    for target in targets:
        try:
            await act(target)
        except DatabaseUnavailable:
            raise
        except AwaError as error:
            problem(str(error))
            code = FAILED
    return code


async def sweep(
    asked: Asked,
    noun: str,
    verb: str,
    past: str,
    count: Callable[[], Awaitable[int]],
    run: Callable[[Callable[[int], object]], Awaitable[tuple[int, int]]],
) -> int:
    """Do something to many; return the exit code.

    Args:
      asked: how.
      noun: what they are, as in ``"job"``.
      verb: what is done, as in ``"cancel"``.
      past: what was done, as in ``"cancelled"``.
      count: counts them, up to `MOST`.
      run: does it, tells a function how many are done, and returns how many were, and how
          many were left as they are.

    Raises:
      UsageError: nobody can be asked.
      Exception: what ``run`` raised, after it was told how far that came.
    """
    found = await count()
    if asked.dry_run:
        if asked.json:
            print_record({"dry_run": True, "matching": found})
        else:
            say(f"would {verb} {how_many(found, noun)}")
        return OK
    if found and not asked.yes:
        code = await _ask(f"{verb} {how_many(found, noun)}?")
        if code != OK:
            note("nothing was done")
            return code
    seen = 0
    done: tuple[int, int] | None = None
    failure: Exception | None = None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with drawn(Progress(*columns, console=err, transient=True)) as bars:
        bar = bars.add_task(past, total=found)

        def watch(number: int) -> None:
            nonlocal seen
            seen = number
            bars.update(bar, completed=number, total=max(found, number))

        async def work() -> None:
            nonlocal done, failure
            try:
                done = await run(watch)
            except Exception as error:
                failure = error

        signalled = await until_signalled(work)
    if done is not None:
        _tell(asked, noun, past, *done, whole=True)
        return OK
    # What was under way is in no count: it was taken back, or its answer was lost.
    if seen or failure is None:
        _tell(asked, noun, past, seen, 0, whole=False)
    if failure is not None:
        raise failure
    return 128 + (signalled or 0)


def how_many(count: int, noun: str) -> str:
    """Return a number of things: ``"1 job"``, ``"2 jobs"``."""
    least = "at least " if count >= MOST else ""
    return f"{least}{count:,} {noun}{'' if count == 1 else 's'}"


def _tell(asked: Asked, noun: str, past: str, done: int, left: int, *, whole: bool) -> None:
    if asked.json:
        print_record({"done": done, "left": left, "whole": whole})
        return
    say(f"{past} {how_many(done, noun)}")
    if left:
        them = "it has" if left == 1 else "they have"
        say(
            f"left {how_many(left, noun)} alone: {them} moved on meanwhile, or another job holds"
            " the unique key"
        )
    if not whole:
        note("that is not all; the same command goes on with the rest")


async def _ask(question: str) -> int:
    """Ask a question; return 0 if the answer is yes, else an exit code.

    Raises:
      UsageError: there is nobody to ask.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "this would be done to many, and there is no terminal to ask at: give --yes, or"
            " --dry-run to see how many"
        )
    answer = ""

    async def ask() -> None:
        nonlocal answer
        err.print(f"{question} \\[y/N] ", end="")
        # A thread, so that a signal is heard while nobody answers.
        answer = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)

    number = await until_signalled(ask)
    if number is not None:
        err.print()
        return 128 + number
    return OK if answer.strip().lower() in ("y", "yes") else FAILED

"""What is done to many at once: counted first, agreed to, seen while it goes, and told at its end."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import attrs
import trio
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ._errors import UsageError
from ._exits import OK
from ._output import err, note, print_record, say
from ._signals import until_signalled

#: Counting further would take longer than it is worth: "at least a million" says enough.
MOST = 1_000_000


@attrs.frozen
class Asked:
    """How somebody wants it done."""

    dry_run: bool
    """Only count."""
    yes: bool
    """Ask nobody."""
    json: bool
    """Print for programs."""


async def sweep(
    asked: Asked,
    noun: str,
    infinitive: str,
    participle: str,
    count: Callable[[], Awaitable[int]],
    run: Callable[[Callable[[int], object]], Awaitable[tuple[int, int]]],
) -> int:
    """Do something to many; return the exit code.

    Args:
      asked: how.
      noun: what they are, as in ``"job"``.
      infinitive: what is done, as in ``"cancel"``.
      participle: what they are then, as in ``"cancelled"``.
      count: counts them, up to `MOST`.
      run: does it, tells a function how many are done, and returns how many were, and how
          many were left as they are.

    Raises:
      UsageError: nobody can be asked.
    """
    found = await count()
    if asked.dry_run:
        if asked.json:
            print_record({"dry_run": True, "matching": found})
        else:
            say(f"{how_many(found, noun)} would be {participle}")
        return OK
    if found and not asked.yes and not await _agreed(f"{infinitive} {how_many(found, noun)}?"):
        note("nothing was done")
        return 1
    seen = 0
    done: tuple[int, int] | None = None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task(participle, total=found)

        def watch(number: int) -> None:
            nonlocal seen
            seen = number
            bars.update(bar, completed=number, total=max(found, number))

        async def work() -> None:
            nonlocal done
            done = await run(watch)

        number = await until_signalled(work)
    if done is None:
        # What was under way when the signal came was taken back, or is in the count of nobody.
        _tell(asked, noun, participle, seen, 0, interrupted=True)
        return 128 + (number or 0)
    _tell(asked, noun, participle, *done, interrupted=False)
    return OK


def how_many(count: int, noun: str) -> str:
    """Return a number of things: ``"1 job"``, ``"2 jobs"``."""
    least = "at least " if count >= MOST else ""
    return f"{least}{count:,} {noun}{'' if count == 1 else 's'}"


def _tell(
    asked: Asked, noun: str, participle: str, done: int, left: int, *, interrupted: bool
) -> None:
    if asked.json:
        print_record({"done": done, "left": left, "interrupted": interrupted})
        return
    verb = "is" if done == 1 else "are"
    say(f"{how_many(done, noun)} {verb} {participle}")
    if left:
        say(
            f"{how_many(left, noun)} {'was' if left == 1 else 'were'} left as they are: moved"
            " meanwhile, or with a unique key that another job holds"
        )
    if interrupted:
        note("interrupted; the same command goes on with the rest")


async def _agreed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "this would be done to many, and there is no terminal to ask at: give --yes, or"
            " --dry-run to see how many"
        )
    err.print(f"{question} \\[y/N] ", end="")
    answer = ""

    async def ask() -> None:
        nonlocal answer
        # A thread, so that a signal is heard while nobody answers.
        answer = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)

    if await until_signalled(ask) is not None:
        err.print()
    return answer.strip().lower() in ("y", "yes")

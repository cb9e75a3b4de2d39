"""``python -m tests.model [--deep] [WORD ...]``: the table in docs/model/README.md.

Prints a row for each configuration whose name has one of the words in it. The exit code is 1
if TLC says of one what is not expected of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .models import cases


def main(arguments: Sequence[str]) -> int:
    """Check, and print what came of it."""
    words = [word for word in arguments if word != "--deep"]
    wrong = 0
    for case in cases(deep="--deep" in arguments):
        if words and not any(word in case.id for word in words):
            continue
        done = case.check(workers=2, seconds=600)
        print(f"| {case.model.module} {case.row(done)}", flush=True)
        if done.violated != case.violated or (
            case.violated is None and case.states != done.distinct
        ):
            print(done.output, file=sys.stderr)
            wrong += 1
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

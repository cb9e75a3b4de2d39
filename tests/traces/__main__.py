"""``python -m tests.traces FILE``: whether recorded events fit the models."""

from __future__ import annotations

import sys
from pathlib import Path

from . import check, load


def main(path: str) -> int:
    """Check a file, and say what came of it."""
    verdict = check(load(Path(path)))
    print(verdict)
    return 0 if verdict.misfit is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

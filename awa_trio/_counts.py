"""How far jobs are counted, and how a count reads.

No layer, as `_times`: the store is asked for so many, and the surfaces say where it ended.
"""

from __future__ import annotations

#: Jobs of one sort that are counted: whoever waits behind so many does not care how many more,
#: and what a count costs must not depend on how long a queue is.
MOST_COUNTED = 10_000


def counted(number: int, most: int | None = MOST_COUNTED) -> str:
    """Return a count with its thousands apart; ``10,000+`` where counting ended.

    Args:
      number: how many were counted.
      most: where it ended; None if it did not.
    """
    return f"{number:,}" if most is None or number < most else f"{most:,}+"

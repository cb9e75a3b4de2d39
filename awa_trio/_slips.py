"""What somebody may have meant who named what there is not.

No layer, as `_times`: errors, the command line and the core suggest alike.
"""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """Return the names that somebody may have meant, the likeliest first; often none."""
    import difflib  # Of no use to a program without a slip.

    return difflib.get_close_matches(name, list(known), cutoff=cutoff)

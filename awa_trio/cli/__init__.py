"""The command line, ``awa-trio``: over the public names, each command a Trio task.

Exit codes: 0, it is done; 1, it could not be done, and the message says why; 2, the
command line makes no sense; 3, the database could not be reached; 4, its schema is not
the one this release works with; 130 and 143, stopped at once by a second signal.
"""

from ._main import main as main

"""The demo: what the standard library imports, found out by jobs.

Stage A, one job per source file, parses it and stages one follow-up per module that it
imports. Stage B, one job per distinct module however many files import it, records the
module's size. The result is checked against a plain computation in one process.
"""

from ._run import Progress as Progress
from ._run import Summary as Summary
from ._run import run_demo as run_demo

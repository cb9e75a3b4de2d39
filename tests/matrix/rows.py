"""What is combined with what."""

from __future__ import annotations

import enum

from attrs import frozen


class Packages(enum.StrEnum):
    """Which versions of what the package depends on."""

    NEWEST = "newest"
    OLDEST = "oldest"


@frozen
class Row:
    """One combination to run the tests in."""

    name: str
    python: str = "3.11"
    packages: Packages = Packages.NEWEST
    server: str = "18"
    """PostgreSQL's major version."""
    pooled: bool = False
    """Whether a PgBouncer in transaction mode is in front of it."""
    engine: str = "canonical"


#: Each differs from the first in one thing, so that what fails says what does not work; but
#: for one, which has all that is oldest at once.
ROWS = (
    Row("newest"),
    Row("oldest", packages=Packages.OLDEST),
    Row("oldest-15", packages=Packages.OLDEST, server="15"),
    Row("python-3.12", python="3.12"),
    Row("python-3.13", python="3.13"),
    Row("python-3.14", python="3.14"),
    Row("postgresql-15", server="15"),
    Row("postgresql-16", server="16"),
    Row("postgresql-17", server="17"),
    Row("segmented", engine="segmented"),
    Row("pooler", pooled=True),
    Row("pooler-segmented", pooled=True, engine="segmented"),
)

#: With ``--quick``: what depends most on the Python, the packages and the server.
QUICK = (
    "tests/core",
    "tests/pg/test_cancellation.py",
    "tests/pg/test_connection.py",
    "tests/pg/test_connection_cursors.py",
    "tests/pg/test_connection_faults.py",
    "tests/pg/test_copy.py",
    "tests/pg/test_selfcheck.py",
    "tests/runtime/test_commit_table_on_canonical.py",
    "tests/runtime/test_commit_table_on_segmented.py",
    "tests/runtime/test_threads.py",
    "tests/stores/test_sql.py",
)

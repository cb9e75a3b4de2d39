"""Databases that tests use one after the other, because making one takes longer than most tests."""

from __future__ import annotations

from collections import defaultdict

import psycopg
from attrs import define, field
from psycopg import sql
from psycopg.conninfo import make_conninfo

from awa_trio.testing.fixtures import create_database, drop_database

#: What tells a database whose definitions are as they were from any other: where the rows of
#: its catalogs are that are not PostgreSQL's own, and which transactions wrote them.
_DEFINITIONS = """
SELECT md5(string_agg(d.was, ' ' ORDER BY d.was))
  FROM (SELECT 'class ' || c.oid || c.xmin FROM pg_class AS c WHERE c.oid >= 16384
         UNION ALL
        SELECT 'toast ' || count(*) FROM pg_class AS c WHERE c.oid < 16384
         UNION ALL
        SELECT 'attribute ' || a.attrelid || a.attnum || a.xmin FROM pg_attribute AS a
         WHERE a.attrelid >= 16384
         UNION ALL
        SELECT 'default ' || o.oid || o.xmin FROM pg_attrdef AS o
         UNION ALL
        SELECT 'proc ' || o.oid || o.xmin FROM pg_proc AS o WHERE o.oid >= 16384
         UNION ALL
        SELECT 'type ' || o.oid || o.xmin FROM pg_type AS o WHERE o.oid >= 16384
         UNION ALL
        SELECT 'constraint ' || o.oid || o.xmin FROM pg_constraint AS o WHERE o.oid >= 16384
         UNION ALL
        SELECT 'trigger ' || o.oid || o.xmin FROM pg_trigger AS o
         UNION ALL
        SELECT 'event trigger ' || o.oid || o.xmin FROM pg_event_trigger AS o
         UNION ALL
        SELECT 'schema ' || o.oid || o.xmin FROM pg_namespace AS o WHERE o.nspname !~ '^pg_(toast_)?temp_'
         UNION ALL
        SELECT 'extension ' || o.oid || o.xmin FROM pg_extension AS o
         UNION ALL
        SELECT 'rights ' || o.oid || o.xmin FROM pg_default_acl AS o
         UNION ALL
        SELECT 'settings ' || o.setdatabase || o.setrole || o.xmin FROM pg_db_role_setting AS o
          JOIN pg_database AS d ON d.oid = o.setdatabase AND d.datname = current_database()
         UNION ALL
        SELECT 'database ' || o.oid || o.xmin FROM pg_database AS o
         WHERE o.datname = current_database()
         UNION ALL
        -- Plans may depend on them.
        SELECT 'statistics ' || count(*) FROM pg_statistic AS s WHERE s.starelid >= 16384
         UNION ALL
        SELECT 'prepared ' || p.gid FROM pg_prepared_xacts AS p
         WHERE p.database = current_database()) AS d (was)
"""

_TABLES = """
SELECT c.oid::regclass::text
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = 'awa' AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0
"""

_SEQUENCES = """
SELECT s.seqrelid::regclass::text, coalesce(q.last_value, s.seqstart), q.last_value IS NOT NULL
  FROM pg_sequence AS s
  JOIN pg_class AS c ON c.oid = s.seqrelid
  JOIN pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_sequences AS q ON q.schemaname = n.nspname AND q.sequencename = c.relname
"""


@define
class Contents:
    """The rows of a template, to begin with them again."""

    rows: dict[str, bytes]
    """Of each table with any, as COPY writes them."""
    sequences: list[tuple[str, int, bool]]


@define
class Databases:
    """Databases with the schema of a template and its rows, handed to one test after another.

    One whose definitions were changed is not handed out again. That of the template must not
    change while this lives.
    """

    server: str
    """A DSN whose role may create databases."""
    keep: bool
    """Whether to leave what there is in the end: with a server that ends then, it goes anyway."""
    _made: set[str] = field(factory=set)
    _free: defaultdict[str, list[str]] = field(factory=lambda: defaultdict(list))
    _contents: dict[str, Contents] = field(factory=dict)
    _definitions: dict[str, str] = field(factory=dict)

    def __enter__(self) -> Databases:
        """Return this."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove all of them, unless they are to be kept."""
        for name in [] if self.keep else list(self._made):
            self._remove(name)

    def take(self, template: str) -> str:
        """Return the name of a database that is as its template."""
        if template not in self._contents:
            with self._to(template) as connection:
                self._contents[template] = _contents(connection)
        while self._free[template]:
            name = self._free[template].pop()
            if self._restored(name, self._contents[template]):
                return name
            self._remove(name)
        # Not for a block: one that is never left ends when it is collected, and a database
        # that is kept has no server by then.
        name = create_database(self.server, template=template)
        self._made.add(name)
        with self._to(name) as connection:
            self._definitions[name] = _definitions(connection)
        return name

    def give_back(self, template: str, name: str) -> None:
        """Take a database back, and let nobody be connected to it."""
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(a.pid, 5000) FROM pg_stat_activity AS a"
                " WHERE a.datname = %s",
                [name],
            )
        self._free[template].append(name)

    def _remove(self, name: str) -> None:
        self._made.remove(name)
        drop_database(self.server, name)

    def _to(self, name: str) -> psycopg.Connection:
        return psycopg.connect(make_conninfo(self.server, dbname=name), autocommit=True)

    def _restored(self, name: str, contents: Contents) -> bool:
        try:
            with self._to(name) as connection:
                if _definitions(connection) != self._definitions[name]:
                    return False
                _restore(connection, contents)
                self._definitions[name] = _definitions(connection)
        except psycopg.OperationalError:  # renamed, dropped, or closed to us
            return False
        return True


def _definitions(connection: psycopg.Connection) -> str:
    row = connection.execute(_DEFINITIONS).fetchone()
    assert row is not None
    return str(row[0])


def _contents(connection: psycopg.Connection) -> Contents:
    rows = {}
    for (table,) in connection.execute(_TABLES).fetchall():
        with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
            rows[table] = b"".join(bytes(part) for part in copy)
    return Contents(rows, connection.execute(_SEQUENCES).fetchall())


def _restore(connection: psycopg.Connection, contents: Contents) -> None:
    with connection.transaction():
        tables = [table for (table,) in connection.execute(_TABLES).fetchall()]
        if tables:
            # Their files are new afterwards: no test reads what another left.
            connection.execute(
                sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(map(sql.SQL, tables)))
            )
        for table, rows in contents.rows.items():
            with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                copy.write(rows)
        for sequence in contents.sequences:
            connection.execute("SELECT setval(%s::regclass, %s, %s)", sequence)

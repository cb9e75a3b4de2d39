"""The programs of the guides that move jobs from another queue, on tables such as it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from .test_docs import ROOT, programs

#: What they read of procrastinate's table, and of the ancestor's view.
PROCRASTINATE = """
CREATE TABLE procrastinate_jobs (
    id bigserial PRIMARY KEY, queue_name text, task_name text, priority int DEFAULT 0,
    lock text, args jsonb, status text DEFAULT 'todo', scheduled_at timestamptz
);
INSERT INTO procrastinate_jobs (queue_name, task_name, priority, lock, args, scheduled_at, status)
VALUES
    ('email', 'shop.send_digest', 0, NULL, '{"user_id": 1, "day": "a"}', NULL, 'todo'),
    ('bulk', 'shop.send_digest', 5, 'u2', '{"user_id": 2, "day": "b"}', '2100-01-01', 'todo'),
    ('email', 'shop.send_digest', 0, NULL, '{"user_id": 3, "day": "c"}', NULL, 'doing'),
    ('email', 'shop.of_another', 0, NULL, '{}', NULL, 'todo');
"""
ANCESTOR = """
CREATE SCHEMA awa;
CREATE TABLE awa.jobs (
    id bigserial PRIMARY KEY, kind text, queue text, args jsonb, priority int DEFAULT 2,
    max_attempts int DEFAULT 25, run_at timestamptz DEFAULT '2100-01-01', tags text[],
    metadata jsonb, state text
);
INSERT INTO awa.jobs (kind, queue, args, tags, metadata, state) VALUES
    ('send_email', 'email', '{"to": "a", "subject": "b"}', '{t}', '{"m": 1, "awa:x": 2}', 'scheduled'),
    ('send_email', 'email', '{"to": "c", "subject": "d"}', '{}', '{}', 'completed'),
    ('of_another', 'email', '{}', '{}', '{}', 'available');
"""


def run(guide: str, folder: Path, **environment: str) -> str:
    program = folder / "move.py"
    program.write_text(programs(ROOT / "docs" / "how-to" / guide)["snippets.py"])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def moved(dsn: str, key: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT args, queue, priority, ordering_key, tags, run_at > now() FROM awa.jobs"
            " WHERE metadata::jsonb ? %s ORDER BY id",
            [key],
        ).fetchall()


def test_from_procrastinate(canonical: str, tmp_path: Path) -> None:
    with psycopg.connect(canonical) as connection:
        connection.execute(PROCRASTINATE)
    assert run("from-procrastinate.md", tmp_path, AWA_DSN=canonical) == "2 jobs moved"
    assert [row[:4] + row[5:] for row in moved(canonical, "procrastinate_id")] == [
        ({"user_id": 1, "day": "a"}, "email", 2, None, False),
        ({"user_id": 2, "day": "b"}, "bulk", 1, "u2", True),
    ]
    with psycopg.connect(canonical) as connection:
        left = connection.execute(
            "SELECT status FROM procrastinate_jobs ORDER BY id"
        ).fetchall()
    assert left == [("cancelled",), ("cancelled",), ("doing",), ("todo",)]


def test_from_the_ancestor(migrated: str, dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(ANCESTOR)
    both = {"AWA_DSN": migrated, "OLD_DSN": dsn}
    assert run("from-awa-pg.md", tmp_path, **both) == "1 jobs copied"
    assert run("from-awa-pg.md", tmp_path, **both) == "0 jobs copied"
    assert moved(migrated, "awa_pg_id") == [
        ({"to": "a", "subject": "b"}, "email", 2, None, ["t"], True)
    ]

"""Our own figures: how fast, and at what cost, on a server of the benchmark's own.

``python -m tests.bench`` starts PostgreSQL with durable settings (fsync and
synchronous_commit on), runs every measure several times, interleaved, each in a fresh
process and a fresh database, and prints medians.
"""

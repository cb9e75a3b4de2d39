"""Stores: what keeps the jobs. SQL and the thin class that calls it; a store in memory."""

"""Tests of PostgreSQL on Trio; a package, so that they can share `proxy`."""

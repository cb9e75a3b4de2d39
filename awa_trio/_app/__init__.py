"""Wiring: the app, the client, and how they get to a database and to each other."""

"""PostgreSQL on Trio: what awa_trio needs from a driver, and knows no jobs.

`connection` is psycopg's connection on Trio; `resolve` finds the hosts it connects to;
`selfcheck` refuses a psycopg it was not made for. The rest is built on these, and the
public names are in `awa_trio.pg`.
"""

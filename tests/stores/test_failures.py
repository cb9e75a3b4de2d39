"""What the driver's errors mean to the runtime, for those that no test can bring about at will."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from awa_trio._seam.errors import Lasting, Rejected, Transient
from awa_trio._store.failures import store_error


@pytest.mark.parametrize(
    "error",
    [
        errors.DuplicatePreparedStatement("exists"),
        errors.InvalidSqlStatementName("?"),
        errors.ProtocolViolation("bind message supplies 14 parameters, but ... requires 0"),
    ],
)
def test_a_statement_that_is_not_prepared_here_is_no_jobs_fault(error: psycopg.Error) -> None:
    """Behind a pooler in transaction mode a settlement would fail its job for good."""
    found = store_error(error)
    assert type(found) is Transient
    assert "leave out prepare=True" in str(found)
    assert "leave out prepare=True" in found.headline


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (errors.InvalidSchemaName(""), Lasting.SCHEMA),
        (errors.UndefinedFunction(""), Lasting.SCHEMA),
        (errors.UndefinedTable(""), Lasting.SCHEMA),
        (errors.InvalidCatalogName(""), Lasting.DATABASE),
        (errors.InsufficientPrivilege(""), Lasting.RIGHTS),
        (errors.RaiseException(""), None),
        (errors.AdminShutdown(""), None),
    ],
)
def test_what_will_not_come_back_by_itself(
    error: psycopg.Error, lasting: Lasting | None
) -> None:
    assert store_error(error).lasting is lasting


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection unexpectedly"),
        psycopg.InterfaceError("the connection is closed"),
        psycopg.InternalError("received 2 results from command 'COMMIT'"),
    ],
)
def test_a_connection_that_was_lost_is_no_jobs_fault(error: psycopg.Error) -> None:
    """A pooler's error comes before the end of the connection, as an answer too many."""
    assert type(store_error(error)) is Transient


def test_a_database_that_is_not_there(awa_server: str) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(awa_server, dbname="never created")
    found = store_error(caught.value)
    assert (type(found), found.lasting) == (Transient, Lasting.DATABASE)


def test_a_server_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(host=str(tmp_path), dbname="any")
    found = store_error(caught.value)
    assert (type(found), found.lasting) == (Transient, None)
    assert not isinstance(found, Rejected)

"""Which user PostgreSQL runs as."""

from __future__ import annotations

import pytest

from awa_trio._pg.server_errors import DevServerError
from awa_trio._pg.server_identity import Account, Identity, choose_identity

ROOT = Account("root", 0, 0)
ALICE = Account("alice", 1000, 100)
NOBODY = Account("nobody", 65534, 65533)
POSTGRES = Account("postgres", 101, 104)
AS_NOBODY = ("unshare", "-U", "--map-user=65534", "--map-group=65533")


@pytest.mark.parametrize(
    ("me", "data", "can_map", "identity"),
    [
        (ALICE, None, True, Identity(1000, 100)),
        (ALICE, ALICE, True, Identity(1000, 100)),
        (ROOT, None, True, Identity(0, 0, prefix=AS_NOBODY)),
        (ROOT, ROOT, True, Identity(0, 0, prefix=AS_NOBODY)),
        (ROOT, None, False, Identity(65534, 65533, switch=True)),
        (ROOT, NOBODY, True, Identity(65534, 65533, switch=True)),
        (ROOT, ALICE, False, Identity(1000, 100, switch=True)),
    ],
    ids=[
        "a user is itself",
        "a user has data",
        "root, in a namespace",
        "root has data",
        "root, where namespaces are barred",
        "root, who made the data where namespaces were barred",
        "root, with a user's data",
    ],
)
def test_who_runs_postgres(
    me: Account, data: Account | None, can_map: bool, identity: Identity
) -> None:
    chosen = choose_identity(
        me=me, data=data, accounts=[ROOT, ALICE, NOBODY], can_map=lambda account: can_map
    )

    assert chosen == identity


@pytest.mark.parametrize(
    ("accounts", "uid"),
    [([ROOT, ALICE, NOBODY, POSTGRES], 101), ([ROOT, ALICE, NOBODY], 65534), ([ALICE], 1000)],
)
def test_root_becomes_the_least_surprising_user(accounts: list[Account], uid: int) -> None:
    chosen = choose_identity(
        me=ROOT, data=None, accounts=accounts, can_map=lambda account: False
    )

    assert chosen.process_user == {
        "user": uid,
        "group": chosen.group,
        "extra_groups": (),
    }


@pytest.mark.parametrize(
    ("me", "data", "accounts", "problem"),
    [
        (ALICE, NOBODY, [], "belongs to user ID 65534 and this is user ID 1000"),
        (ALICE, ROOT, [], "belongs to user ID 0 and this is user ID 1000"),
        (ROOT, ROOT, [NOBODY], "in a user namespace"),
        (ROOT, None, [ROOT], "no other user"),
    ],
)
def test_data_that_this_process_cannot_run_is_refused(
    me: Account, data: Account | None, accounts: list[Account], problem: str
) -> None:
    with pytest.raises(DevServerError, match=problem):
        choose_identity(me=me, data=data, accounts=accounts, can_map=lambda account: False)


def test_a_user_becomes_nobody_else() -> None:
    assert Identity(1000, 100).process_user == {}

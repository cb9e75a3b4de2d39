"""Which user PostgreSQL runs as. It refuses to run as root, and development often is root.

Root has two ways out, and neither makes a user or changes a file it did not
make. In a user namespace, root's processes believe that they are somebody else
while their files stay root's: nothing else about the machine changes. Where
namespaces are barred, as in many containers, PostgreSQL runs as an unprivileged
user that exists already, who must then be able to reach the folder.
"""

from __future__ import annotations

import functools
import os
import pwd
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from attrs import frozen

from awa_trio._pg.server_errors import DevServerError


class ProcessUser(TypedDict, total=False):
    """The part of `subprocess.Popen`'s arguments that says who runs the program."""

    user: int
    group: int
    extra_groups: Sequence[int]


@frozen
class Account:
    """A line of the user database."""

    name: str
    uid: int
    gid: int


@frozen
class Identity:
    """Who runs PostgreSQL."""

    owner: int
    """The user ID that owns its files, seen from here."""
    group: int
    """The group ID of its files."""
    prefix: tuple[str, ...] = ()
    """What to put in front of a command."""
    switch: bool = False
    """Whether the process must become `owner`; else it runs as this process's user."""

    @property
    def process_user(self) -> ProcessUser:
        """Arguments for `subprocess.Popen`."""
        if not self.switch:
            return {}
        return {"user": self.owner, "group": self.group, "extra_groups": ()}


def choose_identity(
    *,
    me: Account,
    data: Account | None,
    accounts: Sequence[Account],
    can_map: Callable[[Account], bool],
) -> Identity:
    """Who shall run PostgreSQL.

    Args:
      me: this process's effective user and group.
      data: who owns the data directory; None if it does not exist yet.
      accounts: the machine's users.
      can_map: whether root may start processes that take themselves for a user.

    Raises:
      DevServerError: this process cannot run that data directory.
    """
    if me.uid != 0:
        if data is not None and data.uid != me.uid:
            raise DevServerError(
                f"the data directory belongs to user ID {data.uid} and this is user ID"
                f" {me.uid}; run as its owner, or choose another folder"
            )
        return Identity(me.uid, me.gid)
    if data is not None and data.uid != 0:
        return Identity(data.uid, data.gid, switch=True)
    account = _unprivileged(accounts)
    if can_map(account):
        # initdb looks its user up by ID, so the one it is given must have a name.
        mapped = (f"--map-user={account.uid}", f"--map-group={account.gid}")
        return Identity(me.uid, me.gid, prefix=("unshare", "-U", *mapped))
    if data is not None:
        raise DevServerError(
            "the data directory belongs to root, who may run PostgreSQL in a user namespace"
            " only, and this system bars them; choose another folder"
        )
    return Identity(account.uid, account.gid, switch=True)


def find_identity(data: Path) -> Identity:
    """Who shall run PostgreSQL on a data directory, which need not exist yet.

    Raises:
      DevServerError: this process cannot run it.
    """
    try:
        status = os.lstat(data)
        owner = Account("", status.st_uid, status.st_gid)
    except FileNotFoundError:
        owner = None
    return choose_identity(
        me=Account("", os.geteuid(), os.getegid()),
        data=owner,
        accounts=_accounts() if os.geteuid() == 0 else (),
        can_map=can_map_users,
    )


@functools.lru_cache
def can_map_users(account: Account) -> bool:
    """Whether this process may start others that take themselves for a user; tried, not guessed."""
    mapped = (f"--map-user={account.uid}", f"--map-group={account.gid}")
    try:
        tried = subprocess.run(
            ["unshare", "-U", *mapped, "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


@functools.lru_cache
def _accounts() -> Sequence[Account]:
    return [Account(entry.pw_name, entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()]


def _unprivileged(accounts: Sequence[Account]) -> Account:
    by_name = {account.name: account for account in accounts if account.uid != 0}
    for name in ("postgres", "nobody", *by_name):
        if name in by_name:
            return by_name[name]
    raise DevServerError(
        "PostgreSQL does not run as root, and this system has no other user; make one"
    )

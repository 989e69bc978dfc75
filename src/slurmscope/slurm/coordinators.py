# SPDX-License-Identifier: Apache-2.0
"""Query sacctmgr for coordinators: the accounts of a user, accounts below those included, and the coordinators of each
account.

::

    physics|ada,grace
    chemistry|

::

    labalice|chemistry,physics,optics
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurmscope.core.errors import MalformedAnswer
from slurmscope.slurm.command import RunCommand

COMMAND = "sacctmgr"

# What a user can be called; sacctmgr would take commas and signs as more names or other conditions.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}\Z")


def arguments(user: str) -> tuple[str, ...]:
    """Return the arguments of sacctmgr; ``user`` is one that :func:`is_possible_user` accepts."""
    return (
        "--readonly",
        "--noheader",
        "--parsable2",
        "show",
        "user",
        f"name={user}",
        "withcoord",
        "format=User,Coordinators",
    )


def is_possible_user(user: str) -> bool:
    """Return whether Slurm can know a user of this name."""
    return _USER.match(user) is not None


def parse_coordinated(answer: bytes, user: str) -> frozenset[str]:
    """Read the accounts of this very user; no row is no account."""
    accounts: set[str] = set()
    for row in answer.decode("utf-8", "replace").splitlines():
        name, separator, listed = row.partition("|")
        if not separator or "|" in listed:
            raise MalformedAnswer("sacctmgr: a row does not have the two requested columns")
        if name == user:
            accounts.update(account for account in listed.split(",") if account)
    return frozenset(accounts)


def read_coordinated(run: RunCommand, user: str) -> frozenset[str]:
    """Return the accounts that a user coordinates; raises CommandError when sacctmgr fails."""
    if not is_possible_user(user):
        return frozenset()
    return parse_coordinated(run(COMMAND, arguments(user)), user)


ARGUMENTS = ("--readonly", "--noheader", "--parsable2", "show", "account", "withcoord", "format=Account,Coordinators")


def parse_coordinators(answer: bytes) -> Mapping[str, tuple[str, ...]]:
    """Read the coordinators by account; accounts without any are not in it."""
    coordinators: dict[str, tuple[str, ...]] = {}
    for row in answer.decode("utf-8", "replace").splitlines():
        account, separator, listed = row.partition("|")
        if not separator or "|" in listed:
            raise MalformedAnswer("sacctmgr: a row does not have the two requested columns")
        if users := tuple(dict.fromkeys(user for user in listed.split(",") if user)):
            coordinators[account] = users
    return coordinators


def read_coordinators(run: RunCommand) -> Mapping[str, tuple[str, ...]]:
    """Return the coordinators by account; raises CommandError when sacctmgr fails."""
    return parse_coordinators(run(COMMAND, ARGUMENTS))

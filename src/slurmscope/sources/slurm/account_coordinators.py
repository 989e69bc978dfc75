# SPDX-License-Identifier: Apache-2.0
"""Query sacctmgr for the coordinators of each account.

::

    physics|ada,grace
    chemistry|
"""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.errors import MalformedAnswer
from slurmscope.sources.slurm.commands import RunCommand

COMMAND = "sacctmgr"
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

# SPDX-License-Identifier: Apache-2.0
"""Answer like sacctmgr 22.05: ``show stats``, ``show configuration``, ``show cluster``, ``show event`` of a node, and
which accounts a user coordinates.

Known options: ``-r -n -P -V``. Nothing can be changed. The first user of the cluster
coordinates the first account.
"""

from __future__ import annotations

import getopt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slurmscope.simulator.commands.listing import (
    Command,
    CommandResult,
    ReadColumn,
    UsageError,
    encode,
    refuse,
    version_answer,
)
from slurmscope.simulator.commands.node_fields import long_state

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedNode


_NAME = "sacctmgr"
_REPORT = "report"
_COORDINATORS = "coordinators"
_EVENTS = "events"
_CLUSTER = "cluster"
_CONFIGURATION = (
    b"Configuration data as of now\nPrivateData            = none\n\nSlurmDBD configuration:\n"
    b"PrivateData            = none\nSlurmUser              = slurm(64030)\n"
)


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return the whole report, or one row for each user."""
    from slurmscope.simulator.cluster.daemons import make_database_report

    if name == _REPORT:
        return [encode(make_database_report(cluster))]
    if name == _CLUSTER:
        return [encode(cluster.name)]
    if name == _EVENTS:
        return [encode(_event(node)) for node in cluster.nodes if node.reason]
    first = ",".join(cluster.accounts[:1])
    return [encode(f"{user.name}|{'' if number else first}") for number, user in enumerate(cluster.users)]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:  # noqa: ARG001
    """Answer ``show stats``, ``show configuration`` and coordinator queries; refuse anything else."""
    try:
        options, words = getopt.gnu_getopt(list(argv), "rnPV", ["readonly", "noheader", "parsable2", "version"])
        if any(option in ("-V", "--version") for option, _ in options):
            return version_answer()
        return 0, _answer(read, words), b""
    except (getopt.GetoptError, UsageError) as error:
        return refuse(_NAME, error)


def _answer(read: ReadColumn, words: Sequence[str]) -> bytes:
    asked = [word.lower() for word in words]
    if asked in (["show", "stats"], ["list", "stats"]):
        return b"".join(read(_REPORT))
    if asked == ["show", "configuration"]:
        return _CONFIGURATION
    if asked == ["show", "cluster", "format=cluster"]:
        return read(_CLUSTER)[0] + b"\n"
    return _events(read, words[3:]) if asked[:3] == ["show", "event", "where"] else _coordinated(read, words)


def _event(node: SimulatedNode) -> str:
    """Return the event of a node that is down or drained now, after its name."""
    user = "root(0)" if node.reason_user is None else f"{node.reason_user.name}({node.reason_user.uid})"
    state = long_state(node.base, node.flags).upper()
    return f"{node.name}|{node.reason_time}|Unknown|{state}|{user}|{node.reason}"


def _events(read: ReadColumn, conditions: Sequence[str]) -> bytes:
    known = dict(word.split("=", 1) for word in conditions if "=" in word)
    if set(known) != {"nodes", "start", "format"} or known["format"] != "Start,End,State,User,Reason":
        raise UsageError(f"not simulated: show event where {' '.join(conditions)}")
    start = encode(known["nodes"]) + b"|"
    return b"".join(row.removeprefix(start) + b"\n" for row in read(_EVENTS) if row.startswith(start))


def _coordinated(read: ReadColumn, words: Sequence[str]) -> bytes:
    asked = [word.lower() for word in (*words[:2], *words[3:])]
    if asked != ["show", "user", "withcoord", "format=user,coordinators"] or not words[2].startswith("name="):
        raise UsageError(f"not simulated: {' '.join(words)}")
    start = encode(words[2].removeprefix("name=")) + b"|"
    return b"".join(row + b"\n" for row in read(_COORDINATORS) if row.startswith(start))


COMMAND = Command(name=_NAME, columns=(_REPORT, _COORDINATORS, _EVENTS, _CLUSTER), column=column, respond=respond)
answer = COMMAND.answer

# SPDX-License-Identifier: Apache-2.0
"""Answer like sacctmgr 22.05. The first user of the cluster coordinates the first account."""

from __future__ import annotations

from slurmscope.cluster import dbd, events
from slurmscope.simulator.cluster.daemons import make_database_report
from slurmscope.simulator.cluster.records import SimulatedCluster
from slurmscope.simulator.commands.call import NUL, encode
from slurmscope.simulator.commands.command_line import CommandLine, join_lines
from slurmscope.slurm import cluster_names, coordinators, visibility
from slurmscope.slurm.states import node_state_text

_CONFIGURATION = (
    b"Configuration data as of now\nPrivateData            = none\n\nSlurmDBD configuration:\n"
    b"PrivateData            = none\nSlurmUser              = slurm(64030)\n"
)


def _events(cluster: SimulatedCluster) -> bytes:
    """Return the event of each node that is down or drained now, after its name."""
    rows = []
    for node in cluster.nodes:
        if node.reason:
            user = "root(0)" if node.reason_user is None else f"{node.reason_user.name}({node.reason_user.uid})"
            state = node_state_text(node.base, frozenset(node.flags)).upper()
            rows.append(encode(f"{node.name}|{node.reason_time}|Unknown|{state}|{user}|{node.reason}"))
    return NUL.join(rows)


def _coordinated_accounts(cluster: SimulatedCluster) -> bytes:
    """Return the accounts that each user coordinates, after the name of the user."""
    first = ",".join(cluster.accounts[:1])
    rows = (f"{user.name}|{user.name}|{'' if place else first}" for place, user in enumerate(cluster.users))
    return NUL.join(map(encode, rows))


def _account_coordinators(cluster: SimulatedCluster) -> bytes:
    first = ",".join(user.name for user in cluster.users[:1])
    return join_lines(f"{account}|{'' if place else first}" for place, account in enumerate(cluster.accounts))


LINES = tuple(
    CommandLine("sacctmgr", arguments, respond, selected_by)
    for arguments, respond, selected_by in (
        (dbd.ARGUMENTS, lambda cluster: encode(make_database_report(cluster)), ""),
        (visibility.SLURMDBD[1], lambda _cluster: _CONFIGURATION, ""),
        (cluster_names.ALL_ARGUMENTS, lambda cluster: encode(f"{cluster.name}\n"), ""),
        (events.ALL_ARGUMENTS, lambda cluster: b"".join(row + b"\n" for row in _events(cluster).split(NUL) if row), ""),
        (events.arguments("", ""), _events, "nodes"),
        (events.arguments("", "", "x"), _events, "nodes"),
        (coordinators.arguments(""), _coordinated_accounts, "name"),
        (coordinators.ARGUMENTS, _account_coordinators, ""),
    )
)

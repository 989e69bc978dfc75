# SPDX-License-Identifier: Apache-2.0
"""Answer like sacctmgr 22.05. The first user of the cluster coordinates the first account."""

from __future__ import annotations

from slurmscope.cluster import dbd, events
from slurmscope.simulator.cluster.daemons import make_database_report
from slurmscope.simulator.cluster.records import SimulatedCluster
from slurmscope.simulator.commands.call import NUL, encode
from slurmscope.simulator.commands.command_line import CommandLine, join_lines
from slurmscope.simulator.commands.sinfo import long_state
from slurmscope.slurm import cluster_names, coordinators, visibility

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
            state = long_state(node.base, node.flags).upper()
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


LINES = (
    CommandLine(
        command="sacctmgr", arguments=dbd.ARGUMENTS, respond=lambda cluster: encode(make_database_report(cluster))
    ),
    CommandLine(command="sacctmgr", arguments=visibility.SLURMDBD[1], respond=lambda _cluster: _CONFIGURATION),
    CommandLine(
        command="sacctmgr",
        arguments=cluster_names.ALL_ARGUMENTS,
        respond=lambda cluster: encode(f"{cluster.name}\n"),
    ),
    CommandLine(
        command="sacctmgr",
        arguments=events.ALL_ARGUMENTS,
        respond=lambda cluster: b"".join(row + b"\n" for row in _events(cluster).split(NUL) if row),
    ),
    CommandLine(command="sacctmgr", arguments=events.arguments("", ""), respond=_events, selected_by="nodes"),
    CommandLine(command="sacctmgr", arguments=events.arguments("", "", "x"), respond=_events, selected_by="nodes"),
    CommandLine(
        command="sacctmgr",
        arguments=coordinators.arguments(""),
        respond=_coordinated_accounts,
        selected_by="name",
    ),
    CommandLine(command="sacctmgr", arguments=coordinators.ARGUMENTS, respond=_account_coordinators),
)

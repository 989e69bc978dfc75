# SPDX-License-Identifier: Apache-2.0
"""Answer like sprio, sshare and sdiag 22.05: why jobs are where they are in the queue, and how the scheduler works.

sprio prints a row for each partition in which a job may start, and none for a held job. In sshare all accounts are
children of the root; levels and factors follow the fair-tree rules: who has used less of what was granted comes first,
accounts before their users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slurmscope.cluster import sdiag, shares
from slurmscope.jobs.pending import facts
from slurmscope.simulator.cluster.daemons import make_diag
from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedJob
from slurmscope.simulator.cluster.usage import make_rows
from slurmscope.simulator.commands.call import encode
from slurmscope.simulator.commands.command_line import CommandLine, join_lines, read_columns


def _age(job: SimulatedJob) -> int:
    return job.priority // 10


def _qos(job: SimulatedJob) -> int:
    return job.priority // 5 if job.qos == "high" else 0


_FACTORS: Mapping[str, Callable[[SimulatedJob], str]] = {
    "i": lambda job: str(job.id),
    "Y": lambda job: str(job.priority),
    "A": lambda job: str(_age(job)),
    "B": lambda _job: "0",
    "F": lambda job: str(job.priority - _age(job) - _qos(job)),
    "J": lambda _job: "0",
    "P": lambda _job: "0",
    "Q": lambda job: str(_qos(job)),
    "S": lambda _job: "0",
    "T": lambda _job: "",
    "N": lambda _job: "0",
}


def _respond_sprio(cluster: SimulatedCluster) -> bytes:
    columns = read_columns(facts.ARGUMENTS)
    return join_lines(
        "".join((partition if name == "r" else _FACTORS[name](job)) + suffix for name, suffix in columns)
        for job in cluster.jobs
        if job.state == "PENDING" and job.priority > 0
        for partition in job.partitions
    )


def _respond_sshare(cluster: SimulatedCluster) -> bytes:
    return join_lines("|".join(row.get(column, "") for column in shares.COLUMNS) for row in make_rows(cluster))


LINES = (
    CommandLine("sprio", facts.ARGUMENTS, _respond_sprio),
    CommandLine("sshare", shares.ARGUMENTS, _respond_sshare),
    CommandLine(sdiag.COMMAND, sdiag.ARGUMENTS, lambda cluster: encode(make_diag(cluster))),
)

# SPDX-License-Identifier: Apache-2.0
"""Run Slurm's commands against the controller of another cluster, which they find through slurmdbd.

Every command that reads a controller has the option -M. squeue and sshare then print the name of the cluster first,
also without a header::

    CLUSTER: beta
"""

from __future__ import annotations

from collections.abc import Sequence

from slurmscope.errors import MalformedAnswer
from slurmscope.sources.slurm.cluster_names import NAME
from slurmscope.sources.slurm.commands import RunCommand


def run_in_cluster(run: RunCommand, cluster: str) -> RunCommand:
    """Return what runs a command against a cluster; slurmdbd, which sacctmgr reads, is the same for all."""
    if not NAME.match(cluster):
        raise MalformedAnswer("a cluster has a name that Slurm does not accept")
    title = f"CLUSTER: {cluster}\n".encode()

    def run_there(command: str, arguments: Sequence[str]) -> bytes:
        if command == "sacctmgr":
            return run(command, arguments)
        return run(command, ("-M", cluster, *arguments)).removeprefix(title)

    return run_there

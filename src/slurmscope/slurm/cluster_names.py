# SPDX-License-Identifier: Apache-2.0
"""Read the names of clusters, and run Slurm's commands against another one.

Every command that reads a controller has the option -M. squeue and sshare then print the name of the cluster first,
also without a header::

    CLUSTER: beta

::

    alpha
    beta
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from slurmscope.core.cache import Cache
from slurmscope.core.errors import MalformedAnswer, SourceError
from slurmscope.slurm.command import RunCommand
from slurmscope.slurm.config import read_config

KEEP_SECONDS = 300.0
RETRY_SECONDS = 10.0
ALL_ARGUMENTS = ("--readonly", "--noheader", "--parsable2", "show", "cluster", "format=cluster")
RECENT_ARGUMENTS = (
    "--allusers", "--allocations", "--local", "--noheader", "--parsable2", "--starttime=now-1hour", "--format=Cluster",
)  # fmt: skip
NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,63}\Z")
"""Names of clusters, as Slurm keeps them; none looks like an option or has a separator."""


def read_own_name(run: RunCommand) -> str:
    """Return the name of this host's cluster, from slurmctld or else from its newest jobs in accounting."""
    try:
        name = read_config(run).cluster_name.lower()
    except SourceError:
        names = set(_parse(run("sacct", RECENT_ARGUMENTS)))
        if len(names) != 1:
            raise
        (name,) = names
    if not NAME.match(name):
        raise MalformedAnswer("scontrol show config: the answer does not name the cluster")
    return name


def read_all_names(run: RunCommand) -> tuple[str, ...]:
    """Return the names of all clusters in slurmdbd."""
    names = _parse(run("sacctmgr", ALL_ARGUMENTS))
    if not names:
        raise MalformedAnswer("sacctmgr show cluster: slurmdbd does not name a cluster")
    return names


def _parse(answer: bytes) -> tuple[str, ...]:
    lines = {line.strip().lower() for line in answer.decode("utf-8", "replace").splitlines()}
    return tuple(sorted(line for line in lines if NAME.match(line)))


class ClusterNames:
    """Cache the names of the clusters to read; thread-safe."""

    def __init__(self, read: Callable[[], tuple[str, ...]], clock: Callable[[], float] = time.monotonic) -> None:
        """Take the function that reads the names; they are kept for some minutes, or as long as it fails."""
        self._read = read
        self._cache = Cache[tuple[str, ...]](KEEP_SECONDS, retry_seconds=RETRY_SECONDS, serves_old=True, clock=clock)

    def get(self) -> tuple[str, ...]:
        """Return the names; raise SourceError if they were never read."""
        return self._cache.get(None, self._read)


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

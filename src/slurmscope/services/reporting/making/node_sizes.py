# SPDX-License-Identifier: Apache-2.0
"""Read how large the nodes of each cluster are, to compute how many of them a job needs.

::

    n1 16 64000
    gpu01 64 512000
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from slurmscope.errors import MalformedAnswer, SourceError
from slurmscope.log import fields
from slurmscope.sources.slurm.cluster_names import NAME, ClusterNames, read_own_name
from slurmscope.sources.slurm.commands import RunCommand

logger = logging.getLogger(__name__)

KEEP_SECONDS = 3600.0
"""Nodes seldom change; one sinfo call an hour."""
RETRY_SECONDS = 300.0

_ARGUMENTS = ("--noheader", "--Node", "--all", "--format=%N %c %m")
_LINE = re.compile(r"^(\S{1,255}) ([0-9]{1,9}) ([0-9]{1,12})[ ]*$", re.MULTILINE)
_MIB = 1 << 20


class NodeSize(NamedTuple):
    """Hold the cores and the memory of a node."""

    cpus: float
    memory_bytes: float


class NodeSizes:
    """Read the size of every node with sinfo, at most once an hour for each cluster; thread-safe."""

    def __init__(self, run: RunCommand, clock: Callable[[], float] = time.monotonic) -> None:
        """Take what runs a command of Slurm, such as ``SlurmCommands.run``."""
        self._run = run
        self._clock = clock
        self._own = ClusterNames(lambda: (read_own_name(run),), clock)
        self._locks: dict[str, threading.Lock] = {}
        self._known: dict[str, Mapping[str, NodeSize]] = {}
        self._until: dict[str, float] = {}

    def smallest(self, cluster: str, nodes: Iterable[str]) -> NodeSize | None:
        """Return the fewest cores and the least memory of these nodes; None if the size of one is unknown."""
        # One for each cluster: a controller that does not answer delays only its own jobs.
        with self._locks.setdefault(cluster, threading.Lock()):
            if self._clock() >= self._until.get(cluster, 0.0):
                self._read(cluster)
            known = self._known.get(cluster, {})
            found = [known.get(node) for node in nodes]
        sizes = [size for size in found if size is not None]
        if not sizes or len(sizes) < len(found):
            return None
        return NodeSize(min(size.cpus for size in sizes), min(size.memory_bytes for size in sizes))

    def _read(self, cluster: str) -> None:
        """Read all nodes of a cluster; a failure leaves what was known, and is retried later."""
        self._until[cluster] = self._clock() + RETRY_SECONDS
        try:
            arguments = (*self._which(cluster), *_ARGUMENTS)
            self._known[cluster] = parse_sizes(self._run("sinfo", arguments).decode("utf-8", "replace"))
        except SourceError as error:
            logger.info("sizes of nodes are unknown", extra=fields(cluster=cluster, error=str(error)))
            return
        self._until[cluster] = self._clock() + KEEP_SECONDS

    def _which(self, cluster: str) -> tuple[str, ...]:
        """Return the option for another cluster than that of this host, which needs no slurmdbd."""
        if cluster == self._own.get()[0]:
            return ()
        if not NAME.match(cluster):
            raise MalformedAnswer("the name of a cluster cannot be used with sinfo")
        return (f"--clusters={cluster}",)


def parse_sizes(text: str) -> dict[str, NodeSize]:
    """Parse the output of sinfo; a line in another format is skipped."""
    sizes = {}
    for name, cpus, memory in _LINE.findall(text):
        sizes[name] = NodeSize(float(cpus), float(int(memory) * _MIB))
    return sizes

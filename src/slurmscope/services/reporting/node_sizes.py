# SPDX-License-Identifier: Apache-2.0
"""Know how large the nodes of the cluster are, to say how many of them a job needs.

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

from slurmscope.errors import SourceError
from slurmscope.log import fields
from slurmscope.sources.accounting.sacct_jobs import RunCommand

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
    """Read the size of every node with sinfo, at most once an hour; thread-safe."""

    def __init__(self, run: RunCommand, clock: Callable[[], float] = time.monotonic) -> None:
        """Take what runs a command of Slurm, such as ``SlurmCommands.run``."""
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Mapping[str, NodeSize] = {}
        self._until = 0.0

    def smallest(self, nodes: Iterable[str]) -> NodeSize | None:
        """Return the fewest cores and the least memory of these nodes; None if the size of one is unknown."""
        with self._lock:
            if self._clock() >= self._until:
                self._read()
            found = [self._known.get(node) for node in nodes]
        sizes = [size for size in found if size is not None]
        if not sizes or len(sizes) < len(found):
            return None
        return NodeSize(min(size.cpus for size in sizes), min(size.memory_bytes for size in sizes))

    def _read(self) -> None:
        """Read all nodes; a failure leaves what was known, and is retried later."""
        try:
            self._known = parse_sizes(self._run("sinfo", _ARGUMENTS).decode("utf-8", "replace"))
        except SourceError as error:
            logger.info("sizes of nodes are unknown", extra=fields(error=str(error)))
            self._until = self._clock() + RETRY_SECONDS
            return
        self._until = self._clock() + KEEP_SECONDS


def parse_sizes(text: str) -> dict[str, NodeSize]:
    """Parse the output of sinfo; a line in another format is skipped."""
    sizes = {}
    for name, cpus, memory in _LINE.findall(text):
        sizes[name] = NodeSize(float(cpus), float(int(memory) * _MIB))
    return sizes

# SPDX-License-Identifier: Apache-2.0
"""Cache when nodes were down or drained: sacctmgr is called for one node at a time, at most once in five minutes.

slurmdbd has the events of all clusters, also while a controller is down.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from slurmscope.errors import SourceError
from slurmscope.log import fields
from slurmscope.model.node_events import NodeEvent
from slurmscope.reports.formatting import format_day
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.node_events import read_events
from slurmscope.units import DAY_SECONDS

logger = logging.getLogger(__name__)

Events = tuple[NodeEvent, ...]

LIFETIME_SECONDS = 300.0
FAILURE_SECONDS = 60.0
MAX_NODES = 500
DAYS = 90
"""Days of history that are shown."""


def open_node_history(run: RunCommand) -> NodeHistory:
    """Return the history of nodes; ``run`` runs a Slurm command."""
    return NodeHistory(
        lambda cluster, node: read_events(run, node, format_day(time.time() - DAYS * DAY_SECONDS), cluster)
    )


class NodeHistory:
    """Return the events of a node, None while they cannot be read. Safe to use from any thread."""

    def __init__(self, read: Callable[[str, str], Events], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the function that reads the events of a node, by its cluster and its name; it may raise SourceError."""
        self._read = read
        self._clock = clock
        self._cached: OrderedDict[tuple[str, str], tuple[Events | None, float]] = OrderedDict()
        self._reading = threading.Lock()

    def __call__(self, cluster: str, node: str) -> Events | None:
        """Return the events of a node, newest first; without a cluster it is one of this host's cluster."""
        key = cluster, node
        with self._reading:
            events, until = self._cached.get(key, (None, -float("inf")))
            return events if self._clock() < until else self._query(key)

    def _query(self, key: tuple[str, str]) -> Events | None:
        try:
            events: Events | None = self._read(*key)
        except SourceError as error:
            logger.warning("cannot read node events", extra=fields(cluster=key[0], node=key[1], error=str(error)))
            events = None
        seconds = FAILURE_SECONDS if events is None else LIFETIME_SECONDS
        self._cached[key] = (events, self._clock() + seconds)
        self._cached.move_to_end(key)
        while len(self._cached) > MAX_NODES:
            self._cached.popitem(last=False)
        return events

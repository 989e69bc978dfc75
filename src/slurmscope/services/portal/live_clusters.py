# SPDX-License-Identifier: Apache-2.0
"""Provide the state of every cluster whose controller can be read, each from its own controller.

Those of ``accounting.clusters`` are found through slurmdbd, and read only while pages show them. One that does not
answer does not affect the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from slurmscope.model.nodes import Nodes
from slurmscope.model.waiting import WaitingQueue
from slurmscope.portal.views.cluster_now import ClusterNow
from slurmscope.portal.views.queue_facts import QueueFacts
from slurmscope.services.portal.cluster_readings import LiveReadings
from slurmscope.services.portal.waiting import WAIT_SECONDS
from slurmscope.sources.accounting.settings import ALL_CLUSTERS
from slurmscope.sources.slurm.cluster_names import NAME

MAX_CLUSTERS = 64


class LiveClusters:
    """Hold the readings of all clusters; safe to use from any thread. An empty name is that of this host's cluster."""

    def __init__(
        self,
        own: LiveReadings,
        make_other: Callable[[str], LiveReadings],
        clusters: Callable[[], Collection[str]],
    ) -> None:
        """Take the readings of this host's cluster, what makes those of another, and the clusters of accounting."""
        self._own = own
        self._make_other = make_other
        self._clusters = clusters
        self._others: dict[str, LiveReadings] = {}
        self._lock = threading.Lock()

    def own(self) -> str:
        """Return the cluster of this host; empty while it is unknown."""
        return self._own.waiting.cluster

    def names(self) -> tuple[str, ...]:
        """Return the clusters that can be read; that of this host is the first, unless :meth:`own` is unknown."""
        own = self.own()
        return (*((own,) if own else ()), *self._other_names())

    def now(self, cluster: str) -> ClusterNow:
        """Return the last known state of a cluster."""
        readings = self._find(cluster)
        if readings is None:
            return ClusterNow(problems=(f"This portal does not read the controller of cluster {cluster}.",))
        return readings.state.now()

    def queue(self, cluster: str) -> WaitingQueue | None:
        """Return the pending jobs of a cluster; None if they cannot be read."""
        readings = self._find(cluster)
        return readings.waiting.queue() if readings else None

    def other_queues(self) -> tuple[WaitingQueue, ...]:
        """Return the last known queues of all other clusters, and request new ones; pages do not wait for them."""
        found = [self._open(name).waiting.known_queue() for name in self._other_names()]
        return tuple(queue for queue in found if queue is not None)

    def facts(self, cluster: str, names: Collection[str]) -> QueueFacts:
        """Return what explains the queue of a cluster: these fields, and the nodes."""
        readings = self._find(cluster)
        return readings.waiting.facts(names) if readings else QueueFacts()

    def nodes(self, clusters: Collection[str]) -> Mapping[str, Nodes]:
        """Return the nodes of several clusters, as far as they are known; all are read at the same time."""
        found = {name: readings for name in clusters if (readings := self._find(name)) is not None}
        for readings in found.values():
            readings.nodes.request()
        until = time.monotonic() + WAIT_SECONDS
        known = {name: readings.waiting.nodes(until) for name, readings in found.items()}
        return {name: nodes for name, nodes in known.items() if nodes is not None}

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each queue of another cluster that cannot be read; its own page shows more."""
        for name in self._other_names():
            if name in self._others:
                yield from self._others[name].waiting.problems()

    def _find(self, cluster: str) -> LiveReadings | None:
        if cluster in {"", self.own()}:
            return self._own
        return self._open(cluster) if cluster in self._other_names() else None

    def _open(self, cluster: str) -> LiveReadings:
        with self._lock:
            if cluster not in self._others:
                self._others[cluster] = self._make_other(cluster)
            return self._others[cluster]

    def _other_names(self) -> tuple[str, ...]:
        """Return the other clusters; none while it is unknown which cluster is that of this host.

        If the controller of this host cannot be read, several are all read by their names; a single one may be its own.
        """
        names, own = self._clusters(), self.own()
        if not own and (len(names) < 2 or not self._own.waiting.has_failed):
            return ()
        return tuple(name for name in names if name not in {own, ALL_CLUSTERS} and NAME.match(name))[:MAX_CLUSTERS]

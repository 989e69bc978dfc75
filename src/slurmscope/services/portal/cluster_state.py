# SPDX-License-Identifier: Apache-2.0
"""Provide the current state of queue and nodes to the pages."""

from __future__ import annotations

import time
from collections.abc import Iterator

from slurmscope.model.jobs import Jobs
from slurmscope.model.nodes import Nodes
from slurmscope.portal.views.cluster_now import ClusterNow, summarize_cluster
from slurmscope.services.exporter.readings import SharedReading, Snapshot

WAIT_SECONDS = 2.0
"""How long a page waits for Slurm if no recent state is known."""


class ClusterState:
    """Read queue and nodes from Slurm in the background; safe to use from any thread."""

    def __init__(self, jobs: SharedReading, nodes: SharedReading) -> None:
        self._jobs = jobs
        self._nodes = nodes

    def now(self) -> ClusterNow:
        """Return the last known state and request a new one; wait for it only if the last one is too old."""
        self._jobs.request()
        self._nodes.request()
        until = time.monotonic() + WAIT_SECONDS
        jobs, nodes = (_find_latest(reading, until) for reading in (self._jobs, self._nodes))
        ages = [age for reading in (self._jobs, self._nodes) if (age := reading.age_seconds()) is not None]
        return summarize_cluster(
            jobs.value if isinstance(jobs.value, Jobs) else None,
            nodes.value if isinstance(nodes.value, Nodes) else None,
            age_seconds=max(ages, default=None),
            problems=tuple(self.problems()),
        )

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each reading that fails, and retry it, so that recovery is noticed on any page."""
        for reading in (self._jobs, self._nodes):
            if reading.last_error is not None:
                reading.request()
                yield f"Slurm {reading.name} cannot be read: {reading.last_error}"


def _find_latest(reading: SharedReading, until: float) -> Snapshot:
    snapshot = reading.wait(0.0)
    return snapshot if snapshot.has_value else reading.wait(until)

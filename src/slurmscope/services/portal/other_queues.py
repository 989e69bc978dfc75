# SPDX-License-Identifier: Apache-2.0
"""Read the pending jobs of other clusters, for lists of jobs; one that does not answer does not affect the others.

squeue finds the controllers of other clusters through slurmdbd. Each is read in the background, as the queue of this
host's cluster is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence

from slurmscope.model.waiting import WaitingQueue
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.visible_jobs import require_first
from slurmscope.services.portal.waiting import INTERVAL_SECONDS
from slurmscope.sources.slurm.commands import random_separator
from slurmscope.sources.slurm.job_visibility import CONTROLLER, JobVisibility
from slurmscope.sources.slurm.squeue_waiting import RunCommand, read_waiting

MAX_CLUSTERS = 64


class OtherQueues:
    """Hold the queues of other clusters; safe to use from any thread."""

    def __init__(self, run: RunCommand, clusters: Callable[[], Collection[str]], own: Callable[[], str]) -> None:
        """Take what runs a command of Slurm, the clusters whose jobs are read, and the name of this host's cluster."""
        self._run = run
        self._clusters = clusters
        self._own = own
        self._readings: dict[str, SharedReading] = {}

    def get(self) -> tuple[WaitingQueue, ...]:
        """Return the last known queues, and request new ones; pages do not wait for them."""
        queues = []
        for name in self._others():
            reading = self._readings.setdefault(name, _make_reading(self._run, name))
            reading.request()
            value = reading.wait(0.0).value
            if isinstance(value, WaitingQueue):
                queues.append(value)
        return tuple(queues)

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each queue that cannot be read."""
        for name in self._others():
            reading = self._readings.get(name)
            if reading is not None and reading.last_error is not None:
                yield f"Pending jobs of {name} cannot be read: {reading.last_error}"

    def _others(self) -> list[str]:
        """Return the other clusters; none while the cluster of this host is unknown."""
        names = self._clusters()
        own = self._own() if len(names) > 1 else ""
        return [name for name in names if name != own][:MAX_CLUSTERS] if own else []


def _make_reading(run: RunCommand, cluster: str) -> SharedReading:
    def run_there(command: str, arguments: Sequence[str]) -> bytes:
        # Users and their rights are in slurmdbd, which is the same.
        there = () if command == "sacctmgr" else (f"--clusters={cluster}",)
        return run(command, (*there, *arguments))

    def read() -> WaitingQueue:
        return read_waiting(run_there, random_separator(), now_seconds=time.time(), cluster=cluster)

    visibility = JobVisibility(run_there, CONTROLLER)
    name = f"pending_jobs of {cluster}"
    return SharedReading(name, require_first(visibility, read), interval_seconds=INTERVAL_SECONDS)

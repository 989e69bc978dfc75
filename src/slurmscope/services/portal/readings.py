# SPDX-License-Identifier: Apache-2.0
"""Read in the background what the pages show of Slurm and of file systems."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.visible_jobs import require_all_jobs
from slurmscope.services.portal.cluster_state import ClusterState
from slurmscope.services.portal.filesystems import make_reading
from slurmscope.services.portal.waiting import WaitingReadings, make_waiting_readings
from slurmscope.services.reporting.opening import Reporting
from slurmscope.sources.slurm.backends import open_backend
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings
from slurmscope.sources.slurm.job_visibility import CONTROLLER, JobVisibility
from slurmscope.sources.slurm.squeue import StartWindow

NOW_SECONDS = 30.0
"""Minimum interval between reads of queue and nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalReadings:
    """Hold the readings of the portal; ``top_clients`` is None without Prometheus."""

    jobs: SharedReading
    nodes: SharedReading
    cluster: ClusterState
    waiting: WaitingReadings
    top_clients: SharedReading | None
    has_commands: bool
    """Whether pending jobs are read: a site with slurmrestd may have no commands here, and lists archived jobs only."""

    def all(self) -> Iterator[SharedReading]:
        """Yield every reading."""
        yield from (self.jobs, self.nodes, *self.waiting.readings)
        if self.top_clients is not None:
            yield self.top_clients

    def request_first(self) -> None:
        """Request what the first page shows."""
        for reading in (self.jobs, self.nodes, self.waiting.readings[0]):
            reading.request()

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each part of Slurm that cannot be read."""
        yield from self.cluster.problems()
        if self.has_commands:
            yield from self.waiting.problems()


def make_readings(reporting: Reporting, commands: SlurmCommands) -> PortalReadings:
    """Return readings that have not been requested yet."""
    settings = reporting.config.of(SlurmSettings)
    visibility = JobVisibility(commands.run, CONTROLLER)
    backend = open_backend(settings, commands)
    no_starts = StartWindow(0, 0)
    read_jobs = require_all_jobs(lambda: backend.read_jobs(no_starts, time.time()), visibility)
    jobs = SharedReading("jobs", read_jobs, interval_seconds=NOW_SECONDS)
    nodes = SharedReading("nodes", backend.read_nodes, interval_seconds=NOW_SECONDS)
    return PortalReadings(
        jobs=jobs,
        nodes=nodes,
        cluster=ClusterState(jobs, nodes),
        waiting=make_waiting_readings(commands, visibility, jobs, nodes),
        top_clients=make_reading(reporting),
        has_commands=settings.backend != "rest",
    )

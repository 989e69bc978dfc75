# SPDX-License-Identifier: Apache-2.0
"""Read in the background what the pages show of Slurm and of file systems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.portal.cluster_readings import LiveReadings, make_other_readings, make_own_readings
from slurmscope.services.portal.filesystems import make_reading
from slurmscope.services.portal.live_clusters import LiveClusters
from slurmscope.services.reporting.opening import Reporting
from slurmscope.sources.slurm.backends import open_backend
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalReadings:
    """Hold the readings of the portal; ``top_clients`` is None without Prometheus."""

    own: LiveReadings
    clusters: LiveClusters
    top_clients: SharedReading | None
    has_commands: bool
    """Whether pending jobs are read: a site with slurmrestd may have no commands here, and lists archived jobs only."""

    def all(self) -> Iterator[SharedReading]:
        """Yield every reading of this host's cluster, and that of file systems."""
        yield from (self.own.jobs, self.own.nodes, *self.own.waiting.readings)
        if self.top_clients is not None:
            yield self.top_clients

    def request_first(self) -> None:
        """Request what the first page shows."""
        for reading in (self.own.jobs, self.own.nodes, self.own.waiting.readings[0]):
            reading.request()

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each part of Slurm that cannot be read."""
        yield from self.own.state.problems()
        if self.has_commands:
            yield from self.own.waiting.problems()
        if self.has_commands or self.clusters.own():
            yield from self.clusters.problems()


def make_readings(
    reporting: Reporting, commands: SlurmCommands, clusters: Callable[[], Collection[str]]
) -> PortalReadings:
    """Return readings that have not been requested yet; ``clusters`` returns those whose jobs are archived here."""
    settings = reporting.config.of(SlurmSettings)
    own = make_own_readings(commands.run, open_backend(settings, commands))
    return PortalReadings(
        own=own,
        clusters=LiveClusters(own, partial(make_other_readings, commands.run), clusters),
        top_clients=make_reading(reporting),
        has_commands=settings.backend != "rest",
    )

# SPDX-License-Identifier: Apache-2.0
"""Read in the background what the pages show of Slurm and of file systems."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from slurmscope.cluster.backends import open_backend
from slurmscope.exporter.reading import SharedReading
from slurmscope.lustre.use import TopClients
from slurmscope.portal.live import LiveClusters, LiveReadings, make_other_readings, make_own_readings
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.sources import Reporting
from slurmscope.slurm.command import SlurmCommands, SlurmSettings

INTERVAL_SECONDS = 60.0
WAIT_SECONDS = 10.0
"""How long a page waits for the first answer."""


def make_reading(reporting: Reporting) -> SharedReading | None:
    """Return a reading that queries Prometheus at most once a minute; None without Prometheus."""
    client, settings = reporting.prometheus, reporting.config.of(PrometheusSettings)
    if client is None:
        return None
    from slurmscope.lustre.top_clients import read_top_clients

    def read() -> TopClients:
        until = time.monotonic() + settings.timeout
        return read_top_clients(client, settings.matchers, cluster_label=settings.cluster_label, until=until)

    return SharedReading("filesystems", read, interval_seconds=INTERVAL_SECONDS)


def find_top_clients(reading: SharedReading | None) -> Callable[[], TopClients | None]:
    """Return a function that gives the last answer and requests a new one."""

    def find() -> TopClients | None:
        if reading is None:
            return None
        reading.request()
        snapshot = reading.wait(0.0)
        if not snapshot.has_value:
            snapshot = reading.wait(time.monotonic() + WAIT_SECONDS)
        top = snapshot.value if isinstance(snapshot.value, TopClients) else TopClients()
        error = reading.last_error
        return top._replace(problems=(*top.problems, error)) if error else top

    return find


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

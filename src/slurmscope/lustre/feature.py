# SPDX-License-Identifier: Apache-2.0
"""Join the use of Lustre file systems to the cluster exporter, if its collector is enabled."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from slurmscope.cluster.backends import JOBS
from slurmscope.cluster.sources import Sources
from slurmscope.core.check import Check
from slurmscope.core.errors import MissingExtraError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.settings import Section
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import STILL_BEING_READ, SharedReading
from slurmscope.exporter.settings import Switch
from slurmscope.lustre.collector import COLLECTOR, SCRAPE_OK, STAGES, LustreOptions
from slurmscope.lustre.use import FilesystemUse
from slurmscope.metrics.family import Family
from slurmscope.prometheus.query_counters import SERIES_METRICS, series_families
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.slurm.cluster_names import ClusterNames, read_own_name

if TYPE_CHECKING:
    from slurmscope.lustre.reader import LustreReader

logger = logging.getLogger(__name__)

ADVICE = "check --prometheus.url and its credentials, and that this server answers queries"
SECTION = f"collector.{COLLECTOR.name}"


def _open(host: Host) -> Running:
    if not host.config.of(Switch, SECTION).enabled:
        return Running()
    reader = _open_reader(host)
    reading = SharedReading(
        COLLECTOR.name,
        reader.read if reader else _refuse,
        interval_seconds=host.readings[JOBS.name].interval_seconds,
        advice=ADVICE,
    )
    if reader is None:
        return Running(readings=(reading,))

    def families(is_success: Mapping[str, bool]) -> Iterator[Family]:
        if COLLECTOR.name in is_success:
            if reading.wait(0.0).error == STILL_BEING_READ:
                logger.warning("Collect is still active... - Skipping now", extra=fields("lustre"))
            yield Family(STAGES, {(name,): seconds for name, seconds in reader.stage_seconds.items()})
            yield Family(SCRAPE_OK, {(): float(is_success[COLLECTOR.name] and reader.is_complete)})
            yield from series_families(reader.client.counters.snapshot())

    return Running(
        readings=(reading,),
        families=families,
        checks=lambda: _checks(reading.wait(0.0).value),
        close=reader.close,
    )


def _open_reader(host: Host) -> LustreReader | None:
    """Return the reader of Lustre statistics; None without its package; raise ConfigError for wrong settings."""
    config, slurm = host.config, host.sources
    if not isinstance(slurm, Sources):
        raise TypeError("Lustre statistics need the sources of the cluster exporter")
    # Imported here: it needs a package that the other collectors do not need.
    try:
        from slurmscope.lustre.reader import LustreReader
    except MissingExtraError:
        # The address may be in a file that is shared with the portal: this must not stop the other collectors.
        if config.values[f"{SECTION}.enabled"].origin == COLLECTOR.enabled_by:
            return None
        raise

    slurm.with_owners = True
    names = ClusterNames(lambda: (read_own_name(slurm.run),))
    return LustreReader(
        config.of(PrometheusSettings),
        config.of(LustreOptions, SECTION),
        host.readings[JOBS.name],
        find_cluster=lambda: names.get()[0],
    )


def _refuse() -> object:
    raise SourceError("the collector lustre needs --prometheus.url and the extra 'reports'")


def _checks(use: object) -> Iterator[Check]:
    if isinstance(use, FilesystemUse):
        job_ids = len({rate.client for rates in use.rates.values() for rate in rates})
        found = f"{job_ids} jobs and programs use Lustre" if job_ids else "no use of Lustre was found"
        yield Check(
            name="lustre statistics",
            is_good=not use.problems,
            message="; ".join(use.problems) or found,
            advice="" if not use.problems else "some metrics of lustre are missing: see --prometheus.url",
        )


LUSTRE = Feature(
    name="lustre",
    sections=(Section(name="prometheus", type=PrometheusSettings),),
    collectors=(COLLECTOR,),
    metrics=SERIES_METRICS,
    open=_open,
)

# SPDX-License-Identifier: Apache-2.0
"""Open the readings of the cluster exporter, and respect Slurm's PrivateData.

Readings and commands are exported as metrics, also under the names of older exporters::

    slurmscope_commands_total{command="squeue"} 360
    slurm_job_scrape_duration 112
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmscope.cluster.backends import JOBS, NODES, open_backend
from slurmscope.cluster.checks import check_controllers, check_slurm
from slurmscope.cluster.completions_tracker import COMPLETIONS, CompletionsSettings
from slurmscope.cluster.sdiag import DIAG
from slurmscope.cluster.slurm import CONFIG
from slurmscope.cluster.sources import Sources
from slurmscope.core.check import Check
from slurmscope.core.log import fields
from slurmscope.core.settings import Section, duration
from slurmscope.exporter.collector import SLOW_SECONDS, Reading, declared_readings, find_collectors
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading, open_reading
from slurmscope.metrics.family import Family, Metric, counter
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.config import ALL_HIDDEN_LABELS, ControllerConfig
from slurmscope.slurm.visibility import CONTROLLER, JobVisibility

logger = logging.getLogger(__name__)

COMMANDS = counter("slurmscope_commands_total", "Runs of Slurm commands, by command.", "command")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSettings:
    """How often Slurm is called for what changes slowly."""

    slow_interval: float = duration(
        SLOW_SECONDS,
        "Interval between Slurm calls for what changes slowly, such as reservations and limits; those of sdiag "
        "(30s), sacct (1m), licenses (3m), shares and configuration (10m) change in proportion.",
    )


@functools.cache
def cluster_feature() -> Feature:
    """Return what every cluster exporter has: a collector is any module of this package that declares one."""
    collectors, own = find_collectors("slurmscope.cluster"), (JOBS, NODES, DIAG, COMPLETIONS)
    return Feature(
        name="cluster",
        sections=(
            Section(name="slurm", type=SlurmSettings),
            Section(name="slurm", type=SlowSettings),
            Section(name="completions", type=CompletionsSettings),
        ),
        collectors=collectors,
        readings=own,
        metrics=(COMMANDS, *_older_metrics(declared_readings(collectors, *own))),
        open=_open,
    )


def _older_metrics(declared: Mapping[str, Reading]) -> Iterator[Metric]:
    for reading in declared.values():
        if reading.duration_metric:
            yield reading.duration_metric
        yield from reading.error_metrics


def _open(host: Host) -> Running:
    """Open every declared reading; nothing is read yet."""
    settings = host.config.of(SlurmSettings)
    slow_seconds = host.config.of(SlowSettings).slow_interval
    commands = SlurmCommands(settings, host.environment)
    host.sources = Sources(
        run=commands.run,
        backend=open_backend(settings, commands),
        settings=host.config.of,
        wall_clock=time.time,
        require_all_jobs=JobVisibility(commands.run, CONTROLLER).require,
    )
    readings = {
        name: open_reading(declared, host.sources, shortest_seconds=settings.poll_limit, slow_seconds=slow_seconds)
        for name, declared in host.declared.items()
    }

    def checks() -> Iterator[Check]:
        yield from check_slurm(commands.run, host.environment)
        yield from check_controllers(readings["controllers"].wait(0.0).value)

    def families(_: Mapping[str, bool]) -> Iterator[Family]:
        yield Family(COMMANDS, {(command,): count for command, count in sorted(commands.runs.items())})
        yield from _older_families(host.declared, readings)

    respects = settings.private_data == "respect"
    return Running(
        readings=tuple(readings.values()),
        hidden_labels=functools.partial(_hidden_labels, readings[CONFIG.name]) if respects else lambda _: frozenset(),
        families=families,
        checks=checks,
    )


def _older_families(declared: Mapping[str, Reading], readings: Mapping[str, SharedReading]) -> Iterator[Family]:
    """Yield durations and errors of readings under their older names."""
    for name, reading in readings.items():
        if not reading.attempts:
            continue
        metric = declared[name].duration_metric
        if metric is not None and reading.duration_seconds is not None:
            yield Family(metric, {(): round(reading.duration_seconds * 1000, 3)})
        for metric in declared[name].error_metrics:
            yield Family(metric, {(): sum(reading.errors.values())})


def _hidden_labels(config: SharedReading, until: float) -> frozenset[str]:
    """Return the labels that Slurm's PrivateData hides: all that it could hide while it is unknown."""
    config.request()
    snapshot = config.wait(until)
    if isinstance(snapshot.value, ControllerConfig):
        return snapshot.value.hidden_labels
    logger.warning("PrivateData is unknown, hiding series by user, job and account", extra=fields(error=snapshot.error))
    return ALL_HIDDEN_LABELS

# SPDX-License-Identifier: Apache-2.0
"""Export statistics of Slurm commands and readings, also under the metric names of older exporters.

::

    slurmscope_commands_total{command="squeue"} 360
    slurm_job_scrape_duration 112
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmscope.metrics.family import Family, Metric, counter, seed_counter, seed_gauge
from slurmscope.services.exporter.readings import SharedReading

COMMANDS = counter("slurmscope_commands_total", "Runs of Slurm commands, by command.", "command")

# Reading, gauge of milliseconds, error counters: the older documentation and code used different names.
_SCRAPES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("jobs", "slurm_job_scrape_duration", ("slurm_job_scrape_error", "job_scrape_errors")),
    ("nodes", "slurm_node_scrape_duration", ("slurm_node_scrape_error",)),
    ("diag", "slurm_diag_scrape_duration", ("slurm_diag_scrape_error",)),
    ("licenses", "", ("slurm_lic_scrape_error",)),
    ("limits", "slurm_limit_scrape_duration", ("slurm_account_scrape_error", "slurm_account_collect_error")),
    ("shares", "slurm_fairshare_scrape_duration", ("slurm_fairshare_collect_error",)),
)

DURATIONS = {
    reading: seed_gauge(name, f"Duration of the latest reading of {reading} in milliseconds.")
    for reading, name, _ in _SCRAPES
    if name
}
ERRORS = {
    reading: tuple(seed_counter(name, f"Failed readings of {reading}.") for name in names)
    for reading, _, names in _SCRAPES
}

SCRAPE_METRICS: tuple[Metric, ...] = (
    COMMANDS,
    *DURATIONS.values(),
    *(metric for metrics in ERRORS.values() for metric in metrics),
)


def command_families(runs: Mapping[str, int]) -> Iterator[Family]:
    """Yield the number of runs per command."""
    yield Family(COMMANDS, {(command,): count for command, count in sorted(runs.items())})


def scrape_families(readings: Mapping[str, SharedReading]) -> Iterator[Family]:
    """Yield durations and errors of readings that were attempted at least once."""
    for name, reading in readings.items():
        if not reading.attempts:
            continue
        if name in DURATIONS and reading.duration_seconds is not None:
            yield Family(DURATIONS[name], {(): round(reading.duration_seconds * 1000, 3)})
        for metric in ERRORS.get(name, ()):
            yield Family(metric, {(): sum(reading.errors.values())})

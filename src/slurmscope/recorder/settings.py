# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of the recorder, and the metrics that it records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.settings import duration, setting
from slurmscope.core.units import parse_bytes
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.recorder.cluster_charts import CLUSTER_CURVES

JOB_METRICS = frozenset(
    wanted.metric for queries in (CURVES, TOTALS) for wanted in queries.values() if not wanted.is_foreign
)
"""Metrics that job reports need."""

TRACE_METRICS = frozenset(name for name in JOB_METRICS if name.startswith("slurm_trace_"))
"""Metrics of single processes, whose number jobs determine."""

PROFILE_METRICS = frozenset(name for name in JOB_METRICS if name.startswith("slurm_profile_"))
"""Metrics of single tasks, whose number jobs determine, too."""

CLUSTER_METRICS = frozenset(wanted.metric for wanted in CLUSTER_CURVES.values())
"""What the page about the whole cluster draws."""

CLUSTER_INTERVAL_SECONDS = 60.0
"""Shortest time between two samples of the whole cluster: each calls the controller, and charts show a day of them."""

RECORDED_METRICS = JOB_METRICS | CLUSTER_METRICS


def parse_size(given: object) -> int:
    """Parse a file size of at least 64 MiB; a smaller file could not hold the newest samples."""
    size = parse_bytes(str(given))
    if size < 64 << 20:
        raise ValueError(f"{given!r} is less than the minimum of 64MiB")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """Where and how long samples are kept without Prometheus."""

    file: Path = file_path(Path("/var/lib/slurmscope/recorder.db"), "File for recorded samples.")
    interval: float = duration(15.0, "Interval between samples.")
    retention: float = duration(14 * 86400.0, "How long to keep samples.")
    max_size: int = setting(
        10 << 30,
        "Maximum size of the file; above it, the oldest samples are dropped before recorder.retention.",
        parse=parse_size,
        metavar="SIZE",
    )

# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of the recorder, and the metrics that it records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.settings import byte_size, duration
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


LEAST_FILE_BYTES = 64 << 20
"""A smaller file could not hold the newest samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """Where and how long samples are kept without Prometheus."""

    file: Path = file_path(Path("/var/lib/slurmscope/recorder.db"), "File for recorded samples.")
    interval: float = duration(15.0, "Interval between samples.")
    retention: float = duration(14 * 86400.0, "How long to keep samples.")
    max_size: int = byte_size(
        10 << 30,
        "Maximum size of the file; above it, the oldest samples are dropped before recorder.retention.",
        least_bytes=LEAST_FILE_BYTES,
    )

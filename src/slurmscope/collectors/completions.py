# SPDX-License-Identifier: Apache-2.0
"""Count jobs that have ended, how long they ran and what they held, from Slurm's accounting.

::

    slurm_jobs_ended_total{partition="debug",account="physics",state="FAILED",exit_class="error"} 12
    slurm_job_run_seconds_bucket{partition="debug",le="3600.0"} 4711
    slurm_ended_job_cpu_seconds_total{partition="debug",account="physics"} 1.8e+06

Every run of a requeued job counts, and so does every task of an array and every component of a
heterogeneous job. Counts go on after a restart when the exporter keeps a state file.

``exit_class`` tells what the job's own program told: ``ok``, ``error`` (an exit code other than 0),
``signal`` (killed by one), or ``none`` where Slurm or somebody ended the job, or it never ran; then the
state says how. A script that passes on the exit code 137 of a killed child is an ``error``.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Histogram, counter, gauge, histogram
from slurmscope.model.completions import RUN_BUCKETS_SECONDS, Completions

ENDED = counter(
    "slurm_jobs_ended_total",
    "Jobs that ended, by how: the state, and what the exit code told (ok, error, signal, none).",
    "partition",
    "account",
    "state",
    "exit_class",
)
RUN_TIME = histogram(
    "slurm_job_run_seconds",
    "Seconds that ended jobs had run; jobs that never started are not in it.",
    "partition",
    buckets=RUN_BUCKETS_SECONDS,
)
CPU_TIME = counter(
    "slurm_ended_job_cpu_seconds_total",
    "Seconds of CPUs that ended jobs had held, used or not.",
    "partition",
    "account",
)
GPU_TIME = counter(
    "slurm_ended_job_gpu_seconds_total",
    "Seconds of GPUs that ended jobs had held, used or not.",
    "partition",
    "account",
)
SINCE = gauge("slurm_completions_since_timestamp_seconds", "When the counting of ended jobs began.")
READ_UNTIL = gauge(
    "slurm_completions_read_until_timestamp_seconds",
    "Up to when ended jobs are counted; it stays behind while accounting is away or is being caught up with.",
)
UNREADABLE = gauge("slurm_completions_unreadable_rows", "Rows of the last answer of sacct that could not be read.")


def collect(options: NoOptions, *, completions: Completions) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Turn every sum into its metric."""
    yield Family(ENDED, completions.ended)
    yield Family(
        RUN_TIME,
        {
            (partition,): Histogram(times.counts, times.total_seconds)
            for partition, times in completions.run_times.items()
        },
    )
    yield Family(CPU_TIME, completions.cpu_seconds)
    yield Family(GPU_TIME, completions.gpu_seconds)
    yield Family(SINCE, {(): completions.since})
    yield Family(READ_UNTIL, {(): completions.read_until})
    yield Family(UNREADABLE, {(): completions.unreadable_rows})


COLLECTOR = Collector(
    name="completions",
    role=Role.CLUSTER,
    help="Jobs that ended, their run time and what they held, from one sacct call; needs slurmdbd.",
    needs=("completions",),
    metrics=(ENDED, RUN_TIME, CPU_TIME, GPU_TIME, SINCE, READ_UNTIL, UNREADABLE),
    collect=collect,
)

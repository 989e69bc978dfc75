# SPDX-License-Identifier: Apache-2.0
"""Count ended jobs, their run time and their allocated resources, from Slurm's accounting.

::

    slurm_jobs_ended_total{partition="debug",account="physics",state="FAILED",exit_class="error"} 12
    slurm_job_run_seconds_bucket{partition="debug",le="3600.0"} 4711
    slurm_ended_job_cpu_seconds_total{partition="debug",account="physics"} 1.8e+06

Every run of a requeued job counts, and so does every task of an array and every component of a
heterogeneous job. Counts survive a restart if the exporter has a state file.

``exit_class`` is how the job's own program ended: ``ok``, ``error`` (an exit code other than 0),
``signal`` (killed by a signal), or ``none`` if the job was ended by Slurm or a user, or never ran; then
see the state. A script that passes on the exit code 137 of a killed child is an ``error``.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Histogram, counter, gauge, histogram
from slurmscope.model.completions import RUN_BUCKETS_SECONDS, Completions

ENDED = counter(
    "slurm_jobs_ended_total",
    "Ended jobs by state and exit class (ok, error, signal, none).",
    "partition",
    "account",
    "state",
    "exit_class",
)
RUN_TIME = histogram(
    "slurm_job_run_seconds",
    "Run time of ended jobs; jobs that never started are not counted.",
    "partition",
    buckets=RUN_BUCKETS_SECONDS,
)
CPU_TIME = counter(
    "slurm_ended_job_cpu_seconds_total",
    "CPU time allocated to ended jobs (CPUs times run time), used or not.",
    "partition",
    "account",
)
GPU_TIME = counter(
    "slurm_ended_job_gpu_seconds_total",
    "GPU time allocated to ended jobs (GPUs times run time), used or not.",
    "partition",
    "account",
)
SINCE = gauge("slurm_completions_since_timestamp_seconds", "Unix time from which ended jobs are counted.")
READ_UNTIL = gauge(
    "slurm_completions_read_until_timestamp_seconds",
    "Unix time up to which ended jobs are counted; falls behind while slurmdbd is unreachable.",
)
UNREADABLE = gauge("slurm_completions_unreadable_rows", "Rows of the latest sacct output that could not be parsed.")


def collect(options: NoOptions, *, completions: Completions) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield one family per counter."""
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
    help="Ended jobs, their run time and allocated resources, from one sacct call; needs slurmdbd.",
    needs=("completions",),
    metrics=(ENDED, RUN_TIME, CPU_TIME, GPU_TIME, SINCE, READ_UNTIL, UNREADABLE),
    collect=collect,
)

# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of petricore's jobs_exporter and of its companion for GPUs."""

from __future__ import annotations

from slurmscope.services.migrate.old_system import MetricGroup, OldSystem, old

_JOBS = (
    old(
        "jobs_spawned_processes",
        difference="processes of the whole job. It was the number of threads of its first task",
    ),
    old("jobs_opened_files", difference="all processes count; every second one was skipped"),
    old(
        "jobs_thread_count",
        difference="threads of one process, the one with the most of that name; it was the last one found. "
        "`jobs_program_threads` is the sum",
    ),
    old("jobs_user_time", "jobs_system_time", difference="same: hundredths of a second"),
    old("jobs_cpu_time_total", difference="same: seconds"),
    old("jobs_cpu_time_core", difference="same: seconds. Cgroup v1 only: v2 has no CPU time per core"),
    old("jobs_cpu_percent", difference="since the previous scrape; it was over a tenth of a second"),
    old(
        "jobs_cpu_percent_per_core",
        difference="divided by the cores of the job. It was too large for jobs with several processes",
    ),
    old("jobs_rss", difference="same: units of 1,048,576 bytes; all processes count"),
    old(
        "jobs_read_mb",
        "jobs_write_mb",
        difference="same: what reached storage, in units of 1,048,576 bytes. Ended processes still count, so it never "
        "falls. What programs requested is `jobs_io_read_bytes_total` and `jobs_io_write_bytes_total`",
    ),
    old("jobs_read_count", "jobs_write_count", difference="same; ended processes still count"),
    old("jobs_uses_scratch", difference="words for scratch are set by `--node.scratch`; it was always 0 in v0.02"),
    old("jobs_gpus_used", difference="one series for each GPU of the job; `0,1` made series for `0`, `,` and `1`"),
)

_GPUS = (
    old(
        "temperature_gpu",
        "utilization_gpu",
        "utilization_memory",
        "memory_total",
        "memory_free",
        "memory_used",
        difference="same units (degrees, percent, MiB), now from the node agent; they have a type",
    ),
)

SYSTEM = OldSystem(
    page="jobs-exporter",
    groups=(
        MetricGroup(title="Jobs", metrics=_JOBS),
        MetricGroup(title="GPUs", note="They were of nvidia_smi_exporter, on port 9101.", metrics=_GPUS),
    ),
)

# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of user_metrics_pseudo_exporter.

The tables of ``docs/migrate`` are made from these descriptions and from the declared metrics, and ``slurmscope migrate
check`` quotes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OldMetrics:
    """Describe metrics of the older tool that share one difference; ``missing`` says why slurmscope may not have them.

    ``is_volatile`` marks values that differ between any two readings, such as the duration of a command.
    """

    names: tuple[str, ...]
    difference: str = "same"
    missing: str = ""
    is_volatile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGroup:
    """The metrics of one subject; ``note`` is a paragraph above their table."""

    title: str
    metrics: tuple[OldMetrics, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSystem:
    """Describe one replaced tool; ``page`` is the name of its page in ``docs/migrate``."""

    page: str
    groups: tuple[MetricGroup, ...]

    def metrics(self) -> Iterator[OldMetrics]:
        for group in self.groups:
            yield from group.metrics

    def by_name(self) -> Mapping[str, OldMetrics]:
        return {name: old for old in self.metrics() for name in old.names}


def old(*names: str, difference: str = "same", missing: str = "", is_volatile: bool = False) -> OldMetrics:
    return OldMetrics(names=names, difference=difference, missing=missing, is_volatile=is_volatile)


_UNKNOWN = "jobs and users that are not known are exported as `unknown`; they were dropped"

CLUSTER_EXPORTER = OldSystem(
    page="cluster-exporter",
    groups=(
        MetricGroup(
            title="Lustre",
            metrics=(
                old("cluster_job_read_throughput_bytes", "cluster_job_write_throughput_bytes", difference=_UNKNOWN),
                old("cluster_proc_read_throughput_bytes", "cluster_proc_write_throughput_bytes", difference=_UNKNOWN),
                old(
                    "cluster_job_metadata_operations",
                    difference="exact; it was rounded, without operations below one per second",
                ),
                old("cluster_proc_metadata_operations", difference="likewise"),
                old("cluster_exporter_scrape_ok", difference="0 also while the last good values are served"),
                old(
                    "cluster_exporter_stage_execution_seconds",
                    difference="same",
                    is_volatile=True,
                ),
            ),
        ),
    ),
)


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

JOBS_EXPORTER = OldSystem(
    page="jobs-exporter",
    groups=(
        MetricGroup(title="Jobs", metrics=_JOBS),
        MetricGroup(title="GPUs", note="They were of nvidia_smi_exporter, on port 9101.", metrics=_GPUS),
    ),
)


_NEW_NAMES = {
    "CPUFrequency": "`slurm_profile_task_cpu_frequency_hertz`, hertz",
    "CPUTime": "`slurm_profile_task_cpu_seconds_total`, a counter; it was the time since the previous sample",
    "CPUUtilization": "`slurm_profile_task_busy_cores`, where 100 % is 1",
    "RSS": "`slurm_profile_task_resident_bytes`, bytes; it was KB",
    "VMSize": "`slurm_profile_task_virtual_bytes`, bytes; it was KB",
    "Pages": "`slurm_profile_task_major_faults_total`, a counter",
    "ReadMB": "`slurm_profile_task_read_bytes_total` or `slurm_profile_filesystem_read_bytes_total`; one name for both",
    "WriteMB": "`slurm_profile_task_write_bytes_total` or `slurm_profile_filesystem_write_bytes_total`, likewise",
    "GPUMemMB": "`slurm_profile_task_gpu_memory_bytes`, bytes",
    "GPUUtilization": "`slurm_profile_task_gpu_utilization_ratio`, where 100 % is 1",
    "Power": "`slurm_profile_power_watts`, by sensor",
    "Reads": "`slurm_profile_filesystem_reads_total`, a counter",
    "Writes": "`slurm_profile_filesystem_writes_total`, a counter",
    "PacketsIn": "`slurm_profile_network_receive_packets_total`, a counter",
    "PacketsOut": "`slurm_profile_network_transmit_packets_total`, a counter",
    "InMB": "`slurm_profile_network_receive_bytes_total`, a counter in bytes",
    "OutMB": "`slurm_profile_network_transmit_bytes_total`, a counter in bytes",
}

PROFILE_PLUGIN = OldSystem(
    page="profile-plugin",
    groups=(
        MetricGroup(
            title="Samples", metrics=tuple(old(name, missing=f"is now {new}") for name, new in _NEW_NAMES.items())
        ),
    ),
)


PSEUDO_EXPORTER = OldSystem(
    page="pseudo-exporter",
    groups=(
        MetricGroup(
            title="Process groups",
            note="Served by `slurmscope node --collector.process_groups`.",
            metrics=(
                old(
                    "cpu_usage",
                    "ram_usage",
                    difference="sums of what ps shows, as before. `command` is not padded to 16 characters; names of "
                    "users are whole. Above 200 groups per user the rest is one series",
                ),
            ),
        ),
        MetricGroup(
            title="Cores of users",
            note="Served by `slurmscope cluster`.",
            metrics=(
                old(
                    "ncpus",
                    difference="partitions are set by `--collector.jobs.ncpus-partitions`, default `gpus`; names of "
                    "users are whole",
                ),
            ),
        ),
    ),
)

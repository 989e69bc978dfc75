# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics that the original of Slurm's profiling plugin acct_gather_profile_prometheus pushed."""

from __future__ import annotations

from slurmscope.services.migrate.old_system import MetricGroup, OldSystem, old

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

SYSTEM = OldSystem(
    page="profile-plugin",
    groups=(
        MetricGroup(
            title="Samples", metrics=tuple(old(name, missing=f"is now {new}") for name, new in _NEW_NAMES.items())
        ),
    ),
)

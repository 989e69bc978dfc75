# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of exporters whose names slurmscope does not keep, by what has the same values here.

They are not replaced under their names: a dashboard needs the new one. What is the same in both is not listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.migrate.old_systems import MetricGroup, OldMetrics, OldSystem, old


def _moved(names: Mapping[str, str]) -> tuple[OldMetrics, ...]:
    """Return descriptions of metrics by their names, which may be several, and what has their values now."""
    return tuple(old(*key.split(), missing=text) for key, text in names.items())


def _system(page: str, **groups: Mapping[str, str]) -> OldSystem:
    made = tuple(MetricGroup(title=title, metrics=_moved(names)) for title, names in groups.items())
    return OldSystem(page=page, groups=made)


_NODE_EXPORTER = "is of the whole node: node_exporter has it"

CGROUP_EXPORTER = _system(
    "cgroup-exporter",
    cgroups={
        "cgroup_cpu_user_seconds": "is now `jobs_cpu_user_seconds_total`, a counter",
        "cgroup_cpu_system_seconds": "is now `jobs_cpu_system_seconds_total`, a counter",
        "cgroup_cpu_total_seconds": "is now `jobs_cpu_seconds_total`, a counter that includes processes that ended",
        "cgroup_cpus": "is now `jobs_cores`",
        "cgroup_cpu_info": "the cores are the label core of `jobs_core_threads`",
        "cgroup_info": "is now `jobs_info`, with account and partition; all metrics have the label slurm_job",
        "cgroup_memory_rss_bytes": "is now `jobs_memory_anon_bytes`; `jobs_memory_shmem_bytes` is shared memory",
        "cgroup_memory_cache_bytes": "is now `jobs_memory_file_bytes`",
        "cgroup_memory_used_bytes": "is now `jobs_memory_current_bytes`; its peak is `jobs_memory_peak_bytes`",
        "cgroup_memory_total_bytes": "is now `jobs_memory_limit_bytes`, absent without a limit; it was 2^63 then",
        "cgroup_memory_fail_count": "is now `jobs_memory_events_total`, by event: max, oom_kill and others",
        "cgroup_memsw_used_bytes": "is now `jobs_memory_swap_bytes`, swap alone; it was memory and swap on v1",
        "cgroup_memsw_total_bytes": "is now `jobs_memory_swap_limit_bytes`, swap alone; it was memory and swap on v1",
        "cgroup_memsw_fail_count": "is now `jobs_memory_events_total`, by event",
        "cgroup_process_exec_count": "is now `jobs_processes`; by program: `jobs_program_threads`",
        "cgroup_exporter_collect_error": "is now `slurmscope_node_read_errors_total`, by what could not be read",
    },
)

JOBSTATS = _system(
    "jobstats",
    cgroups={"cgroup_uid": "is the label `uid` of `jobs_info`, with the user's name"},
    GPUs={
        "nvidia_gpu_duty_cycle": "is now `gpu_utilization_ratio`, where 100 % is 1; of a job: "
        "`jobs_gpu_held_utilization_ratio`",
        "nvidia_gpu_memory_total_bytes": "is now `gpu_memory_size_bytes`; of a job: `jobs_gpu_held_memory_size_bytes`",
        "nvidia_gpu_memory_used_bytes": "is now `gpu_memory_used_bytes`; of a job's processes: "
        "`jobs_gpu_held_memory_bytes`",
        "nvidia_gpu_num_devices": "is the number of series of `gpu_info`",
        "nvidia_gpu_power_usage_milliwatts": "is now `gpu_power_watts`, in watts",
        "nvidia_gpu_temperature_celsius": "is now `gpu_temperature_celsius`",
        "nvidia_gpu_jobId nvidia_gpu_jobUid": "is a label of `jobs_gpu_held`; it was the value",
    },
)

CEEMS = _system(
    "ceems",
    units={
        "ceems_compute_units": "is now `jobs_on_node`",
        "ceems_compute_unit_cpu_user_seconds_total": "is now `jobs_cpu_user_seconds_total`",
        "ceems_compute_unit_cpu_system_seconds_total": "is now `jobs_cpu_system_seconds_total`",
        "ceems_compute_unit_cpus": "is now `jobs_cores`",
        "ceems_compute_unit_cpu_psi_seconds ceems_compute_unit_memory_psi_seconds "
        "ceems_compute_unit_blkio_psi_seconds": ("is now `jobs_pressure_seconds_total`, by resource and kind"),
        "ceems_compute_unit_memory_rss_bytes": "is now `jobs_memory_anon_bytes`; and `jobs_memory_shmem_bytes`",
        "ceems_compute_unit_memory_cache_bytes": "is now `jobs_memory_file_bytes`",
        "ceems_compute_unit_memory_used_bytes": "is now `jobs_memory_current_bytes`; peak: `jobs_memory_peak_bytes`",
        "ceems_compute_unit_memory_total_bytes": "is now `jobs_memory_limit_bytes`, absent without a limit",
        "ceems_compute_unit_memory_fail_count": "is now `jobs_memory_events_total`, by event",
        "ceems_compute_unit_memsw_used_bytes": "is now `jobs_memory_swap_bytes`, swap alone",
        "ceems_compute_unit_memsw_total_bytes": "is now `jobs_memory_swap_limit_bytes`, swap alone",
        "ceems_compute_unit_memsw_fail_count": "is now `jobs_memory_events_total`, by event",
        "ceems_compute_unit_blkio_read_total_bytes": "is now `jobs_block_read_bytes_total`",
        "ceems_compute_unit_blkio_write_total_bytes": "is now `jobs_block_write_bytes_total`",
        "ceems_compute_unit_blkio_read_total_requests": "is now `jobs_block_reads_total`",
        "ceems_compute_unit_blkio_write_total_requests": "is now `jobs_block_writes_total`",
        "ceems_compute_unit_rdma_hca_handles ceems_compute_unit_rdma_hca_objects": (
            "slurmscope does not count RDMA handles; bytes of InfiniBand: `jobs_network_receive_bytes_total`"
        ),
        "ceems_compute_unit_gpu_index_flag": "is now `jobs_gpu_held`, by index; the UUID: `jobs_gpu_held_device_info`",
        "ceems_compute_unit_gpu_sm_count": "slurmscope does not count them; MIG instances have the label `mig`",
        "ceems_scrape_collector_success": "is now `slurmscope_collector_success`",
        "ceems_scrape_collector_duration_seconds": "is now `slurmscope_collector_duration_seconds`",
    },
    energy={
        "ceems_rapl_package_joules_total ceems_rapl_dram_joules_total": (
            "is now `slurm_node_energy_domain_joules_total`, by domain; of a job: `jobs_energy_joules_total`"
        ),
        "ceems_rapl_package_power_limit_watts_total ceems_rapl_dram_power_limit_watts_total": (
            "slurmscope does not export power limits"
        ),
        "ceems_ipmi_dcmi_current_watts ceems_redfish_current_watts ceems_cray_pm_counters_power_watts "
        "ceems_hwmon_power_current_watts": "is now `slurm_node_power_watts`, of the best source, which "
        "`slurm_node_energy_source_info` names",
        "ceems_ipmi_dcmi_avg_watts ceems_ipmi_dcmi_min_watts ceems_ipmi_dcmi_max_watts ceems_redfish_avg_watts "
        "ceems_redfish_min_watts ceems_redfish_max_watts ceems_hwmon_power_avg_watts ceems_hwmon_power_min_watts "
        "ceems_hwmon_power_max_watts": "Prometheus computes it: `avg_over_time(slurm_node_power_watts[1h])`",
        "ceems_cray_pm_counters_energy_joules ceems_hwmon_energy_current_joules": (
            "is now `slurm_node_energy_joules_total`"
        ),
    },
    node={
        "ceems_cray_pm_counters_temp_celsius": "slurmscope has temperatures of GPUs only: `gpu_temperature_celsius`",
        "ceems_cpu_seconds_total ceems_cpu_count ceems_cpu_per_core_count": _NODE_EXPORTER,
    },
)

_JOB_STATES = (
    "pending",
    "running",
    "suspended",
    "cancelled",
    "completing",
    "completed",
    "configuring",
    "failed",
    "timeout",
    "preempted",
    "node_fail",
)


def _names(prefix: str, *suffixes: str) -> str:
    return " ".join(prefix + suffix for suffix in suffixes)


SCKYZO = _system(
    "sckyzo-exporter",
    jobs={
        _names(
            "slurm_queue_", *_JOB_STATES
        ): "is now `slurm_partition_jobs` and `slurm_user_jobs`, by state; a user in "
        "a partition, and reasons by user, are not combined",
        _names("slurm_cores_", *_JOB_STATES): "is now `slurm_partition_job_cpus` and `slurm_user_job_cpus`, by state",
        _names("slurm_jobs_", *_JOB_STATES): "is now `slurm_jobs`, by state; ended jobs: `slurm_jobs_ended_total`",
        _names("slurm_jobs_cores_", "running", "pending"): "is now `slurm_job_cpus`, by state",
        _names("slurm_account_jobs_", "pending", "running", "suspended"): "is now `slurm_account_jobs`, by state",
        "slurm_account_cpus_running": "is now `slurm_account_job_cpus`, by state",
        "slurm_account_gpus_running": "is now `slurm_account_job_gres`, by state",
        _names("slurm_user_jobs_", "pending", "running", "suspended"): "is now `slurm_user_jobs`, by state",
        "slurm_user_cpus_running": "is now `slurm_user_job_cpus`, by state",
        "slurm_user_gpus_running": "is now `slurm_user_job_gres`, by state",
        "slurm_job_count_completed": "is now `slurm_jobs_ended_total`, a counter",
        "slurm_job_cpu_hours_allocated": "is now `slurm_ended_job_cpu_seconds_total`, a counter in seconds",
        "slurm_job_cpu_efficiency_avg slurm_job_mem_efficiency_avg": "a mean of percentages hides large jobs: "
        "the portal and the reports have the use of each job, user and account",
        "slurm_sacct_last_refresh_timestamp_seconds": "is now `slurm_completions_read_until_timestamp_seconds`",
    },
    nodes={
        "slurm_cpus_alloc slurm_cpus_other": "is now `slurm_cpus`, by state",
        "slurm_gpus_other": "is now `slurm_gres`, by state",
        "slurm_gpus_utilization": "allocated over all GPUs of `slurm_gres`; how busy they are: `gpu_utilization_ratio`",
        _names(
            "slurm_nodes_",
            *[
                "alloc",
                "comp",
                "down",
                "drain",
                "err",
                "fail",
                "idle",
                "inval",
                "maint",
                "mix",
                "resv",
                "other",
                "planned",
                "total",
            ],
        ): (
            "is now `slurm_partition_nodes` by base state, and `slurm_partition_nodes_flagged`; a node can be idle and "
            "drained"
        ),
        "slurm_node_cpu_alloc": "is now `slurm_node_allocated_cpus`",
        "slurm_node_cpu_total": "is now `slurm_node_cpus`",
        "slurm_node_cpu_idle slurm_node_cpu_other": "is `slurm_node_cpus` less `slurm_node_allocated_cpus`, where "
        "`slurm_node_usable` is 1",
        "slurm_node_mem_alloc": "is now `slurm_node_allocated_memory_bytes`, in bytes",
        "slurm_node_mem_total": "is now `slurm_node_memory_bytes`, in bytes",
        "slurm_node_status": "is now `slurm_node_state_info`; partitions are in `slurm_node_partition_info`",
        "slurm_node_gres_total": "is now `slurm_node_gres`, with the model as a label",
        "slurm_node_drain_reason_info": "is now `slurm_node_drain_info`",
        _names("slurm_partition_cpus_", "allocated", "idle", "other", "total"): (
            "is now `slurm_partition_cpus`, by state"
        ),
        "slurm_partition_gpus_allocated slurm_partition_gpus_idle": "is now `slurm_partition_gres`, by state",
        "slurm_partition_jobs_pending slurm_partition_jobs_running": "is now `slurm_partition_jobs`, by state",
    },
    others={
        "slurm_account_fairshare_raw_usage_cpu_seconds": "is now `slurm_account_fairshare_raw_usage_seconds`",
        "slurm_user_fairshare_raw_usage_cpu_seconds": "is now `slurm_user_fairshare_raw_usage_seconds`",
        "slurm_license_total": "is now `slurm_licenses`",
        "slurm_license_used": "is now `slurm_licenses_used`",
        "slurm_license_free": "is now `slurm_licenses_free`",
        "slurm_license_reserved": "is now `slurm_licenses_reserved`",
        _names("slurm_reservation_nodes_", *["alloc", "idle", "mix", "down", "drain", "planned", "other"]): (
            "is now `slurm_reservation_state_nodes`, by state"
        ),
        "slurm_reservation_nodes_healthy": "is now `slurm_reservation_healthy_nodes`",
        "slurm_reservation_start_time_seconds": "is now `slurm_reservation_start_timestamp_seconds`",
        "slurm_reservation_end_time_seconds": "is now `slurm_reservation_end_timestamp_seconds`",
        "slurm_reservation_node_count": "is now `slurm_reservation_nodes`",
        "slurm_reservation_core_count": "is now `slurm_reservation_cores`",
        _names("slurm_scheduler_jobs_", *["submitted", "started", "completed", "canceled", "failed"]): (
            "has `_total` at its end now, and is a counter: `slurm_scheduler_jobs_started_total` and others"
        ),
        "slurm_scheduler_queue_size": "is now `slurm_scheduler_agent_queue_size`",
        "slurm_scheduler_last_cycle": "is now `slurm_scheduler_last_cycle_seconds`, in seconds",
        "slurm_scheduler_mean_cycle": "is now `slurm_scheduler_mean_cycle_seconds`, in seconds",
        "slurm_scheduler_cycle_per_minute": "is now `slurm_scheduler_cycles_per_minute`",
        "slurm_scheduler_backfill_last_cycle": "is now `slurm_backfill_last_cycle_seconds`, in seconds",
        "slurm_scheduler_backfill_mean_cycle": "is now `slurm_backfill_mean_cycle_seconds`, in seconds",
        "slurm_scheduler_backfill_depth_mean": "is now `slurm_backfill_mean_depth`",
        "slurm_scheduler_backfilled_jobs_since_start_total": "is now `slurm_backfill_jobs_total`",
        "slurm_scheduler_backfilled_jobs_since_cycle_total": "is now `slurm_backfill_jobs_since_reset`",
        "slurm_scheduler_backfilled_heterogeneous_total": "is now `slurm_backfill_het_components_total`",
        "slurm_rpc_stats": "is now `slurm_rpc_requests_total`",
        "slurm_rpc_stats_total_time slurm_rpc_stats_avg_time": "is now `slurm_rpc_seconds_total`; the mean is its rate "
        "over that of `slurm_rpc_requests_total`",
        "slurm_user_rpc_stats": "is now `slurm_rpc_user_requests_total`",
        "slurm_user_rpc_stats_total_time slurm_user_rpc_stats_avg_time": "is now `slurm_rpc_user_seconds_total`",
        "slurm_exporter_collector_success": "is now `slurmscope_collector_success`",
        "slurm_exporter_collector_duration_seconds": "is now `slurmscope_collector_duration_seconds`",
        "slurm_exporter_cache_age_seconds": "is now `slurmscope_reading_age_seconds`",
        "slurm_exporter_command_duration_seconds": "is now `slurmscope_reading_duration_seconds`",
        "slurm_exporter_command_errors_total": "is now `slurmscope_reading_errors_total`",
    },
)

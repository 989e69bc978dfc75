# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of rivosinc's prometheus-slurm-exporter, releases 1.5 to 1.7, and of later contributions."""

from __future__ import annotations

from slurmscope.migrate.old_systems import MetricGroup, OldSystem, old

_DURATION = "same: milliseconds"
_WHOLE_JOB = (
    "binary units, and memory of the whole job. It was the request per node or per CPU, whatever the number of nodes"
)
_CREDITS = "read from scredits, which is not part of Slurm"

_JOBS = (
    old("slurm_user_state_total", "slurm_user_cpu_alloc"),
    old("slurm_user_mem_alloc", difference=_WHOLE_JOB),
    old(
        "slurm_partition_job_state_total",
        difference='a pending job for several partitions counts in each; it was under `partition="a,b"`',
    ),
    old("slurm_account_job_state_total", "slurm_account_job_state_cpu_alloc"),
    old("slurm_account_job_state_mem_alloc", difference=_WHOLE_JOB),
    old(
        "slurm_account_cpu_alloc",
        "slurm_account_mem_alloc",
        difference="names of releases up to 1.5. Only running jobs count; pending ones were added",
    ),
    old("slurm_job_count_per_state", difference="was in the README only"),
    old(
        "slurm_feature_total",
        difference="true features, without the counts and brackets of a constraint; the default mode put every job "
        'under `feature=""`. Jobs that request none keep `feature=""`',
    ),
    old("slurm_feature_cpu_alloc", "slurm_feature_mem_alloc", difference="likewise; only running jobs count"),
    old(
        "slurm_pending_reason_total",
        difference="same texts, also `(ReqNodeNotAvail, UnavailableNodes)` with its parentheses",
    ),
    old("slurm_job_scrape_duration", difference=_DURATION, is_volatile=True),
    old(
        "slurm_job_scrape_error",
        "job_scrape_errors",
        difference="the first was in the README, the second in the page; both are served. Failed commands count",
    ),
    old(
        "slurm_job_cpu_alloc",
        "slurm_job_mem_alloc",
        difference="of traced jobs, or of every running job with `--collector.job_info`",
    ),
    old(
        "slurm_job_alloc_cpus",
        "slurm_job_alloc_mem",
        missing="described by the older exporter and never served; see `slurm_job_cpu_alloc`",
    ),
)

_NODES = (
    old("slurm_cpus_total", "slurm_cpus_idle", "slurm_cpu_load"),
    old("slurm_cpus_per_state", "slurm_node_count_per_state"),
    old("slurm_mem_real", difference="binary units"),
    old("slurm_mem_free", difference="binary units; a node that does not report it is left out; it counted as 0"),
    old(
        "slurm_mem_alloc",
        difference="memory allocated by the scheduler. Up to 1.7 it was the memory that the operating system did not "
        "report as free",
    ),
    old(
        "slurm_partition_total_cpus",
        "slurm_partition_idle_cpus",
        "slurm_partition_cpu_load",
        "slurm_partition_weight",
    ),
    old("slurm_partition_real_mem", "slurm_partition_free_mem", difference="as for the cluster: binary units"),
    old("slurm_partition_alloc_cpus"),
    old("slurm_partition_alloc_mem", difference="as `slurm_mem_alloc`"),
    old("slurm_partition_node_count"),
    old("slurm_gpus_total", "slurm_gpus_alloc"),
    old("slurm_gpus_idle", difference="only on nodes that accept jobs"),
    old("slurm_gpus_total_per_type", "slurm_gpus_alloc_per_type"),
    old("slurm_gpus_idle_per_type", difference="only on nodes that accept jobs"),
    old("slurm_partition_total_gpus"),
    old("slurm_partition_alloc_gpus"),
    old("slurm_node_scrape_duration", difference=_DURATION, is_volatile=True),
    old("slurm_node_scrape_error", difference="failed commands, not unparsable lines"),
)

_SCHEDULER = (
    old("slurm_rpc_user_count", "slurm_rpc_user_total_time", difference="same; microseconds"),
    old(
        "slurm_rpc_msg_type_count",
        "slurm_rpc_msg_type_total_time",
        difference="same; microseconds. Help texts of the two times were swapped",
    ),
    old("slurm_rpc_msg_type_avg_time", difference="total by count, not rounded"),
    old("slurm_daemon_thread_count", "slurm_dbd_agent_queue_size"),
    old("slurm_backfill_job_count"),
    old("slurm_backfill_cycle_count", difference="the number of cycles. It was the sum of their microseconds"),
    old("slurm_backfill_cycle_counter", difference="same: the number of cycles"),
    old("slurm_backfill_last_depth", difference="same; stays without `metrics.compat`"),
    old("slurm_backfill_last_depth_try_sched"),
    old("slurm_diag_scrape_duration", difference=_DURATION, is_volatile=True),
    old("slurm_diag_scrape_error"),
)

_ACCOUNTS = (
    old("slurm_lic_total", "slurm_lic_used", "slurm_lic_free", "slurm_lic_reserved", difference="0 is served"),
    old(
        "slurm_lic_last_consumed",
        "slurm_lic_last_deficit",
        difference="only for remote licences, where Slurm reports it (23.02 and later)",
    ),
    old("slurm_lic_scrape_error"),
    old(
        "slurm_account_cpu_limit",
        "slurm_account_job_alloc_limit",
        "slurm_account_job_limit",
        difference="same; limits of users are never reported as those of their account",
    ),
    old("slurm_account_mem_limit", difference="bytes; it was 1000 times the megabytes in 1.6.2"),
    old("slurm_limit_scrape_duration", difference=_DURATION, is_volatile=True),
    old(
        "slurm_account_scrape_error",
        "slurm_account_collect_error",
        difference="the first was counted and never served; both are the failed readings of limits",
    ),
    old(
        "slurm_account_fairshare",
        difference="the fair-share factor; it was the normalised shares, which are "
        "`slurm_account_fairshare_norm_shares`. Absent under Slurm's default, the fair tree, where only users have a "
        "factor. Stays without `metrics.compat`",
    ),
    old("slurm_fairshare_scrape_duration", difference=_DURATION, is_volatile=True),
    old("slurm_fairshare_collect_error"),
    old(
        "slurm_scredits_allocation_total",
        "slurm_scredits_remaining",
        "slurm_scredits_used",
        "slurm_scredits_used_percent",
        "slurm_scredits_scrape_duration",
        "slurm_credits_scrape_error",
        missing=_CREDITS,
    ),
)

_TRACES = (
    old(
        "slurm_proc_cpu_usage",
        "slurm_proc_mem_usage",
        "slurm_proc_threadcount",
        "slurm_proc_read_bytes",
        "slurm_proc_write_bytes",
        difference="sums over all traced processes of the job; it was the last sample of any node or rank. One "
        "series per process: `slurm_trace_*`",
    ),
    old("slurm_proc_pid", difference="the lowest PID of the host; the host is Slurm's name of the node"),
)

FLAGS = {
    "-web.listen-address=:9092": "same default; may be repeated",
    "-web.telemetry-path=/metrics": "same default",
    "-web.log-level=info": "an unknown level is an error; it meant `info`. `warning` means `warn`",
    "-slurm.poll-limit=10": "same default. Applies to every command, also after failures and empty output; units such "
    "as `30s` work. 0 is an error",
    "-slurm.cli-fallback": "the default: 25 to 60 times cheaper than JSON",
    "-slurm.cli-fallback=false": "needs the extra `rest`",
    "-slurm.collect-diags": "on by default",
    "-slurm.collect-licenses": "on by default",
    "-slurm.collect-limits": "on by default",
    "-slurm.squeue-cli=squeue": "",
    "-slurm.sinfo-cli=sinfo": "",
    "-slurm.diag-cli=sdiag": "",
    "-slurm.lic-cli=scontrol": "",
    "-slurm.sacctmgr-cli=sacctmgr": "",
    "-slurm.collect-credits": "",
    "-slurm.scredits-cli=scredits": "",
    "-metrics.exclude=^slurm_user_": "same; a Python regular expression",
    "-trace.enabled": "same; posts need a credential unless `--trace.plain-networks` lists their network: "
    "[tracing](../tracing.md)",
    "-trace.enabled=false": "same, the default",
    "-trace.path=/trace": "same",
    "-trace.rate=10": "the interval of senders that do not state theirs. A sample expires after three intervals: after "
    "one, series of the wrapper script vanished between two samples",
}
"""Flags of the older exporter, with examples of values, and what differs."""

SYSTEM = OldSystem(
    page="slurm-exporter",
    groups=(
        MetricGroup(title="Jobs", metrics=_JOBS),
        MetricGroup(
            title="Nodes",
            note="A node has one state and is counted once, however many partitions it is in; the state `a&b` is gone. "
            "States are spelled as `sinfo` does in its long form, suffix included (`idle~`, `down*`, `mixed-`), as up "
            "to 1.7; contributions after 1.7 had the short form. The default partition has no `*`.",
            metrics=_NODES,
        ),
        MetricGroup(title="Scheduler", note="Always on; it was `-slurm.collect-diags`.", metrics=_SCHEDULER),
        MetricGroup(
            title="Licences, limits, fair share",
            note="Always on; they were `-slurm.collect-licenses` and `-slurm.collect-limits`.",
            metrics=_ACCOUNTS,
        ),
        MetricGroup(title="Traced jobs", note="With `--trace.enabled`; see [tracing](../tracing.md).", metrics=_TRACES),
    ),
)

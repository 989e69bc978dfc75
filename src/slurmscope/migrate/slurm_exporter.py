# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of rivosinc's prometheus-slurm-exporter, releases 1.5 to 1.7, and of later contributions."""

from __future__ import annotations

import math

from slurmscope.core.units import MIB
from slurmscope.migrate.old_systems import (
    MIB_FACTOR,
    DocumentedReason,
    MetricGroup,
    OldSystem,
    Pages,
    SeriesChange,
    at_least,
    at_most,
    both,
    factor,
    has,
    is_close,
    old,
    same_total,
    total,
    truncated,
    without_series,
)

_JSON = "`-slurm.cli-fallback=false`"


def _is_json(_: SeriesChange, pages: Pages) -> bool:
    """Recognize the page of the JSON mode by its memory, which is in megabytes."""
    was, now = total(pages.old, "slurm_mem_real"), total(pages.ours, "slurm_mem_real")
    return was is not None and now is not None and is_close(now, MIB * was)


def _is_whole_job(change: SeriesChange, pages: Pages) -> bool:
    """Hold up to the memory per CPU times the CPUs of the same jobs."""
    cpus = total(pages.ours, change.metric.replace("_mem_", "_cpu_"), **change.labels) or 1.0
    factor_ = (change.now or 0.0) / change.was if change.was else 0.0
    return MIB_FACTOR * 0.998 <= factor_ <= MIB_FACTOR * 1.002 * max(1.0, cpus)


def _is_in_each_partition(change: SeriesChange, pages: Pages) -> bool:
    """Hold for ``a,b`` if both are here, and for ``a`` if it has its own jobs and those of ``a,b``."""
    names = change.labels.get("partition", "").split(",")
    state = change.labels.get("state", "")
    if change.now is None:
        return len(names) > 1 and all(total(pages.ours, change.metric, partition=p, state=state) for p in names)
    shared = sum(
        sample.value
        for sample in pages.old[change.metric].samples
        if names[0] in (several := sample.labels["partition"].split(",")) and len(several) > 1
        if sample.labels.get("state") == state
    )
    is_more = shared > 0 and change.now >= change.was + shared
    return is_more and (change.now == change.was + shared or _counts_tasks(change, pages))


def _counts_tasks(change: SeriesChange, pages: Pages) -> bool:
    """Hold for more pending jobs than in JSON, with its one record for each array, but not more than all."""
    everything = total(pages.ours, "slurm_job_count_per_state")
    is_pending = change.labels.get("state", "PENDING") == "PENDING"
    is_more = change.now is not None and change.was <= change.now <= (everything or math.inf)
    return is_pending and is_more and _is_json(change, pages)


def _is_one_feature(change: SeriesChange, pages: Pages) -> bool:
    """Hold for the only series of the default mode: its jobs in all states and with all features."""
    of_users = change.metric.replace("slurm_feature_total", "slurm_user_state_total").replace("_feature_", "_user_")
    everything, running = total(pages.old, of_users), total(pages.ours, of_users)
    is_everything = everything is not None and is_close(change.was, everything)
    return is_everything and total(pages.old, change.metric) == change.was and (change.now or 0.0) <= (running or 0.0)


def _was_not_free(change: SeriesChange, pages: Pages) -> bool:
    """Hold for what the operating systems had not reported as free."""
    partition = {label: value for label, value in change.labels.items() if label == "partition"}
    stem = "slurm_partition" if partition else "slurm"
    real, free = ("real_mem", "free_mem") if partition else ("mem_real", "mem_free")
    had, was_free = total(pages.old, f"{stem}_{real}", **partition), total(pages.old, f"{stem}_{free}", **partition)
    if had is None or was_free is None or _is_json(change, pages):
        return False
    # By state there may be less than nothing, which was left out.
    is_rest = 0 < change.was <= had if partition else is_close(change.was, had - was_free)
    allocated = total(pages.ours, f"{stem}_allocated_memory_bytes", **partition)
    now = total(pages.ours, change.metric, **partition)
    return is_rest and (allocated is None or is_close(now or 0.0, allocated))


def _was_idle_anyway(change: SeriesChange, pages: Pages) -> bool:
    """Hold for all CPUs that were not allocated, also those of nodes that are down or drained."""
    if "partition" in change.labels:
        cpus, used = "slurm_partition_total_cpus", total(pages.ours, "slurm_partition_alloc_cpus", **change.labels)
    else:
        cpus, used = "slurm_cpus_total", total(pages.ours, "slurm_cpus", state="allocated")
    whole = total(pages.ours, cpus, **change.labels)
    is_all = whole is not None and used is not None and is_close(change.was, whole - used)
    return is_all and at_most()(change, pages)


def _is_cycle_counter(change: SeriesChange, pages: Pages) -> bool:
    return change.now == total(pages.old, "slurm_backfill_cycle_counter")


def _was_norm_shares(change: SeriesChange, pages: Pages) -> bool:
    shares = total(pages.ours, "slurm_account_fairshare_norm_shares", **change.labels)
    return shares is not None and is_close(change.was, shares)


_DURATION = "same: milliseconds"
_CREDITS = "read from scredits, which is not part of Slurm"

_WHOLE_JOB = DocumentedReason(
    "binary units, and memory of the whole job. It was the request per node or per CPU, whatever the number of nodes",
    _is_whole_job,
)
_JSON_MEMORY = DocumentedReason(f"{_JSON} had megabytes times 1,000,000,000", factor(MIB / 1e9))
_ARRAYS = DocumentedReason(
    f"every task of an array counts; with {_JSON} pending tasks were one job",
    _counts_tasks,
)
_BINARY = DocumentedReason(f"binary units; {_JSON} had megabytes", factor(MIB_FACTOR, MIB))
_STATES = DocumentedReason(
    f"one state for each node, as sinfo shows it in its long form; with {_JSON} it was the base state, so that a "
    "draining node was `mixed`, and before 1.7 `a&b` for a node that sinfo showed in two states",
    both(same_total("state", MIB), lambda change, pages: "&" in change.labels["state"] or _is_json(change, pages)),
)
_IDLE = DocumentedReason(
    f"without nodes that are down or drained, as sinfo counts; {_JSON} counted them", _was_idle_anyway
)
_LOAD = DocumentedReason(f"{_JSON} had the load times 100", factor(0.01))
_ALLOCATED = DocumentedReason(
    "memory allocated by the scheduler. Up to 1.7 it was the memory that the operating system did not report as free",
    _was_not_free,
)
_USABLE = DocumentedReason("only on nodes that accept jobs", at_most())
_FEATURES = (
    DocumentedReason(
        'true features; the default mode put every job under `feature=""`, in any state. Jobs that request none keep '
        '`feature=""`',
        _is_one_feature,
    ),
    DocumentedReason(
        "without the counts and brackets of a constraint", both(without_series, has("feature", *"[]()*|,"))
    ),
)

_JOBS = (
    old("slurm_user_state_total", reasons=[_ARRAYS]),
    old("slurm_user_cpu_alloc"),
    old("slurm_user_mem_alloc", reasons=[_WHOLE_JOB, _JSON_MEMORY]),
    old(
        "slurm_partition_job_state_total",
        reasons=[
            DocumentedReason(
                'a pending job for several partitions counts in each; it was under `partition="a,b"`',
                _is_in_each_partition,
            ),
            _ARRAYS,
        ],
    ),
    old("slurm_account_job_state_total", reasons=[_ARRAYS]),
    old("slurm_account_job_state_cpu_alloc"),
    old("slurm_account_job_state_mem_alloc", reasons=[_WHOLE_JOB, _JSON_MEMORY]),
    old(
        "slurm_account_cpu_alloc",
        note="name of releases up to 1.5",
        reasons=[DocumentedReason("only running jobs count; pending ones were added", at_most())],
    ),
    old(
        "slurm_account_mem_alloc",
        note="name of releases up to 1.5",
        reasons=[DocumentedReason("only running jobs count; pending ones were added", at_most(MIB_FACTOR)), _WHOLE_JOB],
    ),
    old("slurm_job_count_per_state", note="was in the README only"),
    old("slurm_feature_total", reasons=[*_FEATURES, _ARRAYS]),
    old("slurm_feature_cpu_alloc", note="only running jobs count", reasons=_FEATURES),
    old("slurm_feature_mem_alloc", note="only running jobs count", reasons=[*_FEATURES, _JSON_MEMORY]),
    old(
        "slurm_pending_reason_total",
        note="same texts, also `(ReqNodeNotAvail, UnavailableNodes)` with its parentheses",
        reasons=[_ARRAYS],
    ),
    old("slurm_job_scrape_duration", note=_DURATION, is_volatile=True),
    old(
        "slurm_job_scrape_error",
        "job_scrape_errors",
        note="the first was in the README, the second in the page; both are served. Failed commands count",
    ),
    old("slurm_job_cpu_alloc", note="of traced jobs, or of every running job with `--collector.job_info`"),
    old(
        "slurm_job_mem_alloc",
        note="of traced jobs, or of every running job with `--collector.job_info`",
        reasons=[_WHOLE_JOB, _JSON_MEMORY],
    ),
    old(
        "slurm_job_alloc_cpus",
        "slurm_job_alloc_mem",
        missing="described by the older exporter and never served; see `slurm_job_cpu_alloc`",
    ),
)

_NODES = (
    old("slurm_cpus_total"),
    old("slurm_cpus_idle", reasons=[_IDLE]),
    old("slurm_cpu_load", reasons=[_LOAD]),
    old("slurm_cpus_per_state", "slurm_node_count_per_state", reasons=[_STATES]),
    old("slurm_mem_real", reasons=[_BINARY]),
    old("slurm_mem_free", note="a node that does not report it is left out; it counted as 0", reasons=[_BINARY]),
    old("slurm_mem_alloc", reasons=[_ALLOCATED, _BINARY]),
    old("slurm_partition_total_cpus", "slurm_partition_weight"),
    old("slurm_partition_idle_cpus", reasons=[_IDLE]),
    old("slurm_partition_cpu_load", reasons=[_LOAD]),
    old("slurm_partition_real_mem", "slurm_partition_free_mem", reasons=[_BINARY]),
    old("slurm_partition_alloc_cpus", reasons=[_STATES]),
    old("slurm_partition_alloc_mem", reasons=[_BINARY, _STATES, _ALLOCATED]),
    old("slurm_partition_node_count", reasons=[_STATES]),
    old("slurm_gpus_total", "slurm_gpus_alloc"),
    old("slurm_gpus_idle", reasons=[_USABLE]),
    old("slurm_gpus_total_per_type", "slurm_gpus_alloc_per_type"),
    old("slurm_gpus_idle_per_type", reasons=[_USABLE]),
    old("slurm_partition_total_gpus"),
    old("slurm_partition_alloc_gpus", reasons=[_STATES]),
    old("slurm_node_scrape_duration", note=_DURATION, is_volatile=True),
    old("slurm_node_scrape_error", note="failed commands, not unparsable lines"),
)

_SCHEDULER = (
    old("slurm_rpc_user_count", "slurm_rpc_user_total_time", note="same; microseconds"),
    old(
        "slurm_rpc_msg_type_count",
        "slurm_rpc_msg_type_total_time",
        note="same; microseconds. Help texts of the two times were swapped",
    ),
    old("slurm_rpc_msg_type_avg_time", reasons=[DocumentedReason("total by count, not rounded", truncated)]),
    old("slurm_daemon_thread_count", "slurm_dbd_agent_queue_size"),
    old("slurm_backfill_job_count"),
    old(
        "slurm_backfill_cycle_count",
        reasons=[DocumentedReason("the number of cycles. It was the sum of their microseconds", _is_cycle_counter)],
    ),
    old("slurm_backfill_cycle_counter", note="same: the number of cycles"),
    old("slurm_backfill_last_depth", note="same; stays without `metrics.compat`"),
    old("slurm_backfill_last_depth_try_sched"),
    old("slurm_diag_scrape_duration", note=_DURATION, is_volatile=True),
    old("slurm_diag_scrape_error"),
)

_ACCOUNTS = (
    old("slurm_lic_total", "slurm_lic_used", "slurm_lic_free", "slurm_lic_reserved", note="0 is served"),
    old(
        "slurm_lic_last_consumed",
        "slurm_lic_last_deficit",
        note="only for remote licences, where Slurm reports it (23.02 and later)",
    ),
    old("slurm_lic_scrape_error"),
    old(
        "slurm_account_cpu_limit",
        "slurm_account_job_alloc_limit",
        "slurm_account_job_limit",
        note="same; limits of users are never reported as those of their account",
    ),
    old(
        "slurm_account_mem_limit",
        reasons=[
            DocumentedReason(
                "binary units; it was 1000 times the megabytes in 1.6.2", factor(MIB_FACTOR, 1000 * MIB_FACTOR)
            )
        ],
    ),
    old("slurm_limit_scrape_duration", note=_DURATION, is_volatile=True),
    old(
        "slurm_account_scrape_error",
        "slurm_account_collect_error",
        note="the first was counted and never served; both are the failed readings of limits",
    ),
    old(
        "slurm_account_fairshare",
        note="absent under Slurm's default, the fair tree, where only users have a factor. Stays without "
        "`metrics.compat`",
        reasons=[
            DocumentedReason(
                "the fair-share factor; it was the normalised shares, which are `slurm_account_fairshare_norm_shares`",
                _was_norm_shares,
            )
        ],
    ),
    old("slurm_fairshare_scrape_duration", note=_DURATION, is_volatile=True),
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
        note="one series per process is `slurm_trace_*`",
        reasons=[
            DocumentedReason(
                "sums over all traced processes of the job; it was the last sample of any node or rank", at_least(0.5)
            )
        ],
    ),
    old(
        "slurm_proc_pid",
        note="the host is Slurm's name of the node",
        reasons=[DocumentedReason("the lowest PID of the host", at_most())],
    ),
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

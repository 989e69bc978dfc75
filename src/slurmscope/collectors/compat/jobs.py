# SPDX-License-Identifier: Apache-2.0
"""Export job counts under the metric names of older exporters.

Unlike theirs, memory (in bytes) and CPUs are those of the whole job, from its TRES; metrics with "alloc" in the
name and no state label count running jobs only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from slurmscope.collectors.job_views import Tables, ViewSums, add_up, known_memory
from slurmscope.metrics.family import Family, Labels, compat_gauge
from slurmscope.model.job_states import RUNNING
from slurmscope.model.jobs import JobGroup

PARTITION_JOBS = compat_gauge("slurm_partition_job_state_total", "Jobs by partition and state.", "partition", "state")
USER_JOBS = compat_gauge("slurm_user_state_total", "Jobs by user and state.", "username", "state")
USER_CPUS = compat_gauge("slurm_user_cpu_alloc", "CPUs of jobs by user and state.", "username", "state")
USER_MEMORY = compat_gauge("slurm_user_mem_alloc", "Memory of jobs in bytes, by user and state.", "username", "state")
ACCOUNT_JOBS = compat_gauge("slurm_account_job_state_total", "Jobs by account and state.", "account", "state")
ACCOUNT_STATE_CPUS = compat_gauge(
    "slurm_account_job_state_cpu_alloc", "CPUs of jobs by account and state.", "account", "state"
)
ACCOUNT_STATE_MEMORY = compat_gauge(
    "slurm_account_job_state_mem_alloc", "Memory of jobs in bytes, by account and state.", "account", "state"
)
ACCOUNT_CPUS = compat_gauge("slurm_account_cpu_alloc", "CPUs of running jobs by account.", "account")
ACCOUNT_MEMORY = compat_gauge("slurm_account_mem_alloc", "Memory of running jobs in bytes, by account.", "account")
STATE_JOBS = compat_gauge("slurm_job_count_per_state", "Jobs by state.", "state")
FEATURE_JOBS = compat_gauge(
    "slurm_feature_total", "Jobs by requested node feature; empty if none is requested.", "feature"
)
FEATURE_CPUS = compat_gauge("slurm_feature_cpu_alloc", "CPUs of running jobs by requested node feature.", "feature")
FEATURE_MEMORY = compat_gauge(
    "slurm_feature_mem_alloc", "Memory of running jobs in bytes, by requested node feature.", "feature"
)
REASON_JOBS = compat_gauge("slurm_pending_reason_total", "Pending jobs by reason.", "reason")
NCPUS = compat_gauge("ncpus", "CPUs of running jobs by user, in the selected partitions.", "user")

COMPAT_METRICS = (
    PARTITION_JOBS, USER_JOBS, USER_CPUS, USER_MEMORY, ACCOUNT_JOBS, ACCOUNT_STATE_CPUS, ACCOUNT_STATE_MEMORY,
    ACCOUNT_CPUS, ACCOUNT_MEMORY, STATE_JOBS, FEATURE_JOBS, FEATURE_CPUS, FEATURE_MEMORY, REASON_JOBS, NCPUS,
)  # fmt: skip

UNAVAILABLE = "ReqNodeNotAvail, UnavailableNodes"


def compat_families(sums_of: Mapping[str | None, ViewSums], tables: Tables) -> Iterator[Family]:
    """Yield the families with older names, given the sums of each view by its label."""
    by_user, by_account = sums_of["user"], sums_of["account"]
    running = {labels[:1]: total for labels, total in by_account.items() if labels[1] == RUNNING}
    yield Family(PARTITION_JOBS, _jobs(sums_of["partition"]))
    yield Family(USER_JOBS, _jobs(by_user))
    yield Family(USER_CPUS, _cpus(by_user))
    yield Family(USER_MEMORY, known_memory(by_user))
    yield Family(ACCOUNT_JOBS, _jobs(by_account))
    yield Family(ACCOUNT_STATE_CPUS, _cpus(by_account))
    yield Family(ACCOUNT_STATE_MEMORY, known_memory(by_account))
    yield Family(ACCOUNT_CPUS, _cpus(running))
    yield Family(ACCOUNT_MEMORY, known_memory(running))
    yield Family(STATE_JOBS, _jobs(sums_of[None]))
    yield from _feature_families(tables)
    yield Family(REASON_JOBS, _count_reasons(tables))


def ncpus_family(groups: Iterable[JobGroup], partitions: Collection[str]) -> Family:
    """Count the CPUs of running jobs by user; an empty collection selects all partitions."""
    counts: Counter[Labels] = Counter()
    for group in groups:
        if group.state == RUNNING and (not partitions or group.partitions[0] in partitions):
            counts[(group.user,)] += group.cpus
    return Family(NCPUS, counts)


def compat_reason(reason: str) -> str:
    """Return a reason as the older exporter spelled it: without parentheses, with one exception."""
    return f"({UNAVAILABLE})" if UNAVAILABLE in reason else reason


def _jobs(sums: ViewSums) -> dict[Labels, int]:
    return {labels: total.jobs for labels, total in sums.items()}


def _cpus(sums: ViewSums) -> dict[Labels, int]:
    return {labels: total.cpus for labels, total in sums.items()}


def _feature_families(tables: Tables) -> Iterator[Family]:
    labelled = [
        ((feature, state), total) for (names, state), total in tables.features.items() for feature in names or ("",)
    ]
    every_state = add_up((labels[:1], total) for labels, total in labelled)
    running = add_up((labels[:1], total) for labels, total in labelled if labels[1] == RUNNING)
    yield Family(FEATURE_JOBS, _jobs(every_state))
    yield Family(FEATURE_CPUS, _cpus(running))
    yield Family(FEATURE_MEMORY, known_memory(running))


def _count_reasons(tables: Tables) -> Counter[Labels]:
    counts: Counter[Labels] = Counter()
    for (_, reason), wait in tables.waits.items():
        counts[(compat_reason(reason),)] += wait.jobs
    return counts

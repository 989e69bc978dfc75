# SPDX-License-Identifier: Apache-2.0
"""Serve job counts under the names that dashboards of older exporters ask for.

The values are right where theirs were not: memory and CPUs are the whole job's, from its TRES, in bytes;
under a name with "alloc" and no state, only running jobs count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from slurmscope.collectors.job_views import Cell
from slurmscope.metrics.family import Family, Labels, seed_gauge
from slurmscope.model.jobs import PENDING, RUNNING, JobGroup

PARTITION_JOBS = seed_gauge("slurm_partition_job_state_total", "Jobs by partition and state.", "partition", "state")
USER_JOBS = seed_gauge("slurm_user_state_total", "Jobs by user and state.", "username", "state")
USER_CPUS = seed_gauge("slurm_user_cpu_alloc", "CPUs of jobs by user and state.", "username", "state")
USER_MEMORY = seed_gauge("slurm_user_mem_alloc", "Memory of jobs in bytes, by user and state.", "username", "state")
ACCOUNT_JOBS = seed_gauge("slurm_account_job_state_total", "Jobs by account and state.", "account", "state")
ACCOUNT_STATE_CPUS = seed_gauge(
    "slurm_account_job_state_cpu_alloc", "CPUs of jobs by account and state.", "account", "state"
)
ACCOUNT_STATE_MEMORY = seed_gauge(
    "slurm_account_job_state_mem_alloc", "Memory of jobs in bytes, by account and state.", "account", "state"
)
ACCOUNT_CPUS = seed_gauge("slurm_account_cpu_alloc", "CPUs of running jobs by account.", "account")
ACCOUNT_MEMORY = seed_gauge("slurm_account_mem_alloc", "Memory of running jobs in bytes, by account.", "account")
STATE_JOBS = seed_gauge("slurm_job_count_per_state", "Jobs by state.", "state")
FEATURE_JOBS = seed_gauge("slurm_feature_total", "Jobs by node feature they ask for; empty when none.", "feature")
FEATURE_CPUS = seed_gauge("slurm_feature_cpu_alloc", "CPUs of running jobs by node feature.", "feature")
FEATURE_MEMORY = seed_gauge("slurm_feature_mem_alloc", "Memory of running jobs in bytes, by node feature.", "feature")
REASON_JOBS = seed_gauge("slurm_pending_reason_total", "Pending jobs by reason.", "reason")
NCPUS = seed_gauge("ncpus", "CPUs of running jobs by user, in the partitions chosen for it.", "user")

SEED_METRICS = (
    PARTITION_JOBS, USER_JOBS, USER_CPUS, USER_MEMORY, ACCOUNT_JOBS, ACCOUNT_STATE_CPUS, ACCOUNT_STATE_MEMORY,
    ACCOUNT_CPUS, ACCOUNT_MEMORY, STATE_JOBS, FEATURE_JOBS, FEATURE_CPUS, FEATURE_MEMORY, REASON_JOBS, NCPUS,
)  # fmt: skip
USER_SEED_METRICS = (USER_JOBS, USER_CPUS, USER_MEMORY, NCPUS)

UNAVAILABLE = "ReqNodeNotAvail, UnavailableNodes"


def seed_families(
    cells: Iterable[Cell], groups: Iterable[JobGroup], ncpus_partitions: Collection[str]
) -> Iterator[Family]:
    """Yield every family whose name an older exporter made known."""
    sums: dict[str, Counter[Labels]] = {metric.name: Counter() for metric in SEED_METRICS}
    for cell in cells:
        _add_cell(sums, cell)
        if cell.state == RUNNING:
            _add_running(sums, cell, ncpus_partitions)
    for group in groups:
        _add_features(sums, group)
        if group.state == PENDING:
            sums[REASON_JOBS.name][(seed_reason(group.reason),)] += group.jobs
    for metric in SEED_METRICS:
        yield Family(metric, sums[metric.name])


def seed_reason(reason: str) -> str:
    """Return a reason as the older exporter spelled it: without parentheses, but for one."""
    return f"({UNAVAILABLE})" if UNAVAILABLE in reason else reason


def _add_cell(sums: dict[str, Counter[Labels]], cell: Cell) -> None:
    for partition in cell.partitions:
        sums[PARTITION_JOBS.name][partition, cell.state] += cell.jobs
    sums[STATE_JOBS.name][(cell.state,)] += cell.jobs
    by_user, by_account = (cell.user, cell.state), (cell.account, cell.state)
    sums[USER_JOBS.name][by_user] += cell.jobs
    sums[USER_CPUS.name][by_user] += cell.cpus
    sums[ACCOUNT_JOBS.name][by_account] += cell.jobs
    sums[ACCOUNT_STATE_CPUS.name][by_account] += cell.cpus
    if cell.memory_bytes is not None:
        sums[USER_MEMORY.name][by_user] += cell.memory_bytes
        sums[ACCOUNT_STATE_MEMORY.name][by_account] += cell.memory_bytes


def _add_running(sums: dict[str, Counter[Labels]], cell: Cell, ncpus_partitions: Collection[str]) -> None:
    sums[ACCOUNT_CPUS.name][(cell.account,)] += cell.cpus
    if cell.memory_bytes is not None:
        sums[ACCOUNT_MEMORY.name][(cell.account,)] += cell.memory_bytes
    if not ncpus_partitions or cell.partitions[0] in ncpus_partitions:
        sums[NCPUS.name][(cell.user,)] += cell.cpus


def _add_features(sums: dict[str, Counter[Labels]], group: JobGroup) -> None:
    for feature in group.features or ("",):
        sums[FEATURE_JOBS.name][(feature,)] += group.jobs
        if group.state == RUNNING:
            sums[FEATURE_CPUS.name][(feature,)] += group.cpus
            if group.memory_bytes is not None:
                sums[FEATURE_MEMORY.name][(feature,)] += group.memory_bytes

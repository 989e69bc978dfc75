# SPDX-License-Identifier: Apache-2.0
"""Tell how many jobs run and wait, what they hold and want, why they wait and for how long.

::

    slurm_partition_jobs{partition="debug",state="PENDING"} 12
    slurm_account_job_gres{account="physics",state="RUNNING",gres="gpu",model="a100"} 16
    slurm_partition_pending_jobs{partition="debug",reason="Priority"} 9
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmscope.collectors.job_seed_names import SEED_METRICS, USER_SEED_METRICS, seed_families
from slurmscope.collectors.job_views import ACCOUNT, CLUSTER, PARTITION, QOS, USER, merge, view_families
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Histogram, Labels, gauge, histogram
from slurmscope.model.jobs import PENDING, WAIT_BUCKETS_SECONDS, JobGroup, Jobs
from slurmscope.settings import setting

PENDING_JOBS = gauge(
    "slurm_partition_pending_jobs", "Pending jobs by partition and the reason why they wait.", "partition", "reason"
)
HELD_JOBS = gauge(
    "slurm_partition_held_jobs", "Pending jobs that somebody holds: the user or an administrator.", "partition", "by"
)
OLDEST = gauge(
    "slurm_partition_oldest_pending_age_seconds",
    "Time since the pending job that was submitted first was submitted, held jobs left out.",
    "partition",
)
WAITS = histogram(
    "slurm_job_wait_seconds",
    "Time from submission to start of jobs that started since the exporter did.",
    "partition",
    "qos",
    buckets=WAIT_BUCKETS_SECONDS,
)
UNREADABLE = gauge("slurm_job_unreadable_rows", "Rows of the last answer of squeue that could not be understood.")

VIEW_METRICS = tuple(metric for view in (CLUSTER, PARTITION, ACCOUNT, USER, QOS) for metric in view.metrics)

HELD_BY = {"JobHeldUser": "user", "JobHeldAdmin": "admin"}
_WORD = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsOptions:
    """What the collector leaves out."""

    account: bool = setting(True, help="Tell jobs apart by account.")
    user: bool = setting(True, help="Tell jobs apart by user.")
    qos: bool = setting(True, help="Tell jobs apart by QOS.")
    ncpus_partitions: tuple[str, ...] = setting(
        ("gpus",), help="Partitions that ncpus counts; an empty list means all. May be repeated.", metavar="PARTITION"
    )


def collect(options: JobsOptions, *, jobs: Jobs) -> Iterator[Family]:
    """Count the same groups in every view."""
    views = [CLUSTER, PARTITION]
    views += [ACCOUNT] * options.account + [USER] * options.user + [QOS] * options.qos
    cells = merge(jobs.groups)
    for view in views:
        yield from view_families(view, cells)
    yield from _waiting_families(jobs)
    left_out = USER_SEED_METRICS if not options.user else ()
    for family in seed_families(cells, jobs.groups, options.ncpus_partitions):
        is_account = "account" in family.metric.labels
        if family.metric not in left_out and (options.account or not is_account):
            yield family
    yield Family(UNREADABLE, {(): jobs.unreadable_rows})


def _waiting_families(jobs: Jobs) -> Iterator[Family]:
    pending = [group for group in jobs.groups if group.state == PENDING]
    yield Family(PENDING_JOBS, _count_pending(pending))
    yield Family(HELD_JOBS, _count_held(pending))
    yield Family(OLDEST, _oldest_ages(pending, jobs.taken_at_seconds))
    yield Family(WAITS, {labels: Histogram(tally.counts, tally.total_seconds) for labels, tally in jobs.waits.items()})


def reason_word(reason: str) -> str:
    """Return the word that names a reason: node lists and free text behind it would make endless series."""
    match = _WORD.match(reason.lstrip("("))
    return match[0] if match else "unknown"


def _count_pending(pending: Iterable[JobGroup]) -> Counter[Labels]:
    counts: Counter[Labels] = Counter()
    for group in pending:
        for partition in group.partitions:
            counts[partition, reason_word(group.reason)] += group.jobs
    return counts


def _count_held(pending: Iterable[JobGroup]) -> Counter[Labels]:
    counts: Counter[Labels] = Counter()
    for group in pending:
        if by := HELD_BY.get(reason_word(group.reason)):
            for partition in group.partitions:
                counts[partition, by] += group.jobs
    return counts


def _oldest_ages(pending: Iterable[JobGroup], now_seconds: float) -> dict[Labels, float]:
    ages: dict[Labels, float] = {}
    for group in pending:
        if reason_word(group.reason) in HELD_BY:
            continue
        age_seconds = max(0.0, now_seconds - group.first_submit_seconds)
        for partition in group.partitions:
            ages[partition,] = max(age_seconds, ages.get((partition,), 0.0))
    return ages


COLLECTOR = Collector(
    name="jobs",
    role=Role.CLUSTER,
    help="Jobs, and what they hold and wait for, by partition, account, user and QOS.",
    needs=("jobs",),
    metrics=(*VIEW_METRICS, PENDING_JOBS, HELD_JOBS, OLDEST, WAITS, UNREADABLE, *SEED_METRICS),
    collect=collect,
    options=JobsOptions,
)

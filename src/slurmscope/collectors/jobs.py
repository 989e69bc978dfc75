# SPDX-License-Identifier: Apache-2.0
"""Export running and pending jobs, their resources, pending reasons and wait times.

::

    slurm_partition_jobs{partition="debug",state="PENDING"} 12
    slurm_account_job_gres{account="physics",state="RUNNING",gres="gpu",model="a100"} 16
    slurm_partition_pending_jobs{partition="debug",reason="Priority"} 9
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from slurmscope.collectors.compat.jobs import COMPAT_METRICS, compat_families, ncpus_family
from slurmscope.collectors.job_views import (
    ACCOUNT,
    CLUSTER,
    PARTITION,
    QOS,
    USER,
    Tables,
    tabulate,
    view_families,
)
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Histogram, Labels, gauge, histogram
from slurmscope.model.jobs import WAIT_BUCKETS_SECONDS, Jobs
from slurmscope.settings import setting

PENDING_JOBS = gauge("slurm_partition_pending_jobs", "Pending jobs by partition and reason.", "partition", "reason")
HELD_JOBS = gauge("slurm_partition_held_jobs", "Pending jobs held by the user or an administrator.", "partition", "by")
OLDEST = gauge(
    "slurm_partition_oldest_pending_age_seconds",
    "Time since submission of the oldest pending job, held jobs excluded.",
    "partition",
)
WAITS = histogram(
    "slurm_job_wait_seconds",
    "Time from submission to start, of jobs started since the exporter started.",
    "partition",
    "qos",
    buckets=WAIT_BUCKETS_SECONDS,
)
UNREADABLE = gauge("slurm_job_unreadable_rows", "Job records of the latest poll that could not be parsed.")

VIEWS = (CLUSTER, PARTITION, ACCOUNT, USER, QOS)
VIEW_METRICS = tuple(metric for view in VIEWS for metric in view.metrics)

HELD_BY = {"JobHeldUser": "user", "JobHeldAdmin": "admin"}
_WORD = re.compile(r"[A-Z][A-Za-z0-9_]*(?=[,:()]|\Z)")

# Sentences that squeue prints in place of the reason, with the reason that slurmctld holds beside them.
_SENTENCES = (
    ("job requeued in", "JobHeldUser"),
    ("launch failed requeued held", "JobHeldUser"),
    ("Nodes required for job are DOWN, DRAINED", "Resources"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsOptions:
    """Which breakdowns are exported."""

    account: bool = setting(True, help="Expose job metrics by account.")
    user: bool = setting(True, help="Expose job metrics by user.")
    qos: bool = setting(True, help="Expose job metrics by QOS.")
    ncpus_partitions: tuple[str, ...] = setting(
        ("gpus",), help="Partition counted by the metric ncpus; empty means all; repeatable.", metavar="PARTITION"
    )


def collect(options: JobsOptions, *, jobs: Jobs) -> Iterator[Family]:
    """Yield the families of all views, of pending jobs, and of the older names."""
    tables = tabulate(jobs.groups)
    sums_of = {view.label: view.add_up(tables) for view in VIEWS}
    families = chain(
        *(view_families(view, sums_of[view.label]) for view in VIEWS),
        _waiting_families(tables, jobs),
        compat_families(sums_of, tables),
        (ncpus_family(jobs.groups, options.ncpus_partitions), Family(UNREADABLE, {(): jobs.unreadable_rows})),
    )
    left_out = _left_out_labels(options)
    return (family for family in families if family.metric is WAITS or left_out.isdisjoint(family.metric.labels))


def _left_out_labels(options: JobsOptions) -> frozenset[str]:
    is_wanted = {"account": options.account, "user": options.user, "username": options.user, "qos": options.qos}
    return frozenset(label for label, wanted in is_wanted.items() if not wanted)


def _waiting_families(tables: Tables, jobs: Jobs) -> Iterator[Family]:
    yield Family(PENDING_JOBS, _count_pending(tables))
    yield Family(HELD_JOBS, _count_held(tables))
    yield Family(OLDEST, _oldest_ages(tables, jobs.taken_at_seconds))
    yield Family(WAITS, {labels: Histogram(tally.counts, tally.total_seconds) for labels, tally in jobs.waits.items()})


def reason_word(reason: str) -> str:
    """Return the reason as Slurm enumerates it: node lists and free text after it would create endless series.

    A sentence that is not listed counts as ``unknown``.
    """
    text = reason.lstrip("(")
    if match := _WORD.match(text):
        return match[0]
    return next((word for beginning, word in _SENTENCES if text.startswith(beginning)), "unknown")


def _count_pending(tables: Tables) -> Counter[Labels]:
    counts: Counter[Labels] = Counter()
    for (partitions, reason), wait in tables.waits.items():
        for partition in partitions:
            counts[partition, reason_word(reason)] += wait.jobs
    return counts


def _count_held(tables: Tables) -> Counter[Labels]:
    counts: Counter[Labels] = Counter()
    for (partitions, reason), wait in tables.waits.items():
        if by := HELD_BY.get(reason_word(reason)):
            for partition in partitions:
                counts[partition, by] += wait.jobs
    return counts


def _oldest_ages(tables: Tables, now_seconds: float) -> dict[Labels, float]:
    ages: dict[Labels, float] = {}
    for (partitions, reason), wait in tables.waits.items():
        if reason_word(reason) in HELD_BY:
            continue
        age_seconds = max(0.0, now_seconds - wait.first_submit_seconds)
        for partition in partitions:
            ages[partition,] = max(age_seconds, ages.get((partition,), 0.0))
    return ages


COLLECTOR = Collector(
    name="jobs",
    role=Role.CLUSTER,
    help="Jobs, their resources and pending reasons, by partition, account, user and QOS.",
    needs=("jobs",),
    metrics=(*VIEW_METRICS, PENDING_JOBS, HELD_JOBS, OLDEST, WAITS, UNREADABLE, *COMPAT_METRICS),
    collect=collect,
    options=JobsOptions,
)

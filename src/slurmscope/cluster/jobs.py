# SPDX-License-Identifier: Apache-2.0
"""Export running and pending jobs, their resources, pending reasons and wait times.

::

    slurm_partition_jobs{partition="debug",state="PENDING"} 12
    slurm_account_job_gres{account="physics",state="RUNNING",gres="gpu",model="a100"} 16
    slurm_partition_pending_jobs{partition="debug",reason="Priority"} 9

Every view counts every job by the same rule: an array task is one job; a pending job that may start
in several partitions counts once in each of them in the view by partition, and once in all others.

A large cluster has tens of thousands of groups of jobs. They are walked once and added up into short tables: by
owner, by partition and QOS, by feature, by pending reason. Everything else walks the tables.

Unlike theirs, memory (in bytes) and CPUs are those of the whole job, from its TRES; metrics with "alloc" in the
name and no state label count running jobs only.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from slurmscope.cluster.squeue import WAIT_BUCKETS_SECONDS, JobGroup, Jobs
from slurmscope.core.settings import setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Family, Histogram, Labels, Metric, compat_gauge, gauge, histogram
from slurmscope.slurm.states import ENDED_STATES, PENDING, RUNNING


class Total:
    """Sums over jobs; memory is None if it is unknown for all of them."""

    __slots__ = ("cpus", "gres", "jobs", "memory_bytes", "nodes")

    def __init__(self) -> None:
        """Start at 0."""
        self.jobs = self.nodes = self.cpus = 0
        self.memory_bytes: int | None = None
        self.gres: dict[tuple[str, str], int] = {}

    def add(self, other: Total) -> None:
        """Add the sums of another total."""
        self.jobs += other.jobs
        self.nodes += other.nodes
        self.cpus += other.cpus
        if other.memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + other.memory_bytes
        for kind, count in other.gres.items():
            self.gres[kind] = self.gres.get(kind, 0) + count


@dataclass(slots=True)
class PendingCount:
    """A number of pending jobs and the earliest submit time among them."""

    jobs: int
    first_submit_seconds: int


def _totals() -> defaultdict[Any, Total]:
    return defaultdict(Total)


@dataclass(frozen=True, slots=True)
class Tables:
    """The same jobs grouped in four ways; keys end in the state, those of ``waits`` in the reason."""

    owners: dict[tuple[str, str, str], Total] = field(default_factory=_totals)
    places: dict[tuple[tuple[str, ...], str, str], Total] = field(default_factory=_totals)
    features: dict[tuple[tuple[str, ...], str], Total] = field(default_factory=_totals)
    waits: dict[tuple[tuple[str, ...], str], PendingCount] = field(default_factory=dict)


ViewSums = Mapping[Labels, Total]
"""The sums of one view by its labels, of which the state is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Declare the five metrics of one view, and how its sums are computed from the tables."""

    label: str | None
    add_up: Callable[[Tables], ViewSums]
    jobs: Metric
    nodes: Metric
    cpus: Metric
    memory_bytes: Metric
    gres: Metric

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return everything the view declares."""
        return (self.jobs, self.nodes, self.cpus, self.memory_bytes, self.gres)


def make_view(label: str | None, labelled: Callable[[Tables], Iterable[tuple[Labels, Total]]]) -> View:
    """Declare the metrics of a view; without a label it is the view of the whole cluster."""
    prefix = f"slurm_{label}_" if label else "slurm_"
    labels = ((label,) if label else ()) + ("state",)
    by = f"by {label} and state" if label else "by state"
    return View(
        label=label,
        add_up=lambda tables: add_up(labelled(tables)),
        jobs=gauge(f"{prefix}jobs", f"Jobs {by}.", *labels),
        nodes=gauge(f"{prefix}job_nodes", f"Nodes allocated to or requested by jobs, {by}.", *labels),
        cpus=gauge(f"{prefix}job_cpus", f"CPUs allocated to or requested by jobs, {by}.", *labels),
        memory_bytes=gauge(f"{prefix}job_memory_bytes", f"Memory allocated to or requested by jobs, {by}.", *labels),
        gres=gauge(
            f"{prefix}job_gres",
            f"Generic resources such as GPUs allocated to or requested by jobs, {by}.",
            *labels,
            "gres",
            "model",
        ),
    )


def add_up(labelled: Iterable[tuple[Labels, Total]]) -> ViewSums:
    """Sum totals with the same labels."""
    sums: dict[Labels, Total] = {}
    for labels, total in labelled:
        if (found := sums.get(labels)) is None:
            found = sums[labels] = Total()
        found.add(total)
    return sums


def _by_partition(tables: Tables) -> Iterator[tuple[Labels, Total]]:
    for (partitions, _, state), total in tables.places.items():
        for partition in partitions:
            yield (partition, state), total


PARTITION = make_view("partition", _by_partition)
ACCOUNT = make_view("account", lambda tables: (((key[0], key[2]), total) for key, total in tables.owners.items()))
USER = make_view("user", lambda tables: (((key[1], key[2]), total) for key, total in tables.owners.items()))
QOS = make_view("qos", lambda tables: (((key[1], key[2]), total) for key, total in tables.places.items()))
CLUSTER = make_view(None, lambda tables: (((key[2],), total) for key, total in tables.places.items()))


def tabulate(groups: Iterable[JobGroup]) -> Tables:
    """Sum groups of jobs into the tables."""
    tables = Tables()
    owners, places, features, waits = tables.owners, tables.places, tables.features, tables.waits
    # Unpacked whole and added in place: this is the loop that grows with the cluster.
    for account, user, partitions, qos, state, reason, wanted, jobs, nodes, cpus, memory_bytes, gres, submit in groups:
        for total in (owners[account, user, state], places[partitions, qos, state], features[wanted, state]):
            total.jobs += jobs
            total.nodes += nodes
            total.cpus += cpus
            if memory_bytes is not None:
                total.memory_bytes = (total.memory_bytes or 0) + memory_bytes
            for one in gres:
                kind = (one.name, one.model)
                total.gres[kind] = total.gres.get(kind, 0) + one.count
        if state == PENDING:
            wait = waits.setdefault((partitions, reason), PendingCount(0, submit))
            wait.jobs += jobs
            wait.first_submit_seconds = min(submit, wait.first_submit_seconds)
    return tables


def view_families(view: View, sums: ViewSums) -> Iterator[Family]:
    """Yield the families of one view; ended jobs have no resources and are only counted."""
    held = {labels: total for labels, total in sums.items() if labels[-1] not in ENDED_STATES}
    yield Family(view.jobs, {labels: total.jobs for labels, total in sums.items()})
    yield Family(view.nodes, {labels: total.nodes for labels, total in held.items()})
    yield Family(view.cpus, {labels: total.cpus for labels, total in held.items()})
    yield Family(view.memory_bytes, known_memory(held))
    yield Family(
        view.gres,
        {(*labels, *kind): count for labels, total in held.items() for kind, count in total.gres.items()},
    )


def known_memory(sums: ViewSums) -> dict[Labels, int]:
    return {labels: total.memory_bytes for labels, total in sums.items() if total.memory_bytes is not None}


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

    account: bool = setting(True, "Expose job metrics by account.")
    user: bool = setting(True, "Expose job metrics by user.")
    qos: bool = setting(True, "Expose job metrics by QOS.")
    ncpus_partitions: tuple[str, ...] = setting(
        ("gpus",), "Partition counted by the metric ncpus; empty means all; repeatable.", metavar="PARTITION"
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

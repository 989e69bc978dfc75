# SPDX-License-Identifier: Apache-2.0
"""Be an archive made of a Python list, told apart from the real one only by being slow.

It is written from the contract in ``model/archive.py``, without any of the store's code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies

from slurmscope.archive.interface import GroupBy, JobFilter, ListOrder, PagePosition, SortColumn
from slurmscope.archive.metric_ranges import JobMetric, MetricRange
from slurmscope.core.tres import Gres
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    EnergySummary,
    GpuSummary,
    JobSummary,
    MemorySummary,
    UsedShare,
)
from slurmscope.jobs.viewer import Viewer, ViewerRole
from tests.fakes.reports import make_finding, make_record

DAY = 86_400
NEW_YEAR = 1_767_225_600
"""2026-01-01 00:00 UTC, by ``date -u -d 2026-01-01 +%s``."""

USERS = ("ada", "bob", "Ada", "zoë")
ACCOUNTS = ("physics", "chemistry")
PARTITIONS = ("batch", "gpu")
STATES = ("COMPLETED", "FAILED", "RUNNING", "TIMEOUT")
RULES = ("cpu_idle", "memory_over_requested", "gpu_idle")
CLUSTERS = ("lab", "other")
NAMES = ("relax", "relaxed", "Relax", "%", "_x", "训练")
NODES = ("n1", "n2")
RANGES = (
    MetricRange(JobMetric.CPU, None, 0.25),
    MetricRange(JobMetric.CPU, 0.0, None),
    MetricRange(JobMetric.CORES, 3.0, 6.0),
    MetricRange(JobMetric.RUN, 1.5, None),
    MetricRange(JobMetric.WAIT, 61.0, None),
)
TIMES = (
    NEW_YEAR - 1, NEW_YEAR, NEW_YEAR + 1, NEW_YEAR + DAY // 2, NEW_YEAR + DAY, NEW_YEAR + 3 * DAY + 7,
    NEW_YEAR + 11 * DAY, NEW_YEAR + 40 * DAY, NEW_YEAR + 80 * DAY + 1, NEW_YEAR + 200 * DAY,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Hold what one run of a job is about, in few words."""

    cluster: str
    job_id: int
    submit: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    array_job_id: int | None
    cpus: int
    gpus: int
    run_seconds: float
    used_cores: float | None
    gpu_utilization: float | None
    findings: tuple[tuple[str, Severity], ...]
    node: str
    memory_share: float | None
    """Requested memory as a share of that of a node with 16 cores; nothing of it was needed. None is not measured."""
    watts: float | None = None
    """Mean power, of which a kWh costs 0.25 and emits 400 g; None is not measured."""
    edges: tuple[float, float] | None = None
    """The shares of the run before the first work and after the last; None is not measured."""

    @property
    def numbers(self) -> Mapping[JobMetric, float | None]:
        """Return the numbers by which lists are filtered."""
        ratio = None if self.used_cores is None or not self.run_seconds else self.used_cores / self.cpus
        return {JobMetric.CPU: ratio, JobMetric.RUN: self.run_seconds, JobMetric.CORES: self.cpus, JobMetric.WAIT: 60.0}

    @property
    def shown_ids(self) -> frozenset[str]:
        """Return the IDs that select this job: its own, and that of its array."""
        array = self.array_job_id
        return frozenset({str(self.job_id)} if array is None else {str(array), f"{array}_{self.job_id}"})

    @property
    def blocked_seconds(self) -> float:
        """Return the core time that the requested memory blocked, where it is known."""
        is_known = self.memory_share is not None and self.state == "COMPLETED"
        return max(0.0, 16 * (self.memory_share or 0.0) - self.cpus) * self.run_seconds if is_known else 0.0

    @property
    def worst(self) -> Severity | None:
        """Return the worst severity."""
        order = [Severity.CRITICAL, Severity.WARNING, Severity.INFO]
        return min((severity for _, severity in self.findings), key=order.index, default=None)

    def place(self, order: ListOrder) -> PagePosition:
        """Return the position in a list."""
        metrics = {column.value for column in JobMetric}
        name = order.column.value
        value: Any = None
        if order.column is not SortColumn.SUBMIT:
            value = self.numbers[JobMetric(name)] if name in metrics else getattr(self, name)
        return PagePosition(self.submit, self.job_id, value)

    def matches(self, viewer: Viewer, wanted: JobFilter) -> bool:
        """Tell whether a viewer who wants this gets this job."""
        return (
            viewer.sees(self.user, self.account, self.cluster)
            and wanted.cluster in ("", self.cluster)
            and wanted.user in ("", self.user)
            and wanted.account in ("", self.account)
            and wanted.partition in ("", self.partition)
            and wanted.state in ("", self.state)
            and self.name.startswith(wanted.name)
            and not wanted.reason
            and wanted.name_part.lower() in self.name.lower()
            and (not wanted.rule or wanted.rule in dict(self.findings))
            and wanted.worst in (None, self.worst)
            and wanted.array_job_id in (None, self.array_job_id)
            and (not wanted.shown_ids or not self.shown_ids.isdisjoint(wanted.shown_ids))
            and (wanted.since_seconds is None or wanted.since_seconds <= self.submit)
            and (wanted.until_seconds is None or self.submit < wanted.until_seconds)
            and wanted.is_running in (None, self.state in {"RUNNING", "SUSPENDED"})
            and wanted.node in ("", self.node)
            and all(each.contains(self.numbers[each.metric]) for each in wanted.ranges)
        )

    def keys(self, by: GroupBy, wanted: JobFilter) -> list[str]:
        """Return under which keys this job is counted."""
        if by is GroupBy.DAY:
            return [datetime.fromtimestamp(self.submit, UTC).strftime("%Y-%m-%d")]
        if by is GroupBy.RULE:
            return [rule for rule, _ in self.findings if wanted.rule in ("", rule)]
        return [str(getattr(self, by.value))]

    def report(self) -> JobReport:
        """Return a report that says this."""
        record = replace(
            make_record(self.job_id), cluster=self.cluster, name=self.name, user=self.user, account=self.account,
            partition=self.partition, state=self.state, submit_seconds=self.submit, array_job_id=self.array_job_id,
            array_task_id=None if self.array_job_id is None else self.job_id, cpus=self.cpus,
            start_seconds=self.submit + 60, eligible_seconds=self.submit,
            gres=(Gres(name="gpu", count=self.gpus),) if self.gpus else (), nodes=(self.node,),
        )  # fmt: skip
        seen = Coverage(nodes=1, nodes_measured=1, run_ratio=1.0)
        used = None if self.used_cores is None else self.used_cores * self.run_seconds
        start, tail = (None, None) if self.edges is None else (share * self.run_seconds for share in self.edges)
        summary = JobSummary(
            record=record,
            run_seconds=self.run_seconds,
            cpu=CpuSummary(
                time=UsedShare(requested=self.cpus * self.run_seconds, used=used, coverage=seen),
                idle_start_seconds=start,
                idle_tail_seconds=tail,
            ),
            gpu=GpuSummary(requested=self.gpus, mean_utilization=self.gpu_utilization, coverage=seen),
            coverage=seen,
            energy=EnergySummary(coverage=seen) if self.watts is None else self._energy(seen),
            memory=MemorySummary(
                requested_bytes=(self.memory_share or 0.0) * 64e9,
                working_peak_bytes=None if self.memory_share is None else 0.0,
                coverage=seen,
            ),
            node_cpus=16.0,
            node_memory_bytes=64e9,
        )
        findings = tuple(make_finding(rule, severity=severity) for rule, severity in self.findings)
        return JobReport(summary=summary, made_seconds=self.submit + 1000, findings=findings)

    def _energy(self, seen: Coverage) -> EnergySummary:
        joules = (self.watts or 0.0) * self.run_seconds
        kwh = joules / 3.6e6
        return EnergySummary(rest_joules=joules, carbon_grams=400 * kwh, cost=0.25 * kwh, coverage=seen)


@dataclass(slots=True)
class ListArchive:
    """Keep facts in a list."""

    facts: list[Fact] = field(default_factory=list)

    def save(self, facts: Iterable[Fact]) -> None:
        """Keep facts in place of older ones of the same runs."""
        for fact in facts:
            same = (fact.cluster, fact.job_id, fact.submit)
            self.facts = [old for old in self.facts if (old.cluster, old.job_id, old.submit) != same]
            self.facts.append(fact)

    def ordered(self, viewer: Viewer, wanted: JobFilter, order: ListOrder) -> list[tuple[PagePosition, str]]:
        """Return all that is wanted and whose value is known, with the cluster, in an order that others may share."""
        found = [(fact.place(order), fact.cluster) for fact in self.facts if fact.matches(viewer, wanted)]
        is_sorted = order.column is not SortColumn.SUBMIT
        known = [pair for pair in found if not is_sorted or pair[0].value is not None]
        return sorted(known, key=lambda pair: _rank(pair[0]), reverse=not order.is_ascending)

    def keys(self, viewer: Viewer, wanted: JobFilter) -> list[tuple[PagePosition, str]]:
        """Return all that is wanted, newest first, with the cluster."""
        found = [fact for fact in self.facts if fact.matches(viewer, wanted)]
        return sorted(((PagePosition(fact.submit, fact.job_id), fact.cluster) for fact in found), reverse=True)

    def sums(self, viewer: Viewer, wanted: JobFilter, by: GroupBy) -> dict[str, list[float]]:
        """Return sums in the order of the fields of ``UseTotal``."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 23)
        for fact in self.facts:
            if fact.matches(viewer, wanted):
                for key in fact.keys(by, wanted):
                    sums[key] = [old + new for old, new in zip(sums[key], _amounts(fact), strict=True)]
        return dict(sums)


def _rank(place: PagePosition) -> tuple[Any, int, int]:
    return (place.value if place.value is not None else 0), place.submit_seconds, place.job_id


def _amounts(fact: Fact) -> list[float]:
    cores, gpus = fact.cpus * fact.run_seconds, fact.gpus * fact.run_seconds
    return [
        1,
        cores,
        cores if fact.used_cores is not None else 0,
        min(fact.used_cores or 0, fact.cpus) * fact.run_seconds,
        gpus,
        gpus if fact.gpu_utilization is not None else 0,
        (fact.gpu_utilization or 0) * gpus,
        1 if fact.findings else 0,
        fact.blocked_seconds,
        *_losses(fact.state, cores, None if fact.used_cores is None else min(fact.used_cores / fact.cpus, 1.0)),
        *_losses(fact.state, gpus, fact.gpu_utilization),
        0 if fact.watts is None else 1,
        # Each job's is kept in thousandths.
        *(round((fact.watts or 0.0) * fact.run_seconds / joules, 3) for joules in (1, 3.6e6 / 400, 3.6e6 / 0.25)),
        *_edges(fact.edges, cores, None if fact.used_cores is None else min(fact.used_cores / fact.cpus, 1.0)),
        *_edges(fact.edges, gpus, fact.gpu_utilization),
    ]


def _edges(edges: tuple[float, float] | None, held: float, ratio: float | None) -> list[float]:
    """Return the idle time at the start and at the end: together never more than all idle time."""
    if edges is None or ratio is None:
        return [0.0, 0.0]
    idle, (start, tail) = held * (1 - ratio), edges
    return [min(max(0.0, idle - held * tail), held * start), min(idle, held * tail)]


def _losses(state: str, held: float, ratio: float | None) -> list[float]:
    """Return what is lost to a failure, to the time limit, and to idleness."""
    if state in {"FAILED", "TIMEOUT"}:
        return [held, 0.0, 0.0] if state == "FAILED" else [0.0, held, 0.0]
    return [0.0, 0.0, 0.0 if ratio is None else held * (1 - ratio)]


def facts() -> strategies.SearchStrategy[Fact]:
    """Make runs of few jobs with few names, so that many of them meet."""
    severities = strategies.sampled_from(list(Severity))
    findings = strategies.lists(
        strategies.tuples(strategies.sampled_from(RULES), severities), max_size=3, unique_by=lambda found: found[0]
    )
    return strategies.builds(
        Fact,
        cluster=strategies.sampled_from(CLUSTERS),
        job_id=strategies.integers(1, 6),
        submit=strategies.sampled_from(TIMES),
        name=strategies.sampled_from(NAMES),
        user=strategies.sampled_from(USERS),
        account=strategies.sampled_from(ACCOUNTS),
        partition=strategies.sampled_from(PARTITIONS),
        state=strategies.sampled_from(STATES),
        array_job_id=strategies.none() | strategies.integers(1, 2),
        cpus=strategies.integers(1, 8),
        gpus=strategies.integers(0, 2),
        run_seconds=strategies.sampled_from((0.0, 1.5, 3600.0)),
        used_cores=strategies.none() | strategies.sampled_from((0.0, 0.5, 3.0)),
        gpu_utilization=strategies.none() | strategies.sampled_from((0.0, 0.25)),
        findings=findings.map(tuple),
        node=strategies.sampled_from(NODES),
        memory_share=strategies.none() | strategies.sampled_from((0.0, 0.25, 1.0)),
        watts=strategies.none() | strategies.sampled_from((0.0, 500.0)),
        edges=strategies.none() | strategies.sampled_from(((0.0, 0.0), (0.1, 0.25), (0.5, 0.5))),
    )


def filters() -> strategies.SearchStrategy[JobFilter]:
    """Make filters that ask for at most three things: more of them find nothing."""
    questions: dict[str, strategies.SearchStrategy[object]] = {
        "cluster": strategies.sampled_from(CLUSTERS),
        "user": strategies.sampled_from(USERS),
        "account": strategies.sampled_from(ACCOUNTS),
        "partition": strategies.sampled_from(PARTITIONS),
        "state": strategies.sampled_from(STATES),
        "name": strategies.sampled_from(("rel", "relax", "%", "_", "训")),
        "name_part": strategies.sampled_from(("LAX", "e", "%", "_", "/", "训")),
        "rule": strategies.sampled_from(RULES),
        "reason": strategies.just("Priority"),
        "worst": strategies.sampled_from(list(Severity)),
        "array_job_id": strategies.integers(1, 2),
        "shown_ids": strategies.lists(strategies.sampled_from(("1", "2", "3", "1_1", "2_3")), min_size=1).map(tuple),
        "since_seconds": strategies.sampled_from(TIMES),
        "until_seconds": strategies.sampled_from(TIMES),
        "is_running": strategies.booleans(),
        "node": strategies.sampled_from(NODES),
        "ranges": strategies.sampled_from(RANGES).map(lambda found: (found,)),
    }
    chosen = strategies.lists(strategies.sampled_from(sorted(questions)), max_size=3, unique=True)
    answered = chosen.flatmap(lambda names: strategies.fixed_dictionaries({name: questions[name] for name in names}))
    return answered.map(_as_filter)


def _as_filter(asked: Mapping[str, Any]) -> JobFilter:
    return JobFilter(**asked)


def viewers() -> strategies.SearchStrategy[Viewer]:
    """Make users, coordinators and staff."""
    accounts = strategies.frozensets(strategies.sampled_from(ACCOUNTS))
    people = strategies.builds(
        Viewer,
        name=strategies.sampled_from(USERS),
        coordinates=accounts,
        coordinated_clusters=strategies.none() | strategies.frozensets(strategies.sampled_from(CLUSTERS)),
    )
    return people | strategies.builds(Viewer, name=strategies.just("staff"), role=strategies.just(ViewerRole.SUPPORT))

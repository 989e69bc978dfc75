# SPDX-License-Identifier: Apache-2.0
"""Sum jobs and their resources by partition, account, user and QOS, and over the whole cluster.

Every view counts every job by the same rule: an array task is one job; a pending job that may start
in several partitions counts once in each of them in the view by partition, and once in all others.

A large cluster has tens of thousands of groups of jobs. They are walked once and added up into short tables: by
owner, by partition and QOS, by feature, by pending reason. Everything else walks the tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmscope.metrics.family import Family, Labels, Metric, gauge
from slurmscope.model.job_states import ENDED_STATES, PENDING
from slurmscope.model.jobs import JobGroup


class Total:
    """Hold sums over jobs; memory is None if it is unknown for all of them."""

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
    """Hold a number of pending jobs and the earliest submit time among them."""

    jobs: int
    first_submit_seconds: int


def _totals() -> defaultdict[Any, Total]:
    return defaultdict(Total)


@dataclass(frozen=True, slots=True)
class Tables:
    """Hold the same jobs grouped in four ways; keys end in the state, those of ``waits`` in the reason."""

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
    """Return the memory sums that are known."""
    return {labels: total.memory_bytes for labels, total in sums.items() if total.memory_bytes is not None}

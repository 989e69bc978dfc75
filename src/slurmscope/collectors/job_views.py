# SPDX-License-Identifier: Apache-2.0
"""Add up jobs and what they hold or want, seen by partition, account, user, QOS, or all together.

Every view counts every job by the same rule: an array task is one job; a pending job that may start
in several partitions counts once in each of them in the view by partition, and once in all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slurmscope.metrics.family import Family, Labels, Metric, gauge
from slurmscope.model.jobs import JobGroup


class Cell:
    """Hold the sums of all groups that differ in nothing a view looks at."""

    __slots__ = (
        "account",
        "cpus",
        "gres",
        "has_ended",
        "jobs",
        "memory_bytes",
        "nodes",
        "partitions",
        "qos",
        "state",
        "user",
    )

    def __init__(self, group: JobGroup) -> None:
        """Take the names of a group, and nothing of its numbers yet."""
        self.account = group.account
        self.user = group.user
        self.partitions = group.partitions
        self.qos = group.qos
        self.state = group.state
        self.has_ended = group.has_ended
        self.jobs = self.nodes = self.cpus = 0
        self.memory_bytes: int | None = None
        self.gres: dict[tuple[str, str], int] = {}

    def add(self, group: JobGroup) -> None:
        """Add the numbers of a group."""
        self.jobs += group.jobs
        self.nodes += group.nodes
        self.cpus += group.cpus
        if group.memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + group.memory_bytes
        for gres in group.gres:
            key = (gres.name, gres.model)
            self.gres[key] = self.gres.get(key, 0) + gres.count


Names = Callable[[Cell], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Declare the five metrics of one view, and how a group is named in it."""

    label: str | None
    names: Names
    jobs: Metric
    nodes: Metric
    cpus: Metric
    memory_bytes: Metric
    gres: Metric

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return everything the view declares."""
        return (self.jobs, self.nodes, self.cpus, self.memory_bytes, self.gres)


def make_view(label: str | None, names: Names) -> View:
    """Declare the metrics of a view; without a label it is the view of the whole cluster."""
    prefix = f"slurm_{label}_" if label else "slurm_"
    labels = ((label,) if label else ()) + ("state",)
    by = f"by {label} and state" if label else "by state"
    return View(
        label=label,
        names=names,
        jobs=gauge(f"{prefix}jobs", f"Jobs {by}.", *labels),
        nodes=gauge(f"{prefix}job_nodes", f"Nodes that jobs hold, or ask for while they wait, {by}.", *labels),
        cpus=gauge(f"{prefix}job_cpus", f"CPUs that jobs hold, or ask for while they wait, {by}.", *labels),
        memory_bytes=gauge(
            f"{prefix}job_memory_bytes", f"Memory that jobs hold, or ask for while they wait, {by}.", *labels
        ),
        gres=gauge(
            f"{prefix}job_gres",
            f"Generic resources such as GPUs that jobs hold, or ask for while they wait, {by}.",
            *labels,
            "gres",
            "model",
        ),
    )


PARTITION = make_view("partition", lambda cell: cell.partitions)
ACCOUNT = make_view("account", lambda cell: (cell.account,))
USER = make_view("user", lambda cell: (cell.user,))
QOS = make_view("qos", lambda cell: (cell.qos,))
CLUSTER = make_view(None, lambda _: ("",))


def merge(groups: Iterable[JobGroup]) -> list[Cell]:
    """Forget reasons and features: that leaves few cells, and every view walks over all of them."""
    cells: dict[tuple[object, ...], Cell] = {}
    for group in groups:
        key = group[:5]
        if (cell := cells.get(key)) is None:
            cell = cells[key] = Cell(group)
        cell.add(group)
    return list(cells.values())


def view_families(view: View, cells: Iterable[Cell]) -> Iterator[Family]:
    """Yield the families of one view; jobs that ended hold nothing and are only counted."""
    jobs: dict[Labels, int] = {}
    held: dict[Labels, list[int]] = {}
    memory_bytes: dict[Labels, int] = {}
    gres: dict[Labels, int] = {}
    for cell in cells:
        for name in view.names(cell):
            labels = (name, cell.state) if view.label else (cell.state,)
            jobs[labels] = jobs.get(labels, 0) + cell.jobs
            if cell.has_ended:
                continue
            sums = held.setdefault(labels, [0, 0])
            sums[0] += cell.nodes
            sums[1] += cell.cpus
            if cell.memory_bytes is not None:
                memory_bytes[labels] = memory_bytes.get(labels, 0) + cell.memory_bytes
            for kind, count in cell.gres.items():
                gres[*labels, *kind] = gres.get((*labels, *kind), 0) + count
    yield Family(view.jobs, jobs)
    yield Family(view.nodes, {labels: sums[0] for labels, sums in held.items()})
    yield Family(view.cpus, {labels: sums[1] for labels, sums in held.items()})
    yield Family(view.memory_bytes, memory_bytes)
    yield Family(view.gres, gres)

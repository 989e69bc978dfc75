# SPDX-License-Identifier: Apache-2.0
"""Export what NCCL's RAS service knows of jobs: how many collective operations each rank has begun, and who is missing.

::

    jobs_nccl_collectives_total{slurm_job="4711",slurm_node="n17",communicator="0x27a0",rank="3",pid="4120"} 6649
    jobs_nccl_missing_ranks{slurm_job="4711",slurm_node="n17",communicator="0x27a0"} 0

The rank whose count stays behind those of its communicator is the one that the others wait for. Each node exports its
own ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, counter, gauge
from slurmscope.node.job_metrics import JOB, job_labels
from slurmscope.node.job_use import JobKey, NodeJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank of a communicator; ``operations`` counts the collective operations that it has begun, of all kinds."""

    number: int
    host: str
    pid: int
    operations: int
    has_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """The ranks that answered, and how many did not, of all nodes."""

    name: str
    size: int
    ranks: tuple[Rank, ...] = ()
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommunicator:
    """One communicator of a job, with its ranks on this node; ``missing`` counts those of all nodes."""

    name: str
    size: int
    ranks: tuple[Rank, ...]
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RasState:
    """The communicators of jobs, as of the last good query, and how many queries there were by result."""

    jobs: Mapping[JobKey, tuple[JobCommunicator, ...]] = field(default_factory=dict)
    queries: Mapping[str, int] = field(default_factory=dict)

    def operations(self) -> dict[JobKey, float]:
        """Return the collective operations that the ranks of each job have begun."""
        return {key: float(sum(r.operations for c in found for r in c.ranks)) for key, found in self.jobs.items()}


_COMMUNICATOR = (*JOB, "communicator")
COLLECTIVES = counter(
    "jobs_nccl_collectives_total",
    "Collective operations of NCCL that a rank of the job on this node has begun, of all kinds.",
    *_COMMUNICATOR,
    "rank",
    "pid",
)
MISSING = gauge(
    "jobs_nccl_missing_ranks", "Ranks of a communicator of the job, on any node, that did not answer.", *_COMMUNICATOR
)
FAILED = gauge(
    "jobs_nccl_failed_ranks",
    "Ranks of a communicator of the job on this node with an asynchronous error, or that were aborted.",
    *_COMMUNICATOR,
)
QUERIES = counter(
    "slurm_node_nccl_ras_queries_total",
    "Queries of NCCL's RAS service on the node, by result: ok, no_service, other_user (no job's user has it), timeout, "
    "too_long, too_many (new ranks in an hour: some are left out), malformed, or too_old (it does not know JSON).",
    "slurm_node",
    "result",
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    nccl_ras: RasState,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    """Yield the ranks of jobs that run."""
    host = node_jobs.host_name
    running = {job.key for job in node_jobs.jobs if not job.has_ended}
    found = [
        ((*job_labels(key, host), communicator.name), communicator)
        for key, communicators in nccl_ras.jobs.items()
        if key in running
        for communicator in communicators
    ]
    counts: dict[Labels, float] = {
        (*labels, str(rank.number), str(rank.pid)): rank.operations
        for labels, communicator in found
        for rank in communicator.ranks
    }
    yield Family(COLLECTIVES, counts)
    yield Family(MISSING, {labels: communicator.missing for labels, communicator in found})
    yield Family(FAILED, {labels: sum(rank.has_failed for rank in c.ranks) for labels, c in found})
    yield Family(QUERIES, {(host, result): count for result, count in sorted(nccl_ras.queries.items())})


COLLECTOR = Collector(
    name="nccl_ras",
    role=Role.NODE,
    help="Collective operations by rank, and missing ranks, from NCCL's RAS service in jobs.",
    needs=("nccl_ras", "node_jobs"),
    metrics=(COLLECTIVES, MISSING, FAILED, QUERIES),
    collect=collect,
    is_default=False,
)

# SPDX-License-Identifier: Apache-2.0
"""Export the use of NFS file systems by this node, and by the jobs that were alone on it.

::

    slurm_node_filesystem_read_bytes_total{slurm_node="n17",filesystem="nfs1:/home",fstype="nfs4"} 52428800
    jobs_filesystem_read_bytes_total{slurm_job="4711",slurm_node="n17",filesystem="nfs1:/home",fstype="nfs4"} 1048576
    jobs_filesystem_write_bytes_total{slurm_job="4711",slurm_node="n17",filesystem="nfs1:/home",fstype="nfs4"} 4096
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmscope.analysis.mount_use import use_by_filesystem
from slurmscope.collectors.job_use_metrics import JOB, job_labels
from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, counter, gauge
from slurmscope.model.job_use import NodeJobs
from slurmscope.model.mounts import ClientUse, NodeFilesystems

_FILESYSTEM = ("filesystem", "fstype")
_NODE = ("slurm_node", *_FILESYSTEM)
_OF_JOB = (*JOB, *_FILESYSTEM)

# In the order of the fields of ClientUse.
NODE = (
    counter("slurm_node_filesystem_read_bytes_total", "Bytes that this node read from an NFS server.", *_NODE),
    counter("slurm_node_filesystem_write_bytes_total", "Bytes that this node wrote to an NFS server.", *_NODE),
    counter(
        "slurm_node_filesystem_metadata_operations_total",
        "Requests of this node to an NFS server that transfer no data (open, getattr, create, remove, ...).",
        *_NODE,
    ),
)
OF_JOB = (
    counter(
        "jobs_filesystem_read_bytes_total",
        "Bytes that the node read from an NFS server while no other job ran on it.",
        *_OF_JOB,
    ),
    counter(
        "jobs_filesystem_write_bytes_total",
        "Bytes that the node wrote to an NFS server while no other job ran on it.",
        *_OF_JOB,
    ),
    counter(
        "jobs_filesystem_metadata_operations_total",
        "Requests to an NFS server that transfer no data (open, getattr, create, remove, ...), made while no other job "
        "ran on the node.",
        *_OF_JOB,
    ),
)
LEFT_OUT = gauge(
    "slurm_node_filesystems_left_out",
    "NFS mounts above the limit of 200 per node, which are not counted.",
    "slurm_node",
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    filesystems: NodeFilesystems,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    """Yield the counters of the node, then those of jobs that run or ended a short time ago."""
    host = node_jobs.host_name
    uses: dict[Labels, ClientUse] = {(host, *key): use for key, use in use_by_filesystem(filesystems.mounts).items()}
    for position, metric in enumerate(NODE):
        yield Family(metric, _known(uses, position))
    if filesystems.mounts:
        yield Family(LEFT_OUT, {(host,): filesystems.left_out})
    of_jobs = _uses_of_jobs(filesystems, node_jobs)
    for position, metric in enumerate(OF_JOB):
        yield Family(metric, _known(of_jobs, position))


def _known(uses: Mapping[Labels, ClientUse], position: int) -> dict[Labels, float]:
    return {labels: n for labels, use in uses.items() if (n := use[position]) is not None}


def _uses_of_jobs(filesystems: NodeFilesystems, node_jobs: NodeJobs) -> dict[Labels, ClientUse]:
    uses: dict[Labels, ClientUse] = {}
    # Of two runs of one job ID, the one that has not ended is exported, as in job_use.
    for job in sorted(node_jobs.jobs, key=lambda job: job.has_ended):
        for filesystem, use in filesystems.jobs.get(job.key, {}).items():
            uses.setdefault((*job_labels(job.key, node_jobs.host_name), *filesystem), use)
    return uses


COLLECTOR = Collector(
    name="filesystems",
    role=Role.NODE,
    help="Use of NFS file systems by this node, and by jobs that were alone on it.",
    needs=("filesystems", "node_jobs"),
    metrics=(*NODE, LEFT_OUT, *OF_JOB),
    collect=collect,
)

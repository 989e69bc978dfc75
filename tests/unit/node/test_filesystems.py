# SPDX-License-Identifier: Apache-2.0
"""Check the metrics of NFS file systems with hand-worked numbers."""

from __future__ import annotations

from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Labels
from slurmscope.node.filesystems import COLLECTOR, collect
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.node.mounts import ClientUse, Mount, MountedFilesystem, NodeFilesystems

HOME = MountedFilesystem("nfs1:/home", "nfs4")
JOBS = NodeJobs(jobs=(JobUse(key=JobKey(7), has_ended=True), JobUse(key=JobKey(8))), host_name="n1")


def families(found: NodeFilesystems, jobs: NodeJobs = JOBS) -> dict[str, dict[Labels, float]]:
    collected = {
        family.metric.name: dict(family.samples) for family in collect(NoOptions(), filesystems=found, node_jobs=jobs)
    }
    assert set(collected) <= {metric.name for metric in COLLECTOR.metrics}
    return {name: samples for name, samples in collected.items() if samples}


def test_node_without_nfs_has_no_series() -> None:
    assert {} == families(NodeFilesystems())


def test_mounts_of_one_file_system_are_summed() -> None:
    mounts = (
        Mount(filesystem=HOME, use=ClientUse(5, 6, 7)),
        Mount(filesystem=HOME, use=ClientUse(50, 60, None)),
    )

    assert {
        "slurm_node_filesystem_read_bytes_total": {("n1", "nfs1:/home", "nfs4"): 55},
        "slurm_node_filesystem_write_bytes_total": {("n1", "nfs1:/home", "nfs4"): 66},
        "slurm_node_filesystems_left_out": {("n1",): 3},
    } == families(NodeFilesystems(mounts=mounts, left_out=3))


def test_jobs_have_what_they_used_alone() -> None:
    uses = {JobKey(7): {HOME: ClientUse(1, 2, 3)}, JobKey(9): {HOME: ClientUse(9, 9, 9)}}

    assert {
        "jobs_filesystem_read_bytes_total": {("7", "n1", "nfs1:/home", "nfs4"): 1},
        "jobs_filesystem_write_bytes_total": {("7", "n1", "nfs1:/home", "nfs4"): 2},
        "jobs_filesystem_metadata_operations_total": {("7", "n1", "nfs1:/home", "nfs4"): 3},
    } == families(NodeFilesystems(jobs=uses))


def test_of_two_runs_of_a_job_the_running_one_is_exported() -> None:
    ended, running = JobKey(7, sluid="sA"), JobKey(7, sluid="sB")
    jobs = NodeJobs(jobs=(JobUse(key=ended, has_ended=True), JobUse(key=running)), host_name="n1")
    uses = {ended: {HOME: ClientUse(1)}, running: {HOME: ClientUse(2)}}

    assert {("7", "n1", "nfs1:/home", "nfs4"): 2} == families(NodeFilesystems(jobs=uses), jobs)[
        "jobs_filesystem_read_bytes_total"
    ]

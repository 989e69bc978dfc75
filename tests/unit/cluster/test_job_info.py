# SPDX-License-Identifier: Apache-2.0
"""Every job has one series with its labels; only running jobs have an allocation."""

from __future__ import annotations

from typing import Any

from slurmscope.cluster import slurm
from slurmscope.cluster.job_info import COLLECTOR
from slurmscope.cluster.squeue import JobList, ListedJob
from slurmscope.exporter.collector import NoOptions
from slurmscope.slurm.config import ControllerConfig

RUNNING = ListedJob(
    job_id="4711", array_job_id="", array_tasks="", het_job_id="", user="alice", account="physics", partition="debug",
    qos="normal", state="RUNNING", node_list="n[1-2]", name="solve", cpus=32, memory_bytes=1 << 36,
)  # fmt: skip
UNLIMITED = RUNNING._replace(job_id="4712", cpus=8, memory_bytes=None)
PENDING = RUNNING._replace(
    job_id="4720", array_job_id="4720", array_tasks="0-9%2", state="PENDING", node_list="", cpus=4
)


def collect(*jobs: ListedJob) -> dict[str, dict[Any, Any]]:
    families = COLLECTOR.collect(NoOptions(), job_list=JobList(jobs=jobs))
    return {family.metric.name: dict(family.samples) for family in families}


def test_labels_of_a_job_are_in_their_declared_order() -> None:
    assert {
        ("4711", "", "", "", "alice", "physics", "debug", "normal", "RUNNING", "n[1-2]", "solve"): 1,
        ("4720", "4720", "0-9%2", "", "alice", "physics", "debug", "normal", "PENDING", "", "solve"): 1,
    } == collect(RUNNING, PENDING)["slurm_job_info"]


def test_only_running_jobs_have_an_allocation() -> None:
    served = collect(RUNNING, UNLIMITED, PENDING)

    assert {("4711",): 32, ("4712",): 8} == served["slurm_job_cpu_alloc"]
    assert {("4711",): 68_719_476_736} == served["slurm_job_mem_alloc"]


def test_every_declared_metric_is_served() -> None:
    assert [metric.name for metric in COLLECTOR.metrics] == list(collect(RUNNING))


def test_cluster_is_named_with_its_slurm_version() -> None:
    config = ControllerConfig(cluster_name="alpha", slurm_version="22.05.8")

    (family,) = slurm.COLLECTOR.collect(NoOptions(), config=config)

    assert {("alpha", "22.05.8"): 1} == dict(family.samples)

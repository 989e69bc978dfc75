# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from slurmscope.cluster.sinfo import Node, NodeGres, Nodes
from slurmscope.cluster.squeue import JobGroup, Jobs
from slurmscope.core.tres import Gres
from slurmscope.portal.cluster_now import NodeProblem, PartitionNow, QueueRow, summarize_cluster


def make_group(state: str, jobs: int, reason: str = "", partitions: tuple[str, ...] = ("batch",)) -> JobGroup:
    return JobGroup(
        account="a", user="u", partitions=partitions, qos="q", state=state, reason=reason, features=(), jobs=jobs,
        nodes=1, cpus=1, memory_bytes=None, gres=(), first_submit_seconds=0,
    )  # fmt: skip


def make_node(name: str, state: str, allocated: int, **more: object) -> Node:
    return Node(
        name=name, base_state="mixed", flags=frozenset(), state_text=state, partitions=("batch", "gpu"), cpus_total=8,
        cpus_allocated=allocated, cpus_idle=8 - allocated, memory_bytes=1, allocated_memory_bytes=0, weight=1,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


JOBS = Jobs(
    groups=(
        make_group("RUNNING", 3),
        make_group("PENDING", 5, "Priority", ("batch", "gpu")),
        make_group("PENDING", 7, ""),
        make_group("COMPLETED", 100),
    ),
    taken_at_seconds=0.0,
)
NODES = Nodes(
    nodes=(
        make_node("n1", "mixed", 6, gres=(NodeGres(name="gpu", model="", total=4, used=1),)),
        make_node("n2", "drained", 0, reason="bad disk", gres=None),
    )
)


def test_jobs_that_ended_are_not_in_the_queue() -> None:
    now = summarize_cluster(JOBS, NODES, age_seconds=3.0)
    assert {"PENDING": 12, "RUNNING": 3} == now.jobs_by_state
    assert {"None": 7, "Priority": 5} == now.pending_by_reason


def test_node_counts_once_in_the_cluster_and_in_each_of_its_partitions() -> None:
    now = summarize_cluster(JOBS, NODES)
    assert (16, 6, {"mixed": 1, "drained": 1}) == (now.cpus, now.cpus_allocated, now.nodes_by_state)
    assert (4, 1) == (now.gpus, now.gpus_allocated)
    same = {"nodes": 2, "cpus": 16, "cpus_allocated": 6, "cpus_idle": 10, "gpus": 4, "gpus_allocated": 1}
    expected = (
        PartitionNow(name="batch", running_jobs=3, pending_jobs=12, **same),
        PartitionNow(name="gpu", pending_jobs=5, **same),
    )
    assert expected == now.partitions


def test_jobs_of_partitions_are_unknown_while_the_queue_cannot_be_read() -> None:
    now = summarize_cluster(None, NODES)
    assert [("batch", None, None), ("gpu", None, None)] == [
        (part.name, part.running_jobs, part.pending_jobs) for part in now.partitions
    ]


def test_reasons_of_nodes_are_kept() -> None:
    assert (NodeProblem(node="n2", state="drained", reason="bad disk"),) == summarize_cluster(None, NODES).troubles


def test_unread_parts_are_none() -> None:
    now = summarize_cluster(None, None, problems=("Slurm is unreachable.",))
    assert (None, None, None, None, None) == (
        now.jobs_by_state, now.pending_by_reason, now.nodes_by_state, now.cpus, now.cpus_allocated,
    )  # fmt: skip
    assert (None, None) == (now.gpus, now.gpus_allocated)
    assert ((), ("Slurm is unreachable.",)) == (now.partitions, now.problems)


def test_queue_is_counted_by_partition_and_reason() -> None:
    gpus = make_group("PENDING", 2, "Resources, later", ("gpu",))._replace(
        cpus=16, gres=(Gres(name="gpu", model="a100", count=8), Gres(name="shard", model="", count=3))
    )
    jobs = Jobs(groups=(*JOBS.groups, gpus), taken_at_seconds=0.0)
    assert (
        QueueRow(partition="batch", reason="None", jobs=7, cpus=1, gpus=0),
        QueueRow(partition="batch", reason="Priority", jobs=5, cpus=1, gpus=0),
        QueueRow(partition="gpu", reason="Priority", jobs=5, cpus=1, gpus=0),
        QueueRow(partition="gpu", reason="Resources", jobs=2, cpus=16, gpus=8),
    ) == summarize_cluster(jobs, NODES).queue
    assert () == summarize_cluster(None, NODES).queue

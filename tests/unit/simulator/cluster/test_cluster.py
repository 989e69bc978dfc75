# SPDX-License-Identifier: Apache-2.0
"""Check that simulated clusters are repeatable, complete and add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import HOSTILE_NAMES, Shape, SimulatedCluster
from slurmscope.slurm.states import node_state_text

NOW = 1_800_000_000

# From the manual page of squeue 22.05 and its list of valid states.
ALL_JOB_STATES = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "COMPLETING", "CONFIGURING", "RESIZING", "RESV_DEL_HOLD", "REQUEUED",
    "REQUEUE_FED", "REQUEUE_HOLD", "REVOKED", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
}  # fmt: skip

# A suspended job gives its CPUs back and keeps its memory: seen in sinfo after scontrol suspend.
STATES_WITH_CPUS = {"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"}

shapes = st.builds(
    Shape,
    seed=st.integers(0, 99),
    jobs=st.integers(0, 400),
    nodes=st.integers(1, 80),
    users=st.integers(1, 40),
    accounts=st.integers(1, 12),
    partitions=st.integers(1, 9),
    gpus=st.integers(0, 40),
)


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    return simulate(Shape(), now=NOW)


def test_the_same_shape_and_moment_give_the_same_cluster() -> None:
    assert simulate(Shape(seed=7), now=NOW) == simulate(Shape(seed=7), now=NOW)


def test_another_seed_gives_another_cluster(cluster: SimulatedCluster) -> None:
    assert cluster.jobs != simulate(Shape(seed=2), now=NOW).jobs


def test_times_move_with_the_moment(cluster: SimulatedCluster) -> None:
    later = simulate(Shape(), now=NOW + 1000)
    assert [job.submit_time + 1000 for job in cluster.jobs] == [job.submit_time for job in later.jobs]


def test_every_job_state_occurs(cluster: SimulatedCluster) -> None:
    assert ALL_JOB_STATES == {job.state for job in cluster.jobs}


def test_every_base_state_and_every_suffix_of_a_node_occurs(cluster: SimulatedCluster) -> None:
    assert {"allocated", "down", "error", "future", "idle", "mixed", "unknown"} == {node.base for node in cluster.nodes}
    last_characters = {node_state_text(node.base, frozenset(node.flags))[-1] for node in cluster.nodes}
    assert set("*~#%!@^$-+") <= last_characters


def test_every_hostile_name_occurs(cluster: SimulatedCluster) -> None:
    assert set(HOSTILE_NAMES) <= {job.name for job in cluster.jobs}


def test_arrays_heterogeneous_and_multi_partition_jobs_occur(cluster: SimulatedCluster) -> None:
    kinds = {
        "pending array": any(len(job.tasks) > 1 for job in cluster.jobs),
        "running task": any(job.array_id and job.state == "RUNNING" and len(job.tasks) == 1 for job in cluster.jobs),
        "component": any(job.het_offset == 2 for job in cluster.jobs),
        "partitions": any(len(job.partitions) == 2 for job in cluster.jobs),
        "no account": any(job.account is None for job in cluster.jobs),
        "held by user": any(job.reason == "JobHeldUser" and job.priority == 0 for job in cluster.jobs),
        "held by admin": any(job.reason == "JobHeldAdmin" for job in cluster.jobs),
        "unavailable nodes": any(job.reason.startswith("ReqNodeNotAvail, Una") for job in cluster.jobs),
        "node in partitions": any(len(node.partitions) > 1 for node in cluster.nodes),
        "drained with reason": any("drain" in node.flags and node.reason for node in cluster.nodes),
        "silent node": any(node.memory_free_bytes is None and node.cpu_load is None for node in cluster.nodes),
    }
    assert [] == [kind for kind, occurs in kinds.items() if not occurs]


@given(shapes)
@settings(deadline=None, max_examples=40)
def test_rows_and_sizes_are_those_of_the_shape(shape: Shape) -> None:
    made = simulate(shape, now=NOW)
    assert shape.jobs == sum(job.rows for job in made.jobs)
    assert (shape.nodes, shape.users, shape.accounts) == (len(made.nodes), len(made.users), len(made.accounts))
    assert min(shape.gpus, 4 * shape.nodes) == sum(pool.total for node in made.nodes for pool in node.gpus)
    assert all(node.partitions for node in made.nodes)


@given(shapes)
@settings(deadline=None, max_examples=40)
def test_what_nodes_have_allocated_is_the_sum_of_their_jobs(shape: Shape) -> None:
    made = simulate(shape, now=NOW)
    cpus, memory, gpus = Counter[str](), Counter[str](), Counter[str]()
    for job in made.jobs:
        for name in job.node_names:
            if job.state in STATES_WITH_CPUS:
                cpus[name] += job.cpus_per_node
            if job.state in STATES_WITH_CPUS | {"SUSPENDED"}:
                memory[name] += job.memory_per_node_bytes
                gpus[name] += job.gpus_per_node
    for node in made.nodes:
        used = sum(pool.used for pool in node.gpus)
        assert (cpus[node.name], memory[node.name], gpus[node.name]) == (
            node.cpus_allocated,
            node.memory_allocated_bytes,
            used,
        )
        assert node.cpus_allocated <= node.cpus
        assert node.memory_allocated_bytes <= node.memory_bytes
        assert used <= sum(pool.total for pool in node.gpus)


@given(shapes)
@settings(deadline=None, max_examples=40)
def test_times_are_in_order_and_no_job_outlives_its_limit(shape: Shape) -> None:
    made = simulate(shape, now=NOW)
    for job in made.jobs:
        assert job.submit_time <= NOW
        if job.node_names and job.start_time is not None:
            assert job.submit_time <= job.start_time <= NOW
            assert (
                job.time_limit_seconds is None or (job.end_time or NOW) - job.start_time <= job.time_limit_seconds + 60
            )
            assert len(job.node_names) == job.nodes


@given(shapes)
@settings(deadline=None, max_examples=20)
def test_job_ids_are_unique(shape: Shape) -> None:
    ids = [job.id for job in simulate(shape, now=NOW).jobs]
    assert len(ids) == len(set(ids))


def test_an_array_task_points_to_its_array(cluster: SimulatedCluster) -> None:
    waiting = {job.id: set(job.tasks) for job in cluster.jobs if job.array_id == job.id}
    started = [(job.array_id, job.tasks) for job in cluster.jobs if job.array_id is not None and job.array_id != job.id]
    assert started
    assert all(waiting[array_id].isdisjoint(tasks) for array_id, tasks in started)


@pytest.mark.parametrize("change", [{"nodes": 0}, {"users": 0}, {"accounts": 0}, {"partitions": 0}, {"jobs": -1}])
def test_an_impossible_shape_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a cluster needs"):
        simulate(replace(Shape(), **change), now=NOW)

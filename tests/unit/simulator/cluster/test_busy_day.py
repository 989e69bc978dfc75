# SPDX-License-Identifier: Apache-2.0
"""Check that a busy cluster has room for no pending job, and that jobs and nodes still add up."""

from collections import Counter

from slurmscope.simulator.cluster.busy_day import file_use_of, fill, samples_of
from slurmscope.simulator.cluster.cluster import calm, simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster

CALM = calm(simulate(Shape(), now=1_790_000_000))
BUSY = fill(CALM)
HOLDING = {"RUNNING", "COMPLETING", "CONFIGURING"}


def idle_cores(cluster: SimulatedCluster) -> int:
    return sum(node.cpus - node.cpus_allocated for node in cluster.nodes if not node.reason)


def test_no_sound_node_has_room_for_a_job() -> None:
    assert idle_cores(CALM) > 1000
    left = [node for node in BUSY.nodes if not node.reason and node.cpus > node.cpus_allocated]
    assert left
    assert all(node.memory_bytes - node.memory_allocated_bytes < 2 << 30 for node in left)
    assert idle_cores(BUSY) < 0.1 * sum(node.cpus for node in BUSY.nodes)


def test_gpus_are_of_one_model() -> None:
    assert {"h100"} == {pool.type for node in BUSY.nodes for pool in node.gpus}
    assert {"h100"} == {job.gpu_type for job in BUSY.jobs if job.gpus_per_node}


def test_added_jobs_hold_what_nodes_say_is_allocated() -> None:
    added = Counter[str]()
    for job in set(BUSY.jobs) - {job for job in BUSY.jobs if job.id in {known.id for known in CALM.jobs}}:
        added.update(dict.fromkeys(job.node_names, job.cpus_per_node))
    before = {node.name: node.cpus_allocated for node in CALM.nodes}
    assert {node.name: before[node.name] + added[node.name] for node in BUSY.nodes} == {
        node.name: node.cpus_allocated for node in BUSY.nodes
    }


def test_ids_are_unique_and_jobs_run_in_a_partition_of_their_nodes() -> None:
    assert len(BUSY.jobs) == len({job.id for job in BUSY.jobs})
    homes = {node.name: node.partitions for node in BUSY.nodes}
    assert all(job.partitions[0] in homes[name] for job in BUSY.jobs if job.state in HOLDING for name in job.node_names)


def test_cluster_without_running_jobs_stays_as_it_is() -> None:
    empty = calm(simulate(Shape(jobs=0), now=1_790_000_000))
    assert len(empty.jobs) == len(fill(empty).jobs)


def test_history_of_a_day_ends_with_the_numbers_of_now() -> None:
    (running, pending, allocated, idle, unusable) = (value for _, _, value in samples_of(BUSY, BUSY.now))
    assert (sum(job.rows for job in BUSY.jobs if job.state == "RUNNING"), idle_cores(BUSY)) == (running, idle)
    assert sum(job.rows for job in BUSY.jobs if job.state == "PENDING") == pending
    assert sum(node.cpus for node in BUSY.nodes) == allocated + idle + unusable
    for age in range(0, 86_400, 600):
        values = {labels: value for _, labels, value in samples_of(BUSY, BUSY.now - age)}
        assert min(values.values()) >= 0
        assert values[(("state", "RUNNING"),)] <= running


def test_files_are_used_by_running_jobs_only() -> None:
    use = file_use_of(BUSY)
    assert use == file_use_of(BUSY)
    assert {"RUNNING"} == {job.state for rates in use.values() for job in rates}

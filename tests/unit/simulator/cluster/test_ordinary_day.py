# SPDX-License-Identifier: Apache-2.0
"""Check that a calmed cluster is still the same cluster."""

from collections import Counter

from slurmscope.simulator.cluster.cluster import TROUBLED_NODES, calm, simulate
from slurmscope.simulator.cluster.records import HOSTILE_NAMES, Shape

ODD = simulate(Shape(), now=1_790_000_000)
CALM = calm(ODD)


def test_names_break_nothing() -> None:
    assert any(job.name in HOSTILE_NAMES for job in ODD.jobs)
    assert not any(job.name in HOSTILE_NAMES for job in CALM.jobs)


def test_jobs_stay_where_they_are() -> None:
    assert [(job.id, job.user, job.node_names, job.cpus) for job in ODD.jobs] == [
        (job.id, job.user, job.node_names, job.cpus) for job in CALM.jobs
    ]


def test_nodes_keep_what_is_allocated() -> None:
    assert [(node.name, node.cpus_allocated, node.memory_allocated_bytes) for node in ODD.nodes] == [
        (node.name, node.cpus_allocated, node.memory_allocated_bytes) for node in CALM.nodes
    ]


def test_few_nodes_are_in_trouble() -> None:
    assert TROUBLED_NODES == sum(bool(node.reason) for node in CALM.nodes)
    sound = [node for node in CALM.nodes if not node.reason]
    assert {"idle", "mixed", "allocated"} == {node.base for node in sound}
    assert all(node.cpu_load is not None and node.memory_free_bytes is not None for node in sound)


def test_states_are_those_of_every_day() -> None:
    states = Counter(job.state for job in CALM.jobs)
    assert {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "COMPLETED"} <= states.keys()
    assert not {"REVOKED", "STOPPED", "STAGE_OUT", "REQUEUE_HOLD"} & states.keys()

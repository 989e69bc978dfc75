# SPDX-License-Identifier: Apache-2.0
"""Check that nodes are summed once for the cluster, once per partition, and exported one by one if enabled."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.cluster.nodes import COLLECTOR, NodesOptions
from slurmscope.cluster.sinfo import BASE_STATES, FLAGS, Node, NodeGres, Nodes, arguments, parse_nodes
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands import executables
from slurmscope.slurm.command import random_separator

BUSY = Node(
    name="n1", base_state="mixed", flags=frozenset({"planned"}), state_text="mixed-", partitions=("debug", "long"),
    cpus_total=8, cpus_allocated=3, cpus_idle=5, memory_bytes=100, allocated_memory_bytes=40, weight=1,
    free_memory_bytes=50, load=2.0, gres=(NodeGres(name="gpu", model="a100", total=4, used=1),),
)  # fmt: skip
DRAINED = Node(
    name="n2", base_state="idle", flags=frozenset({"drain"}), state_text="drained", partitions=("debug",),
    cpus_total=8, cpus_allocated=0, cpus_idle=0, memory_bytes=100, allocated_memory_bytes=0, weight=2,
    gres=(NodeGres(name="gpu", model="a100", total=4, used=0),),
    reason="bad\x1b[1m DIMM,\n  slot 3", reason_user="root", reason_since_seconds=1_794_733_356,
)  # fmt: skip
DRAINING = Node(
    name="n3", base_state="allocated", flags=frozenset({"drain", "not_responding"}), state_text="draining*",
    partitions=("long",), cpus_total=8, cpus_allocated=6, cpus_idle=0, memory_bytes=200, allocated_memory_bytes=120,
    weight=5, free_memory_bytes=10, load=6.5, reason="hot",
    gres=(NodeGres(name="gpu", model="", total=1, used=2), NodeGres(name="shard", model="", total=8, used=3)),
)  # fmt: skip
ASLEEP = Node(
    name="n4", base_state="idle", flags=frozenset({"cloud", "powered_down"}), state_text="idle~", partitions=("long",),
    cpus_total=8, cpus_allocated=0, cpus_idle=8, memory_bytes=200, allocated_memory_bytes=0, weight=10, gres=None,
)  # fmt: skip
SILENT = Node(
    name="n5", base_state="idle", flags=frozenset({"not_responding"}), state_text="idle*", partitions=("long",),
    cpus_total=8, cpus_allocated=0, cpus_idle=8, memory_bytes=200, allocated_memory_bytes=0, weight=1,
)  # fmt: skip
CLUSTER = Nodes(nodes=(BUSY, DRAINED, DRAINING, ASLEEP, SILENT), unreadable_rows=7)
EVERYTHING = NodesOptions(per_node=True, partition_map=True)


def collect(nodes: Nodes = CLUSTER, options: NodesOptions = EVERYTHING) -> dict[str, dict[Any, Any]]:
    return {family.metric.name: dict(family.samples) for family in COLLECTOR.collect(options, nodes=nodes)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slurm_cpus_total", {(): 40}),
        ("slurm_cpus_idle", {(): 21}),
        ("slurm_cpu_load", {(): 8.5}),
        ("slurm_cpus_per_state", {("mixed-",): 8, ("drained",): 8, ("draining*",): 8, ("idle~",): 8, ("idle*",): 8}),
        (
            "slurm_node_count_per_state",
            {("mixed-",): 1, ("drained",): 1, ("draining*",): 1, ("idle~",): 1, ("idle*",): 1},
        ),
        ("slurm_mem_real", {(): 800}),
        ("slurm_mem_free", {(): 60}),
        ("slurm_mem_alloc", {(): 160}),
        ("slurm_partition_total_cpus", {("debug",): 16, ("long",): 32}),
        ("slurm_partition_idle_cpus", {("debug",): 5, ("long",): 21}),
        ("slurm_partition_cpu_load", {("debug",): 2.0, ("long",): 8.5}),
        ("slurm_partition_real_mem", {("debug",): 200, ("long",): 700}),
        ("slurm_partition_free_mem", {("debug",): 50, ("long",): 60}),
        ("slurm_partition_weight", {("debug",): 3, ("long",): 17}),
        (
            "slurm_partition_alloc_cpus",
            {
                ("debug", "mixed-"): 3, ("debug", "drained"): 0, ("long", "mixed-"): 3, ("long", "draining*"): 6,
                ("long", "idle~"): 0, ("long", "idle*"): 0,
            },
        ),
        (
            "slurm_partition_alloc_mem",
            {
                ("debug", "mixed-"): 40, ("debug", "drained"): 0, ("long", "mixed-"): 40, ("long", "draining*"): 120,
                ("long", "idle~"): 0, ("long", "idle*"): 0,
            },
        ),
        (
            "slurm_partition_node_count",
            {
                ("debug", "mixed-"): 1, ("debug", "drained"): 1, ("long", "mixed-"): 1, ("long", "draining*"): 1,
                ("long", "idle~"): 1, ("long", "idle*"): 1,
            },
        ),
        ("slurm_gpus_total", {(): 9}),
        ("slurm_gpus_alloc", {(): 3}),
        ("slurm_gpus_idle", {(): 3}),
        ("slurm_gpus_total_per_type", {("a100",): 8, ("",): 1}),
        ("slurm_gpus_alloc_per_type", {("a100",): 1, ("",): 2}),
        ("slurm_gpus_idle_per_type", {("a100",): 3, ("",): 0}),
        ("slurm_partition_total_gpus", {("debug",): 8, ("long",): 5}),
        (
            "slurm_partition_alloc_gpus",
            {
                ("debug", "mixed-"): 1, ("debug", "drained"): 0, ("long", "mixed-"): 1, ("long", "draining*"): 2,
                ("long", "idle~"): 0, ("long", "idle*"): 0,
            },
        ),
    ],
)  # fmt: skip
def test_known_name_has_the_right_value(name: str, expected: dict[tuple[str, ...], float]) -> None:
    assert expected == collect()[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slurm_nodes_usable", {(): 2}),
        ("slurm_partition_nodes_usable", {("debug",): 1, ("long",): 2}),
        ("slurm_cpus", {("allocated",): 9, ("idle",): 13, ("unusable",): 18}),
        (
            "slurm_partition_cpus",
            {
                ("debug", "allocated"): 3, ("debug", "idle"): 5, ("debug", "unusable"): 8,
                ("long", "allocated"): 9, ("long", "idle"): 13, ("long", "unusable"): 10,
            },
        ),
        ("slurm_memory_bytes", {(): 800}),
        ("slurm_partition_memory_bytes", {("debug",): 200, ("long",): 700}),
        ("slurm_allocated_memory_bytes", {(): 160}),
        ("slurm_partition_allocated_memory_bytes", {("debug",): 40, ("long",): 160}),
        ("slurm_free_memory_bytes", {(): 60}),
        ("slurm_partition_free_memory_bytes", {("debug",): 50, ("long",): 60}),
        ("slurm_load", {(): 8.5}),
        ("slurm_partition_load", {("debug",): 2.0, ("long",): 8.5}),
        (
            "slurm_gres",
            {
                ("gpu", "a100", "allocated"): 1, ("gpu", "a100", "idle"): 3, ("gpu", "a100", "unusable"): 4,
                ("gpu", "", "allocated"): 2, ("gpu", "", "idle"): 0, ("gpu", "", "unusable"): 0,
                ("shard", "", "allocated"): 3, ("shard", "", "idle"): 0, ("shard", "", "unusable"): 5,
            },
        ),
        (
            "slurm_partition_gres",
            {
                ("debug", "gpu", "a100", "allocated"): 1, ("debug", "gpu", "a100", "idle"): 3,
                ("debug", "gpu", "a100", "unusable"): 4, ("long", "gpu", "a100", "allocated"): 1,
                ("long", "gpu", "a100", "idle"): 3, ("long", "gpu", "a100", "unusable"): 0,
                ("long", "gpu", "", "allocated"): 2, ("long", "gpu", "", "idle"): 0, ("long", "gpu", "", "unusable"): 0,
                ("long", "shard", "", "allocated"): 3, ("long", "shard", "", "idle"): 0,
                ("long", "shard", "", "unusable"): 5,
            },
        ),
        ("slurm_nodes_unreadable", {("rows",): 7, ("gres",): 1}),
    ],
)  # fmt: skip
def test_cluster_and_partitions_are_added_up(name: str, expected: dict[tuple[str, ...], float]) -> None:
    assert expected == collect()[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "slurm_node_state_info",
            {("n1", "mixed"): 1, ("n2", "idle"): 1, ("n3", "allocated"): 1, ("n4", "idle"): 1, ("n5", "idle"): 1},
        ),
        (
            "slurm_node_flag",
            {
                ("n1", "planned"): 1, ("n2", "drain"): 1, ("n3", "drain"): 1, ("n3", "not_responding"): 1,
                ("n4", "cloud"): 1, ("n4", "powered_down"): 1, ("n5", "not_responding"): 1,
            },
        ),
        ("slurm_node_usable", {("n1",): 1, ("n2",): 0, ("n3",): 0, ("n4",): 1, ("n5",): 0}),
        ("slurm_node_cpus", {("n1",): 8, ("n2",): 8, ("n3",): 8, ("n4",): 8, ("n5",): 8}),
        ("slurm_node_allocated_cpus", {("n1",): 3, ("n2",): 0, ("n3",): 6, ("n4",): 0, ("n5",): 0}),
        ("slurm_node_memory_bytes", {("n1",): 100, ("n2",): 100, ("n3",): 200, ("n4",): 200, ("n5",): 200}),
        ("slurm_node_allocated_memory_bytes", {("n1",): 40, ("n2",): 0, ("n3",): 120, ("n4",): 0, ("n5",): 0}),
        ("slurm_node_free_memory_bytes", {("n1",): 50, ("n3",): 10}),
        ("slurm_node_load", {("n1",): 2.0, ("n3",): 6.5}),
        (
            "slurm_node_gres",
            {("n1", "gpu", "a100"): 4, ("n2", "gpu", "a100"): 4, ("n3", "gpu", ""): 1, ("n3", "shard", ""): 8},
        ),
        (
            "slurm_node_gres_used",
            {("n1", "gpu", "a100"): 1, ("n2", "gpu", "a100"): 0, ("n3", "gpu", ""): 2, ("n3", "shard", ""): 3},
        ),
        ("slurm_node_drain_info", {("n2", "bad [1m DIMM, slot 3", "root"): 1, ("n3", "hot", ""): 1}),
        ("slurm_node_drain_since_timestamp_seconds", {("n2",): 1_794_733_356}),
        (
            "slurm_node_partition_info",
            {
                ("n1", "debug"): 1, ("n1", "long"): 1, ("n2", "debug"): 1, ("n3", "long"): 1, ("n4", "long"): 1,
                ("n5", "long"): 1,
            },
        ),
    ],
)  # fmt: skip
def test_each_node_is_exported(name: str, expected: dict[tuple[str, ...], float]) -> None:
    assert expected == collect()[name]


def test_known_states_and_flags_without_nodes_are_zero() -> None:
    served = collect()

    assert {**{(state,): 0 for state in BASE_STATES}, ("mixed",): 1, ("allocated",): 1, ("idle",): 3} == served[
        "slurm_nodes"
    ]
    assert {("debug", state) for state in BASE_STATES} <= served["slurm_partition_nodes"].keys()
    assert {
        **{(flag,): 0 for flag in FLAGS},
        ("drain",): 2,
        ("not_responding",): 2,
        ("planned",): 1,
        ("cloud",): 1,
        ("powered_down",): 1,
    } == served["slurm_nodes_flagged"]
    assert 1 == served["slurm_partition_nodes_flagged"]["debug", "drain"]
    assert 0 == served["slurm_partition_nodes_flagged"]["debug", "cloud"]


def test_unknown_flag_is_counted_under_its_own_name() -> None:
    node = Node(
        name="n1", base_state="unknown", flags=frozenset({"hovering"}), state_text="adrift", partitions=("debug",),
        cpus_total=1, cpus_allocated=0, cpus_idle=1, memory_bytes=1, allocated_memory_bytes=0, weight=1,
    )  # fmt: skip

    served = collect(Nodes(nodes=(node,)))

    assert 1 == served["slurm_nodes_flagged"][("hovering",)]
    assert 1 == served["slurm_nodes"][("unknown",)]


def test_sum_of_loads_has_no_more_decimals_than_loads() -> None:
    nodes = tuple(BUSY._replace(name=f"n{number}", load=0.1) for number in range(3))

    assert 0.3 == collect(Nodes(nodes=nodes))["slurm_load"][()]


def test_every_declared_metric_is_served_and_no_other() -> None:
    declared = [metric.name for metric in COLLECTOR.metrics]

    assert len(set(declared)) == len(declared)
    assert dict.fromkeys(declared, True) == {name: bool(samples) for name, samples in collect().items()}


def test_names_of_nodes_can_be_switched_off() -> None:
    served = collect(options=NodesOptions(per_node=False))

    assert not [name for name in served if name.startswith("slurm_node_") and name != "slurm_node_count_per_state"]
    assert "slurm_cpus" in served


def test_partitions_of_nodes_are_exported_only_if_enabled() -> None:
    assert "slurm_node_partition_info" not in collect(options=NodesOptions())


def test_a_cluster_without_nodes_says_so_with_no_series_but_one() -> None:
    served = collect(Nodes(nodes=()))

    assert ["slurm_nodes_unreadable"] == [name for name, samples in served.items() if samples]


@pytest.mark.parametrize("seed", [3, 4])
def test_sums_of_a_simulated_cluster_fit_together(seed: int) -> None:
    made = simulate(Shape(seed=seed, nodes=120, partitions=7, gpus=60), now=1_750_000_000)
    separator = random_separator()
    _, answer, _ = executables.answer(made, "sinfo", arguments(separator))
    listed = [node for node in made.nodes if node.base != "future"]

    served = collect(parse_nodes(answer, separator))

    assert len(listed) == sum(served["slurm_nodes"].values()) == sum(served["slurm_node_count_per_state"].values())
    assert sum(node.cpus for node in listed) == sum(served["slurm_cpus"].values()) == served["slurm_cpus_total"][()]
    assert sum(node.memory_bytes for node in listed) == served["slurm_memory_bytes"][()]
    gpus = {labels: count for labels, count in served["slurm_gres"].items() if labels[0] == "gpu"}
    assert sum(pool.total for node in listed for pool in node.gpus) == sum(gpus.values())
    assert sum(pool.used for node in listed for pool in node.gpus) == served["slurm_gpus_alloc"][()]
    members = sum(len(node.partitions) for node in listed)
    assert members == sum(served["slurm_partition_nodes"].values()) == len(served["slurm_node_partition_info"])


def test_gres_of_equal_nodes_are_multiplied_by_their_number() -> None:
    # Three nodes of four GPUs, three of them in use.
    gres = (NodeGres(name="gpu", model="a100", total=4, used=3),)
    nodes = tuple(BUSY._replace(name=f"n{number}", gres=gres) for number in range(3))

    served = collect(Nodes(nodes=nodes))

    assert {("gpu", "a100", "allocated"): 9, ("gpu", "a100", "idle"): 3, ("gpu", "a100", "unusable"): 0} == served[
        "slurm_gres"
    ]
    assert {("a100",): 12} == served["slurm_gpus_total_per_type"]
    assert {("a100",): 9} == served["slurm_gpus_alloc_per_type"]
    assert {("a100",): 3} == served["slurm_gpus_idle_per_type"]

# SPDX-License-Identifier: Apache-2.0
"""Our nodes and partitions are those of Slurm's own commands, on a real cluster."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from lab import ALICE, BOB, SlurmLab
from tests.processes import run_slurmscope, values

MIB = 1024**2
HOSTILE_REASON = "fan|3 \"loud\" 'x' \\ ünï\nlab0n9|debug, comma\ttab <3 >x # TYPE"
HOSTILE_LABEL = "fan|3 \"loud\" 'x' \\ ünï lab0n9|debug, comma tab <3 >x # TYPE"


def read_page(lab: SlurmLab, *flags: str) -> str:
    done = run_slurmscope(
        "cluster", "--once", "--slurm.bin-path", str(lab.bin_path), *flags, environment=lab.environment
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def show_nodes(lab: SlurmLab) -> dict[str, dict[str, str]]:
    """Read all nodes from scontrol, which we never parse."""
    shown = lab.run("scontrol", "--oneliner", "show", "node").splitlines()
    nodes = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in shown if line.startswith("NodeName=")]
    return {node["NodeName"]: node for node in nodes}


def by_node(nodes: dict[str, dict[str, str]], field: str, factor: int = 1) -> dict[tuple[str, ...], float]:
    return {(name,): int(node[field]) * factor for name, node in nodes.items()}


@pytest.fixture
def busy_lab(clean_lab: SlurmLab) -> SlurmLab:
    """Give a cluster with a node half full, one down, one with a GPU in use and one drained."""
    half_full, down, with_gpu, drained = clean_lab.nodes
    jobs = [
        clean_lab.submit(ALICE, f"--nodelist={half_full}", "--ntasks=3", "--mem=900M", script="sleep 300"),
        clean_lab.submit(
            BOB, "--partition=gpus", f"--nodelist={with_gpu}", "--gres=gpu:a100:1", "--mem=1G", script="sleep 300"
        ),
    ]
    for job in jobs:
        clean_lab.wait_state(job, {"RUNNING"})
    clean_lab.run("scontrol", "update", f"NodeName={down}", "State=DOWN", "Reason=power")
    clean_lab.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", f"Reason={HOSTILE_REASON}")
    return clean_lab


def test_each_node_is_as_scontrol_shows_it(busy_lab: SlurmLab) -> None:
    nodes = show_nodes(busy_lab)

    page = read_page(busy_lab)

    assert by_node(nodes, "CPUTot") == values(page, "slurm_node_cpus")
    assert by_node(nodes, "CPUAlloc") == values(page, "slurm_node_allocated_cpus")
    assert by_node(nodes, "RealMemory", MIB) == values(page, "slurm_node_memory_bytes")
    assert by_node(nodes, "AllocMem", MIB) == values(page, "slurm_node_allocated_memory_bytes")
    states = {name: node["State"].lower().split("+") for name, node in nodes.items()}
    assert {(name, state[0]): 1 for name, state in states.items()} == values(page, "slurm_node_state_info")
    assert {(name, flag): 1 for name, state in states.items() for flag in state[1:]} == values(page, "slurm_node_flag")
    assert set(by_node(nodes, "CPUTot")) == set(values(page, "slurm_node_load"))


def test_sums_are_those_of_sinfo_in_another_format(busy_lab: SlurmLab) -> None:
    page = read_page(busy_lab)
    shown = busy_lab.run("sinfo", "--noheader", "--all", "--exact", "--Node", "--format=%N %T %R %C").splitlines()
    rows = {tuple(line.split()) for line in shown}

    nodes = {row[0]: row for row in rows}
    assert Counter((row[1],) for row in nodes.values()) == values(page, "slurm_node_count_per_state")
    assert Counter((row[2], row[1]) for row in rows) == values(page, "slurm_partition_node_count")
    allocated, idle, _, total = (int(count) for count in busy_lab.run("sinfo", "-h", "-o", "%C").split("/"))
    assert {(): total} == values(page, "slurm_cpus_total")
    assert {(): idle} == values(page, "slurm_cpus_idle")
    # Neither the down nor the drained node is in a state to take work; nothing else is idle but what sinfo counts.
    assert {("allocated",): allocated, ("idle",): idle, ("unusable",): total - allocated - idle} == values(
        page, "slurm_cpus"
    )
    cpus: Counter[tuple[str, ...]] = Counter()
    for _, _, partition, counts in rows:
        cpus[(partition,)] += int(counts.split("/")[3])
    assert cpus == values(page, "slurm_partition_total_cpus")


def test_gpu_of_a_drained_node_is_not_idle(busy_lab: SlurmLab) -> None:
    *_, with_gpu, drained = busy_lab.nodes

    page = read_page(busy_lab)

    assert "cpu=1,mem=1G,gres/gpu=1" == show_nodes(busy_lab)[with_gpu]["AllocTRES"]
    assert {(with_gpu, "gpu", "a100"): 1, (drained, "gpu", "a100"): 0} == values(page, "slurm_node_gres_used")
    assert {
        ("gpus", "gpu", "a100", "allocated"): 1,
        ("gpus", "gpu", "a100", "idle"): 1,
        ("gpus", "gpu", "a100", "unusable"): 2,
    } == {labels: count for labels, count in values(page, "slurm_partition_gres").items() if labels[0] == "gpus"}
    assert {(): 1} == values(page, "slurm_gpus_idle")


def test_reason_of_any_text_is_told_and_forges_nothing(busy_lab: SlurmLab) -> None:
    _, down, _, drained = busy_lab.nodes

    page = read_page(busy_lab)

    assert {(down, "power", "root"): 1, (drained, HOSTILE_LABEL, "root"): 1} == values(page, "slurm_node_drain_info")
    assert {("rows",): 0, ("gres",): 0} == values(page, "slurm_nodes_unreadable")
    since = values(page, "slurm_node_drain_since_timestamp_seconds")
    assert {(down,), (drained,)} == since.keys()
    assert all(time.time() - 600 < moment <= time.time() + 1 for moment in since.values())
    assert set(busy_lab.nodes) == {name for (name,) in values(page, "slurm_node_cpus")}


def test_partitions_of_nodes_are_those_of_scontrol(clean_lab: SlurmLab) -> None:
    nodes = show_nodes(clean_lab)

    page = read_page(clean_lab, "--collector.nodes.partition-map")

    assert {
        (name, partition): 1 for name, node in nodes.items() for partition in node["Partitions"].split(",")
    } == values(page, "slurm_node_partition_info")

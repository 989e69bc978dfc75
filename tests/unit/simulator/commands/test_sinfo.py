# SPDX-License-Identifier: Apache-2.0
"""Check that the simulated sinfo prints what the real one printed for the same nodes.

The expected rows were printed by sinfo 22.05.8 on a real controller with the partitions and nodes of ``real_nodes``;
only where that cluster had two nodes of one host name, or resources configured but unused, are the nodes here simpler.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import GpuPool, Partition, Shape, SimulatedCluster, SimulatedNode, User
from slurmscope.simulator.cluster.texts import MIB
from slurmscope.simulator.commands import sinfo

NOW = 1_800_000_000
HOMES = ("cloud", "long")


def node(name: str, **changes: Any) -> SimulatedNode:
    """Make a powered-down node of the cloud."""
    base = SimulatedNode(
        name=name,
        cpus=64,
        memory_bytes=512_000 * MIB,
        partitions=HOMES,
        flags=("cloud", "powered_down"),
        features="x,y",
        weight=5,
    )
    return replace(base, **changes)


def here(name: str, cpus: int, memory: int, free: int, load: float) -> SimulatedNode:
    """Make a node that is up and partly in use."""
    return node(
        name,
        cpus=8,
        memory_bytes=4000 * MIB,
        partitions=("debug", "long"),
        base="mixed",
        flags=(),
        weight=1,
        features="avx",
        cpus_allocated=cpus,
        memory_allocated_bytes=memory * MIB,
        memory_free_bytes=free * MIB,
        cpu_load=load,
    )


@pytest.fixture(scope="module")
def real_nodes() -> SimulatedCluster:
    gpu = {"cpus": 32, "memory_bytes": 1_000_000 * MIB, "weight": 1, "features": None, "dialect": 1}
    booting = {
        "base": "mixed", "flags": ("cloud", "not_responding", "powering_up"), "cpus_allocated": 3,
        "memory_allocated_bytes": 8192 * MIB,
    }  # fmt: skip
    cloud = [node(f"c0{number}") for number in range(1, 7)]
    nodes = (
        *cloud,
        node("g1", **gpu, **booting, gpus=(GpuPool(type="a100", total=4, used=2),)),
        node("g2", **gpu, gpus=(GpuPool(type="a100", total=4),)),
        here("n1", 7, 1354, 23_907, 0.13),
        here("n2", 2, 2048, 23_801, 0.11),
    )
    return cluster_of(*nodes)


def cluster_of(*nodes: SimulatedNode) -> SimulatedCluster:
    """Make a cluster of nothing but nodes."""
    partitions = (("debug", None), ("cloud", 2 * 86_400), ("long", None))
    return SimulatedCluster(
        name="real", now=NOW, jobs=(), nodes=nodes, users=(), accounts=(), qos=(),
        partitions=tuple(
            Partition(
                name=name, is_default=name == "debug", time_limit_seconds=limit,
                node_names=tuple(each.name for each in nodes if name in each.partitions),
            )
            for name, limit in partitions
        ),
    )  # fmt: skip


def rows(cluster: SimulatedCluster, *argv: str, **environment: str) -> list[str]:
    """Run the command and split its output at newlines."""
    code, out, complaints = sinfo.answer(cluster, ["-h", *argv], environment)
    assert (0, b"") == (code, complaints)
    return out.decode().split("\n")[:-1]


def test_each_node_has_a_row_for_each_of_its_partitions(real_nodes: SimulatedCluster) -> None:
    fields = (
        "NodeList:|,StateComplete:|,StateLong:|,StateCompact:|,Partition:|,PartitionName:|,CPUsState:|,CPUs:|,Memory:|,AllocMem:|,"
        "FreeMem:|,CPUsLoad:|,Gres:|,Weight:|,Reason:|,Timestamp:|,Features:|,Time:"
    )
    printed = rows(real_nodes, "-N", "-a", "-O", fields)
    assert 20 == len(printed)
    cloud = "idle+cloud+powered_down|idle~|idle~"
    booting = "mixed+cloud+not_responding+powering_up|mixed#|mix#"
    assert {
        f"c01|{cloud}|cloud|cloud|0/64/0/64|64|512000|0|N/A|N/A|(null)|5|none|Unknown|x,y|2-00:00:00",
        f"c01|{cloud}|long|long|0/64/0/64|64|512000|0|N/A|N/A|(null)|5|none|Unknown|x,y|infinite",
        f"g1|{booting}|cloud|cloud|3/29/0/32|32|1000000|8192|N/A|N/A|gpu:a100:4|1|none|Unknown|(null)|2-00:00:00",
        "n1|mixed|mixed|mix|debug*|debug|7/1/0/8|8|4000|1354|23907|0.13|(null)|1|none|Unknown|avx|infinite",
        "n2|mixed|mixed|mix|debug*|debug|2/6/0/8|8|4000|2048|23801|0.11|(null)|1|none|Unknown|avx|infinite",
    } <= set(printed)


# The real command printed exactly these rows, in this order.
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%C", ["12/452/0/464"]),
        ("%D,%T", ["2,mixed", "7,idle~", "1,mixed#"]),
        ("%R,%C", ["debug,9/7/0/16", "cloud,3/445/0/448", "long,12/452/0/464"]),
        ("%R|%D|%b", ["debug|2|avx", "cloud|6|x,y", "cloud|2|(null)", "long|6|x,y", "long|2|(null)", "long|2|avx"]),
        (
            "%P|%a|%l|%D|%t|%N",
            [
                "debug*|up|infinite|2|mix|n[1-2]",
                "cloud|up|2-00:00:00|7|idle~|c[01-06],g2",
                "cloud|up|2-00:00:00|1|mix#|g1",
                "long|up|infinite|7|idle~|c[01-06],g2",
                "long|up|infinite|1|mix#|g1",
                "long|up|infinite|2|mix|n[1-2]",
            ],
        ),
    ],
)
def test_rows_that_agree_are_joined(real_nodes: SimulatedCluster, text: str, printed: list[str]) -> None:
    # sinfo sorts the states of a partition by their number, which no reader may rely on.
    assert sorted(printed) == sorted(rows(real_nodes, "-o", text))


def test_a_partition_can_be_picked(real_nodes: SimulatedCluster) -> None:
    assert ["n1", "n2"] == rows(real_nodes, "-N", "-p", "debug", "-o", "%N")


def test_the_default_listings_have_the_columns_of_the_real_ones(real_nodes: SimulatedCluster) -> None:
    _, out, _ = sinfo.answer(real_nodes, [])
    assert "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST" == out.decode().split("\n")[0]
    assert "debug*       up   infinite      2    mix n[1-2]" == out.decode().split("\n")[1]
    _, out, _ = sinfo.answer(real_nodes, ["-N"])
    assert "NODELIST    NODES PARTITION STATE " == out.decode().split("\n")[0]
    assert "c01             1     cloud idle~ " == out.decode().split("\n")[1]


# Seen after scontrol update of real nodes: only drained and down nodes have "other" CPUs, a failing one does not.
@pytest.mark.parametrize(
    ("base", "flags", "allocated", "printed"),
    [
        ("allocated", ("drain",), 7, "7/0/1/8"),
        ("idle", ("cloud", "drain", "powered_down"), 0, "0/0/8/8"),
        ("down", (), 0, "0/0/8/8"),
        ("idle", ("fail",), 0, "0/8/0/8"),
        ("mixed", ("not_responding",), 7, "7/1/0/8"),
    ],
)
def test_cpus_are_counted_by_state(base: str, flags: tuple[str, ...], allocated: int, printed: str) -> None:
    cluster = cluster_of(node("n1", cpus=8, base=base, flags=flags, cpus_allocated=allocated, partitions=("long",)))
    assert [printed] == rows(cluster, "-N", "-o", "%C")


def test_a_reason_comes_with_its_author_and_time() -> None:
    alice = User(name="alice", uid=1001, accounts=())
    reason = 'line one\nline two\x1b[1m|"q"'
    drained = {"flags": ("drain",), "reason": reason, "reason_time": NOW - 60, "partitions": ("long",)}
    cluster = cluster_of(node("n1", **drained, reason_user=alice), node("n2", **drained))
    fields = "Reason:\x1e,User:\x1e,UserLong:\x1e,Timestamp:\x1e"
    local = datetime.fromtimestamp(NOW - 60, UTC).astimezone().replace(tzinfo=None).isoformat()
    assert f"{reason}\x1ealice\x1ealice(1001)\x1e{local}\x1e\n{reason}\x1eroot\x1eroot(0)\x1e{local}\x1e" == "\n".join(
        rows(cluster, "-N", "-O", fields)
    )


def test_generic_resources_are_spelled_in_many_ways() -> None:
    kinds = ["a100", "", "h100", "l40s", "t4"]
    cluster = cluster_of(
        *(
            node(f"g{number}", dialect=number, gpus=(GpuPool(type=kind, total=4, used=2),), partitions=("long",))
            for number, kind in enumerate(kinds)
        )
    )
    assert [
        "gpu:a100:4(S:0-1)|gpu:a100:2(IDX:0-1)",
        "gpu:4|gpu:2",
        "gpu:h100:4|gpu:h100:2(IDX:0-1)",
        "gpu:l40s:4(S:0-1),shard:l40s:16(S:0-1)|gpu:l40s:2(IDX:0-1),shard:l40s:0(0/4,0/4,0/4,0/4)",
        "gpu:t4:4,mps:t4:400|gpu:t4:2,mps:t4:0(0/100,0/100,0/100,0/100)",
    ] == rows(cluster, "-N", "-O", "Gres:|,GresUsed:")


def test_future_nodes_are_hidden_unless_asked_for() -> None:
    cluster = cluster_of(node("n1", partitions=("long",)), node("n2", partitions=("long",), base="future", flags=()))
    assert ["n1"] == rows(cluster, "-N", "-a", "-o", "%N")
    assert ["n1", "n2"] == rows(cluster, "-N", "-a", "--future", "-o", "%N")


def test_cpus_of_a_simulated_cluster_add_up() -> None:
    cluster = simulate(Shape(), now=NOW)
    [total] = rows(cluster, "-F", "-o", "%C")
    allocated, idle, other, every = (int(count) for count in total.split("/"))
    assert sum(each.cpus for each in cluster.nodes) == every == allocated + idle + other
    assert sum(each.cpus_allocated for each in cluster.nodes) == allocated


def test_an_unknown_field_costs_a_complaint_and_an_empty_column(real_nodes: SimulatedCluster) -> None:
    code, out, complaints = sinfo.answer(real_nodes, ["-h", "-N", "-p", "debug", "-O", "NodeList:|,Bogus:|,CPUs:|"])
    assert (0, b"n1||8|\nn2||8|\n") == (code, out)
    assert b"Bogus" in complaints


@pytest.mark.parametrize("argv", [["--bogus"], ["-o", "%N", "-O", "NodeList"], ["extra"]])
def test_wrong_usage_exits_with_1_and_prints_nothing(real_nodes: SimulatedCluster, argv: list[str]) -> None:
    code, out, complaints = sinfo.answer(real_nodes, argv)
    assert (1, b"") == (code, out)
    assert complaints.startswith(b"sinfo: error: ")


def test_the_version_is_told(real_nodes: SimulatedCluster) -> None:
    assert (0, b"slurm 22.05.8\n", b"") == sinfo.answer(real_nodes, ["--version"])

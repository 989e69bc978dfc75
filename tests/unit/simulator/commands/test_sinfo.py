# SPDX-License-Identifier: Apache-2.0
"""Check that the simulated sinfo prints what sinfo 22.05.8 printed on a real controller for the same nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.records import GpuPool, SimulatedNode, User
from slurmscope.simulator.commands.lists import NODE_FIELDS

BASE = SimulatedNode(
    name="c01",
    cpus=64,
    memory_bytes=512_000 * MIB,
    partitions=("cloud", "long"),
    flags=("cloud", "powered_down"),
    features="x,y",
    weight=5,
)


def node(**changes: Any) -> SimulatedNode:
    """Make a powered-down node of the cloud."""
    return replace(BASE, **changes)


def print_node(names: str, shown: SimulatedNode) -> str:
    return "|".join(NODE_FIELDS[name](shown) for name in names.split())


BOOTING = node(
    name="g1", cpus=32, memory_bytes=1_000_000 * MIB, weight=1, features=None, dialect=1, base="mixed",
    flags=("cloud", "not_responding", "powering_up"), cpus_allocated=3, memory_allocated_bytes=8192 * MIB,
    gpus=(GpuPool(type="a100", total=4, used=2),),
)  # fmt: skip
IN_USE = node(
    name="n1", cpus=8, memory_bytes=4000 * MIB, base="mixed", flags=(), weight=1, features="avx", cpus_allocated=7,
    memory_allocated_bytes=1354 * MIB, memory_free_bytes=23_907 * MIB, cpu_load=0.13,
)  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (BASE, "c01|idle+cloud+powered_down|idle~|0/64/0/64|512000|0|N/A|N/A|(null)|5|none|Unknown|x,y"),
        (
            BOOTING,
            "g1|mixed+cloud+not_responding+powering_up|mixed#|3/29/0/32|1000000|8192|N/A|N/A|gpu:a100:4|1|none|Unknown|(null)",
        ),
        (IN_USE, "n1|mixed|mixed|7/1/0/8|4000|1354|23907|0.13|(null)|1|none|Unknown|avx"),
    ],
)
def test_fields_are_those_of_the_real_command(shown: SimulatedNode, printed: str) -> None:
    names = (
        "NodeList StateComplete StateLong CPUsState Memory AllocMem FreeMem CPUsLoad Gres Weight Reason Timestamp"
        " Features"
    )
    assert printed == print_node(names, shown)


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
    assert printed == print_node("CPUsState", node(cpus=8, base=base, flags=flags, cpus_allocated=allocated))


def test_a_reason_comes_with_its_author_and_time() -> None:
    drained = node(flags=("drain",), reason='line one\nline two\x1b[1m|"q"', reason_time=1_800_000_000)
    assert 'line one\nline two\x1b[1m|"q"|root|1800000000' == print_node("Reason User Timestamp", drained)
    by_alice = replace(drained, reason_user=User(name="alice", uid=1001, accounts=()))
    assert "alice" == print_node("User", by_alice)
    assert "Unknown" == print_node("User", BASE)


def test_generic_resources_are_spelled_in_many_ways() -> None:
    kinds = ["a100", "", "h100", "l40s", "t4"]
    assert [
        "gpu:a100:4(S:0-1)|gpu:a100:2(IDX:0-1)",
        "gpu:4|gpu:2",
        "gpu:h100:4|gpu:h100:2(IDX:0-1)",
        "gpu:l40s:4(S:0-1),shard:l40s:16(S:0-1)|gpu:l40s:2(IDX:0-1),shard:l40s:0(0/4,0/4,0/4,0/4)",
        "gpu:t4:4,mps:t4:400|gpu:t4:2,mps:t4:0(0/100,0/100,0/100,0/100)",
    ] == [
        print_node("Gres GresUsed", node(dialect=number, gpus=(GpuPool(type=kind, total=4, used=2),)))
        for number, kind in enumerate(kinds)
    ]

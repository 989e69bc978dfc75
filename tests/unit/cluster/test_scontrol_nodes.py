# SPDX-License-Identifier: Apache-2.0
"""Records of scontrol become the same nodes as rows of sinfo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.scontrol_nodes import parse_nodes
from slurmscope.cluster.sinfo import Node, NodeGres
from slurmscope.core.errors import MalformedAnswer

MIB = 1024 * 1024


def record(
    *, name: str = "n1", state: str = "MIXED", reason: str = "", memory: str = "4000", load: str = "0.52"
) -> str:
    """Write a record as scontrol 22.05 does with our arguments."""
    told = f" Reason={reason}" if reason else ""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=8 CPUTot=8 CPULoad={load} "
        "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:a100:2 GresDrain=N/A GresUsed=gpu:a100:1(IDX:0) "
        "NodeAddr=127.0.0.1 NodeHostName=localhost Port=21003 Version=22.05.8 OS=Linux 6.1 #1 SMP A=B @0  "
        f"RealMemory={memory} AllocMem=200 FreeMem=N/A Sockets=8 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 "
        "Weight=3 Owner=N/A MCS_label=N/A Partitions=long,debug  BootTime=1794730215 CfgTRES=cpu=8,mem=4000M "
        f"AllocTRES=cpu=1,mem=200M,gres/gpu=1 CapWatts=n/a ExtSensorsTemp=n/s{told}\n"
    )


def test_record_becomes_a_node() -> None:
    expected = Node(
        name="n1",
        base_state="mixed",
        flags=frozenset(),
        state_text="mixed",
        partitions=("debug", "long"),
        cpus_total=8,
        cpus_allocated=1,
        cpus_idle=7,
        memory_bytes=4000 * MIB,
        allocated_memory_bytes=200 * MIB,
        weight=3,
        free_memory_bytes=None,
        load=0.52,
        gres=(NodeGres(name="gpu", model="a100", total=2, used=1),),
        reason=None,
        reason_user=None,
        reason_since_seconds=None,
    )

    nodes = parse_nodes(record().encode())

    assert ((expected,), 0) == (nodes.nodes, nodes.unreadable_rows)


@pytest.mark.parametrize(
    ("state", "base", "flags", "text"),
    [
        ("IDLE+DRAIN", "idle", {"drain"}, "drained"),
        ("DOWN*", "down", {"not_responding"}, "down*"),
        ("IDLE+CLOUD+POWERED_DOWN", "idle", {"cloud", "powered_down"}, "idle~"),
        ("SHINY", "unknown", set(), "?"),
    ],
)
def test_state_is_split_as_sinfo_says_it(state: str, base: str, flags: set[str], text: str) -> None:
    (node,) = parse_nodes(record(state=state).encode()).nodes

    assert (base, flags, text) == (node.base_state, set(node.flags), node.state_text)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("dead [root@1794739094]", ("dead", "root", 1794739094)),
        ("a=b | [z@x] 'q' é [ops@5]", ("a=b | [z@x] 'q' é", "ops", 5)),
        ("bad [root@1794739094]        NodeName=fake State=x", ("bad\nNodeName=fake State=x", "root", 1794739094)),
        ("no stamp", ("no stamp", None, None)),
        ("fan [ada@example.org@5]", ("fan", "ada@example.org", 5)),
        ("fan [root@5] Comment=spare [bob@7]", ("fan", "root", 5)),
        ("fan [root@5] Extra=x", ("fan", "root", 5)),
        ("a [root@5]        b        c", ("a\nb\nc", "root", 5)),
        # 25.05 prints the topology last, 23.11 the instance of a cloud node, with a blank after its ID.
        ("fan [root@5] Topology=default:s0:s1", ("fan", "root", 5)),
        ("a [root@5]        b Topology=default:s0:s1", ("a\nb", "root", 5)),
        ("fan [root@5] InstanceId=i-1  InstanceType=c5 ReservationName=r", ("fan", "root", 5)),
        ("fan Topology=default:s0:s1", ("fan", None, None)),
        ("fan [root@5] Unheard=x", ("fan", "root", 5)),
        ("fan [z@5] Unheard=x [ops@7]", ("fan [z@5] Unheard=x", "ops", 7)),
    ],
)
def test_reason_is_taken_apart(written: str, told: tuple[str, str | None, int | None]) -> None:
    (node,) = parse_nodes(record(reason=written).encode()).nodes

    assert told == (node.reason, node.reason_user, node.reason_since_seconds)


@pytest.mark.parametrize("free_text", [" Comment=x Reason=y [root@5]", " Extra=Reason=y [root@5]"])
def test_comment_is_no_reason(free_text: str) -> None:
    (node,) = parse_nodes(record().encode()[:-1] + free_text.encode() + b"\n").nodes

    assert (None, None, None) == (node.reason, node.reason_user, node.reason_since_seconds)


def test_count_with_a_sign_is_no_count() -> None:
    assert 1 == parse_nodes((record() + record(memory="-4000")).encode()).unreadable_rows


def test_odd_record_costs_only_itself() -> None:
    nodes = parse_nodes((record() + record(name="n2", memory="much") + record(name="n3", load="N/A")).encode())

    assert (["n1", "n3"], 1) == ([node.name for node in nodes.nodes], nodes.unreadable_rows)
    assert nodes.nodes[1].load is None


@pytest.mark.parametrize("answer", [b"", b"No nodes in the system\n"])
def test_cluster_without_nodes_is_empty(answer: bytes) -> None:
    assert () == parse_nodes(answer).nodes


@pytest.mark.parametrize("answer", [b"slurm_load_node error\n", record().encode()[:-1]])
def test_what_is_no_answer_is_rejected(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_nodes(answer)


@given(st.binary(max_size=200).map(lambda more: record().encode()[:-1] + more + b"\n"))
def test_any_bytes_behind_a_record_are_read_or_rejected(answer: bytes) -> None:
    assert parse_nodes(answer).nodes[0].name == "n1"

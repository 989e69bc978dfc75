# SPDX-License-Identifier: Apache-2.0
"""What sinfo prints becomes nodes, whatever administrators write into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.sinfo import COLUMNS, Node, NodeGres, Nodes, arguments, parse_nodes
from slurmscope.core.errors import MalformedAnswer
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands import executables
from slurmscope.slurm.command import random_separator

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SEPARATOR = "8f3a1c9e"
MIB = 1024**2


def read_fixture(name: str) -> dict[str, Node]:
    nodes = parse_nodes((FIXTURES / name).read_bytes(), SEPARATOR)
    assert 0 == nodes.unreadable_rows
    return {node.name: node for node in nodes.nodes}


def print_row(**values: str) -> str:
    usual = {
        "NodeList": "n1", "PartitionName": "debug", "StateComplete": "idle", "StateLong": "idle",
        "CPUsState": "0/8/0/8", "Memory": "4000", "AllocMem": "0", "FreeMem": "3000", "CPUsLoad": "0.50", "Weight": "1",
        "Gres": "(null)", "GresUsed": "gpu:0", "User": "Unknown", "Timestamp": "Unknown", "Reason": "none",
    }  # fmt: skip
    assert tuple(usual) == COLUMNS
    return f"<{SEPARATOR}".join({**usual, **values}.values()) + f">{SEPARATOR}\n"


def parse_one(**values: str) -> Node:
    nodes = parse_nodes(print_row(**values).encode("utf-8", "surrogateescape"), SEPARATOR)
    return nodes.nodes[0]


def test_nodes_of_a_real_cluster_are_read() -> None:
    nodes = read_fixture("slurm-22.05/sinfo-nodes.txt")

    assert ["lab3n1", "lab3n2", "lab3n3", "lab3n4"] == list(nodes)
    assert (
        Node(
            name="lab3n1",
            base_state="allocated",
            flags=frozenset({"drain"}),
            state_text="draining",
            partitions=("debug", "long"),
            cpus_total=8,
            cpus_allocated=3,
            cpus_idle=0,
            memory_bytes=4000 * MIB,
            allocated_memory_bytes=900 * MIB,
            weight=1,
            free_memory_bytes=14779 * MIB,
            load=2.07,
            gres=(),
            reason="fan|3 \"loud\" 'x' \\ ünï\nnew line, comma\ttab <3 >x",
            reason_user="root",
            reason_since_seconds=1794733356,
        )
        == nodes["lab3n1"]
    )
    assert 5 == cpus_other(nodes["lab3n1"])
    assert ("down", ["not_responding"], "down*") == describe(nodes["lab3n2"])
    assert ("allocated", [], "allocated") == describe(nodes["lab3n3"])
    assert (NodeGres(name="gpu", model="a100", total=2, used=1),) == nodes["lab3n3"].gres
    assert ("idle", ["maintenance", "reserved"], "maint") == describe(nodes["lab3n4"])
    assert ("debug", "gpus", "long") == nodes["lab3n4"].partitions


def test_states_and_resources_of_newer_releases_are_read() -> None:
    nodes = read_fixture("slurm-25.11/sinfo-nodes.hand-made.txt")

    assert ("mixed", ["cloud", "dynamic_norm", "planned"], "mixed-") == describe(nodes["n1"])
    assert (
        NodeGres(name="gpu", model="h100", total=4, used=2),
        NodeGres(name="shard", model="h100", total=16, used=3),
    ) == nodes["n1"].gres
    assert ("idle", ["blocked"], "blocked") == describe(nodes["n2"])
    assert ("idle", ["cloud", "powered_down"], "idle~") == describe(nodes["n3"])
    assert (None, None) == (nodes["n3"].load, nodes["n3"].free_memory_bytes)
    assert (NodeGres(name="gpu", model="", total=4, used=4),) == nodes["n4"].gres
    assert ("down", ["drain", "invalid_reg"], "inval") == describe(nodes["n6"])
    assert ("mixed", ["?"], "mixed") == describe(nodes["n7"])
    assert 12 * 1024**4 == nodes["n7"].memory_bytes
    assert ("error", [], "?") == describe(nodes["n8"])
    assert ("\n|starts with a line end", "Unk(4711)") == (nodes["n8"].reason, nodes["n8"].reason_user)


def cpus_other(node: Node) -> int:
    return node.cpus_total - node.cpus_allocated - node.cpus_idle


def describe(node: Node) -> tuple[str, list[str], str]:
    return node.base_state, sorted(node.flags), node.state_text


def test_a_state_of_another_release_is_unknown_but_shown() -> None:
    assert ("unknown", ["hovering"], "adrift^") == describe(
        parse_one(StateComplete="adrift+hovering", StateLong="adrift^")
    )


def test_user_and_time_without_a_reason_are_left_overs() -> None:
    node = parse_one(User="root", Timestamp="1794733356", Reason="none")

    assert (None, None, None) == (node.reason, node.reason_user, node.reason_since_seconds)


def test_time_that_is_no_number_is_not_guessed() -> None:
    assert parse_one(Reason="power", Timestamp="2026-11-15T09:02:36").reason_since_seconds is None


@pytest.mark.parametrize(
    ("total", "used", "expected"),
    [
        ("gpu:4", "gpu:a100:1(IDX:0)", [("gpu", "", 4, 1)]),
        ("gpu:a100:4", "gpu:1", [("gpu", "a100", 4, 1)]),
        ("gpu:a100:2,gpu:h100:2", "gpu:1", [("gpu", "a100", 2, 0), ("gpu", "h100", 2, 0), ("gpu", "", 0, 1)]),
        ("gpu:a100:2", "gpu:h100:1", [("gpu", "a100", 2, 0), ("gpu", "h100", 0, 1)]),
        ("(null)", "gpu:0", []),
    ],
)
def test_devices_in_use_find_their_total(total: str, used: str, expected: list[tuple[str, str, int, int]]) -> None:
    resources = tuple(NodeGres(name=name, model=model, total=all_, used=held) for name, model, all_, held in expected)

    assert resources == parse_one(Gres=total, GresUsed=used).gres


def test_unreadable_resources_do_not_cost_the_node() -> None:
    node = parse_one(Gres="gpu:{a100}:x:4")

    assert (None, 8) == (node.gres, node.cpus_total)


def test_no_output_is_a_cluster_without_nodes() -> None:
    assert Nodes(nodes=()) == parse_nodes(b"", SEPARATOR)


@pytest.mark.parametrize("answer", ["n1<8f3a1c9edeb", print_row()[:-1], print_row() + "n2", "Welcome!\n"])
def test_answer_cut_in_a_line_is_no_answer(answer: str) -> None:
    with pytest.raises(MalformedAnswer, match="in the middle of a line"):
        parse_nodes(answer.encode(), SEPARATOR)


def test_answer_of_another_shape_is_no_answer() -> None:
    with pytest.raises(MalformedAnswer, match="none of 2 rows"):
        parse_nodes(b"n1<8f3a1c9eidle>8f3a1c9e\n" * 2, SEPARATOR)


@pytest.mark.parametrize(
    "odd",
    [
        {"NodeList": ""},
        {"NodeList": "Welcome to the cluster!\nn2"},
        {"StateLong": ""},
        {"CPUsState": "0/8/0"},
        {"CPUsState": "-1/8/0/8"},
        {"Memory": "4000+"},
        {"FreeMem": ""},
        {"CPUsLoad": "nan"},
        {"Weight": "١"},
        {"Reason": "none<8f3a1c9enone"},
    ],
)
def test_odd_rows_cost_only_themselves(odd: dict[str, str]) -> None:
    rows = [print_row(), *(print_row(**{"NodeList": "n2", "PartitionName": name, **odd}) for name in ("debug", "long"))]

    nodes = parse_nodes("".join(rows).encode(), SEPARATOR)

    assert ["n1"] == [node.name for node in nodes.nodes]
    assert 2 == nodes.unreadable_rows


def test_a_node_that_contradicts_itself_is_read_once() -> None:
    rows = print_row() + print_row(PartitionName="long", CPUsState="8/0/0/8") + print_row(PartitionName="gpus")

    nodes = parse_nodes(rows.encode(), SEPARATOR)

    assert [("n1", 0, ("debug", "gpus"))] == [(node.name, node.cpus_allocated, node.partitions) for node in nodes.nodes]
    assert 1 == nodes.unreadable_rows


def test_separator_never_reads_as_a_width() -> None:
    columns = arguments("1234")[-1].removeprefix("--Format=").split(",")

    assert list(COLUMNS) == [column.partition(":")[0] for column in columns]
    assert all(not suffix[0].isdigit() and suffix[0] != "." for suffix in (part.partition(":")[2] for part in columns))


@given(st.binary(max_size=60), st.text("<>\n|none\x00", max_size=20))
def test_no_reason_can_forge_a_row(text: bytes, marks: str) -> None:
    reason = (marks + text.decode("utf-8", "surrogateescape") + marks).replace(SEPARATOR, "")
    rows = print_row(Reason=reason, User="root") + print_row(NodeList="n2")

    nodes = parse_nodes(rows.encode("utf-8", "surrogateescape"), SEPARATOR)

    assert ["n1", "n2"] == [node.name for node in nodes.nodes]
    assert reason in {nodes.nodes[0].reason, "", "none"}


FRAGMENTS = st.sampled_from([b"<8f3a1c9e", b">8f3a1c9e\n", b"0/8/0/8", b"n1", b"idle", b"\xff", print_row().encode()])


@given(st.lists(FRAGMENTS | st.binary(max_size=8), max_size=30).map(b"".join))
def test_any_bytes_are_counted_or_rejected(answer: bytes) -> None:
    try:
        nodes = parse_nodes(answer, SEPARATOR)
    except MalformedAnswer:
        return
    rows = answer.count(b">8f3a1c9e\n")
    assert nodes.unreadable_rows + len(nodes.nodes) <= rows
    assert bool(nodes.nodes) == bool(rows)


@pytest.mark.parametrize("seed", [1, 2])
def test_simulated_cluster_is_read_whole(seed: int) -> None:
    cluster = simulate(Shape(seed=seed, nodes=100, partitions=6), now=1_750_000_000)
    expected = {node.name: node for node in cluster.nodes if node.base != "future"}

    separator = random_separator()
    code, answer, complaint = executables.answer(cluster, "sinfo", arguments(separator))
    nodes = parse_nodes(answer, separator)

    assert (0, b"") == (code, complaint)
    assert 0 == nodes.unreadable_rows
    assert expected.keys() == {node.name for node in nodes.nodes}
    for node in nodes.nodes:
        made = expected[node.name]
        assert (made.base, frozenset(made.flags)) == (node.base_state, node.flags)
        assert (made.cpus, made.cpus_allocated) == (node.cpus_total, node.cpus_allocated)
        assert (made.memory_bytes, made.memory_allocated_bytes) == (node.memory_bytes, node.allocated_memory_bytes)
        assert (made.reason, made.reason_time) == (node.reason, node.reason_since_seconds)
        assert sorted(made.partitions) == list(node.partitions)
        gpus = [(gres.model, gres.total, gres.used) for gres in node.gres or () if gres.name == "gpu"]
        assert [(pool.type, pool.total, pool.used) for pool in made.gpus] == gpus

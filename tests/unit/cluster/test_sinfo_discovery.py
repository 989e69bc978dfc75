# SPDX-License-Identifier: Apache-2.0
"""One sinfo call says where every node is and what it has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.discovery import COLUMNS, DiscoveredNode, DiscoveredNodes, parse_discovery
from slurmscope.core.errors import MalformedAnswer
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands
from tests.fakes.exporters import load_role, open_role

WORD = "0abc"


def row(*values: str) -> str:
    """Write a row as sinfo does."""
    return f"<{WORD}".join(values) + f">{WORD}\n"


def parse(*rows: str) -> tuple[DiscoveredNode, ...]:
    """Parse rows."""
    return parse_discovery("".join(rows).encode(), WORD).nodes


def test_node_of_several_partitions_is_one() -> None:
    found = parse(
        row("n2", "long", "10.0.0.2", "host2", "MIXED+DRAIN", "avx,ib", "gpu:a100:2(S:0-1),gpu:h100:1,shard:4"),
        row("n1", "cpu", "n1", "n1", "IDLE", "(null)", "(null)"),
        row("n2", "cpu", "10.0.0.2", "host2", "MIXED+DRAIN", "avx,ib", "gpu:a100:2(S:0-1),gpu:h100:1,shard:4"),
    )
    assert (
        DiscoveredNode("n1", "n1", "n1", ("cpu",), (), "idle", frozenset(), 0, ()),
        DiscoveredNode(
            "n2",
            "10.0.0.2",
            "host2",
            ("cpu", "long"),
            ("avx", "ib"),
            "mixed",
            frozenset({"drain"}),
            3,
            ("a100", "h100"),
        ),
    ) == found


def test_node_without_an_address_is_reached_by_its_name() -> None:
    assert (DiscoveredNode("n1", "n1", "n1"),) == parse(row("n1", "", "(null)", "", "WHATEVER", "", "gpu:("))


def test_row_of_another_shape_costs_itself() -> None:
    assert ["n1"] == [
        node.name for node in parse(row("n1", "", "a", "h", "IDLE", "", ""), row("x"), row(" ", *"abcdef"))
    ]


@pytest.mark.parametrize("answer", [row("x"), row("n1", "", "a", "h", "IDLE", "", "") + "n2"])
def test_answer_without_readable_rows_or_end_is_a_failure(answer: str) -> None:
    with pytest.raises(MalformedAnswer):
        parse(answer)


@given(st.lists(st.lists(st.text(), min_size=6, max_size=8), min_size=1))
def test_any_text_is_read_or_refused(rows: list[list[str]]) -> None:
    try:
        nodes = parse_discovery("".join(row(*values) for values in rows).encode("utf-8", "replace"), WORD).nodes
    except MalformedAnswer:
        return
    assert len(nodes) == len({node.name for node in nodes}) <= len(rows)


def test_columns_are_those_of_sinfo(tmp_path: Path) -> None:
    cluster = simulate(Shape(jobs=10, nodes=12), now=int(time.time()))
    write_fake_commands(cluster, tmp_path)
    features = open_role("cluster", load_role("cluster", {"slurm.bin-path": str(tmp_path)}))
    found = features.read(("node_targets",), time.monotonic() + 60)["node_targets"].value
    assert isinstance(found, DiscoveredNodes)
    nodes = found.nodes
    assert sorted(node.name for node in cluster.nodes if node.base != "future") == [node.name for node in nodes]
    assert len(COLUMNS) == 7
    assert any(node.gpus and node.gpu_models and node.features for node in nodes)

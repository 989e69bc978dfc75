# SPDX-License-Identifier: Apache-2.0
"""Nodes are selected as the request says, and described as Prometheus wants it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmscope.cluster.discovery import DiscoveredNode, UnknownFilter, parse_selection, write_targets

NODES = (
    DiscoveredNode("n1", "10.0.0.1", "host1", ("cpu", "long"), ("avx",), "idle", frozenset(), 0, ()),
    DiscoveredNode("n2", "fe80::2", "host2", ("long",), (), "mixed", frozenset({"drain"}), 0, ()),
    DiscoveredNode("g1", "g1", "g1", ("gpu",), ("avx", "nvlink"), "allocated", frozenset(), 4, ("a100", "h100")),
)


def groups(*query: tuple[str, str]) -> list[dict[str, Any]]:
    """Return what a request is answered."""
    return list(json.loads(b"".join(write_targets(NODES, parse_selection(query)))))


def targets(*query: tuple[str, str]) -> list[object]:
    """Return the targets of a request."""
    return [group["targets"] for group in groups(*query)]


def test_every_node_is_a_target_with_its_address() -> None:
    assert [["10.0.0.1:9798"], ["[fe80::2]:9798"], ["g1:9798"]] == targets()


def test_labels_describe_the_node() -> None:
    plain, drained, with_gpus = (group["labels"] for group in groups())
    assert {
        "__meta_slurm_node": "n1",
        "__meta_slurm_host": "host1",
        "__meta_slurm_partitions": ",cpu,long,",
        "__meta_slurm_features": ",avx,",
        "__meta_slurm_state": "idle",
        "__meta_slurm_flags": "",
        "__meta_slurm_usable": "true",
        "__meta_slurm_gpus": "0",
        "__meta_slurm_gpu_models": "",
    } == plain
    assert isinstance(drained, dict)
    assert isinstance(with_gpus, dict)
    assert (",drain,", "false") == (drained["__meta_slurm_flags"], drained["__meta_slurm_usable"])
    assert ("4", ",a100,h100,") == (with_gpus["__meta_slurm_gpus"], with_gpus["__meta_slurm_gpu_models"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ([("partition", "long")], ["10.0.0.1:1", "[fe80::2]:1"]),
        ([("partition", "cpu"), ("partition", "gpu")], ["10.0.0.1:1", "g1:1"]),
        ([("partition", "long"), ("state", "IDLE")], ["10.0.0.1:1"]),
        ([("state", "drain")], ["[fe80::2]:1"]),
        ([("state", "mixed"), ("state", "allocated")], ["[fe80::2]:1", "g1:1"]),
        ([("feature", "avx")], ["10.0.0.1:1", "g1:1"]),
        ([("node", "n[1-3]"), ("node", "g1")], ["10.0.0.1:1", "[fe80::2]:1", "g1:1"]),
        ([("gpu", "true")], ["g1:1"]),
        ([("gpu", "false"), ("usable", "true")], ["10.0.0.1:1"]),
        ([("usable", "true"), ("usable", "false")], ["10.0.0.1:1", "[fe80::2]:1", "g1:1"]),
        ([("partition", "none")], []),
    ],
)
def test_filters_select_nodes(query: list[tuple[str, str]], expected: list[str]) -> None:
    assert [[target] for target in expected] == targets(("port", "1"), *query)


@pytest.mark.parametrize(
    "query",
    [
        ("partitions", "a"), ("", ""), ("port", "0"), ("port", "65536"), ("port", "x"), ("port", ""), ("port", "٣"),
        ("gpu", "1"), ("usable", ""), ("node", "n[1-"), ("node", "n[1]," * 99),
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused_in_one_sentence(query: tuple[str, str]) -> None:
    with pytest.raises(UnknownFilter) as caught:
        parse_selection([query])
    message = str(caught.value)
    assert message.endswith(".")
    assert len(message) < 300
    assert message.isascii()


def test_brackets_of_a_request_are_limited_however_often_the_filter_is_repeated() -> None:
    with pytest.raises(UnknownFilter, match="too many"):
        parse_selection([("node", "a[1-2]")] * 33)

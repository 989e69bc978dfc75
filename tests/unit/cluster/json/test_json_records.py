# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of nodes in JSON becomes the nodes that sinfo's columns give."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.json.records import SCONTROL_ARGUMENTS, SINFO_ARGUMENTS, parse_nodes
from slurmscope.cluster.sinfo import Nodes
from slurmscope.core.errors import MalformedAnswer, SlurmRefused, SourceError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def node(**changed: object) -> dict[str, object]:
    """Write a record as v0.0.42 does, but for what is changed."""
    record: dict[str, object] = {
        "name": "n1",
        "state": ["MIXED"],
        "partitions": ["long", "debug"],
        "cpus": 8,
        "alloc_cpus": 3,
        "real_memory": 4000,
        "alloc_memory": 300,
        "free_mem": {"set": True, "infinite": False, "number": 1000},
        "cpu_load": 293,
        "weight": 1,
        "gres": "",
        "gres_used": "gpu:0",
        "reason": "",
        "reason_set_by_user": "root",
        "reason_changed_at": {"set": True, "infinite": False, "number": 1794690000},
    }
    return record | changed


def parse(*records: object) -> Nodes:
    return parse_nodes(json.dumps({"nodes": records, "errors": []}).encode())


def test_commands_are_requested_hidden_nodes_and_used_resources() -> None:
    assert ("--json", "--details", "--all", "show", "nodes") == SCONTROL_ARGUMENTS
    assert ("--json", "--all") == SINFO_ARGUMENTS


@pytest.mark.parametrize(
    ("state", "idle"), [(["MIXED"], 5), (["MIXED", "DRAIN"], 0), (["DOWN", "NOT_RESPONDING"], 0), (["FUTURE"], 5)]
)
def test_only_what_a_job_could_get_is_idle(state: list[str], idle: int) -> None:
    assert idle == parse(node(state=state)).nodes[0].cpus_idle


def test_more_cpus_allocated_than_there_are_leave_none_idle() -> None:
    assert 0 == parse(node(alloc_cpus=9)).nodes[0].cpus_idle


def test_user_and_time_without_a_reason_are_left_over() -> None:
    (found,) = parse(node()).nodes

    assert (None, None, None) == (found.reason, found.reason_user, found.reason_since_seconds)


def test_unknown_words_are_kept_or_unknown() -> None:
    (found,) = parse(node(state=["LEVITATING", "GLOWING"])).nodes

    assert ("unknown", frozenset({"glowing"}), "?") == (found.base_state, found.flags, found.state_text)


def test_partitions_may_be_a_list_in_one_text_or_missing() -> None:
    nodes = parse(node(partitions="long,debug"), node(partitions=None), node(partitions=[])).nodes

    assert [("debug", "long"), (), ()] == [found.partitions for found in nodes]


def test_resources_that_cannot_be_read_cost_only_themselves() -> None:
    (found,) = parse(node(gres="gpu:many:few:none")).nodes

    assert found.gres is None


@pytest.mark.parametrize(
    "odd",
    [
        node(name=""),
        node(name=None),
        node(state=None),
        node(state=[]),
        node(state=""),
        node(cpus=None),
        node(alloc_cpus=None),
        node(real_memory="lots"),
        node(alloc_memory=-1),
        node(weight={"set": False, "infinite": False, "number": 0}),
        node(state=[1]),
        "n1",
    ],
)
def test_odd_record_costs_only_itself(odd: object) -> None:
    nodes = parse(node(), odd)

    assert (1, 1) == (len(nodes.nodes), nodes.unreadable_rows)


def test_groups_of_nodes_from_a_newer_sinfo_are_not_nodes() -> None:
    with pytest.raises(MalformedAnswer, match="has no nodes"):
        parse_nodes(b'{"sinfo": [{"node": {"state": ["IDLE"]}, "nodes": {"total": 1}}], "errors": []}')


def test_records_of_something_else_are_not_an_empty_cluster() -> None:
    with pytest.raises(MalformedAnswer, match="none of 2 nodes"):
        parse({"nodename": "n1"}, {"nodename": "n2"})


def test_controller_that_is_down_is_not_an_empty_cluster() -> None:
    # As sinfo --json of 22.05 prints it, with exit code 0.
    answer = b'{"meta": {}, "errors": [\n    {"error": "Unspecified error", "errno": -1}\n  ], "nodes": [\n  ]}'

    with pytest.raises(SlurmRefused, match="Slurm reports: Unspecified error"):
        parse_nodes(answer)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(node())), JSON) | JSON, max_size=5), JSON | st.just([]))
def test_any_records_give_nodes_or_a_source_error(records: list[object], errors: object) -> None:
    answer = json.dumps({"nodes": [node(), *records], "errors": errors}).encode()

    try:
        nodes = parse_nodes(answer)
    except SourceError:
        assert errors != []
    else:
        assert 1 + len(records) == len(nodes.nodes) + nodes.unreadable_rows

# SPDX-License-Identifier: Apache-2.0
"""Events of a node are read whatever its reason contains, and sacctmgr is called for one possible name only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.events import MAX_EVENTS, NodeEvent, parse_events, read_events
from slurmscope.core.errors import MalformedAnswer


def test_newest_event_is_first_and_one_that_lasts_has_no_end() -> None:
    answer = (
        b"1790000000|1790003600|DRAIN|root(0)|bad DIMM|slot 3\n"
        b"1790100000|Unknown|DOWN*|slurm(64030)|Not responding\n"
        b"1780000000|0|DOWN|root(0)|\n"
    )
    assert (
        NodeEvent(1790100000, None, "DOWN*", "slurm(64030)", "Not responding"),
        NodeEvent(1790000000, 1790003600, "DRAIN", "root(0)", "bad DIMM|slot 3"),
        NodeEvent(1780000000, None, "DOWN", "root(0)", ""),
    ) == parse_events(answer)


def test_reason_of_several_lines_is_one_event() -> None:
    answer = b"1790000000|0|DOWN|root(0)|disk failing\nsee ticket\n1780000000|0|DOWN|root(0)|x\n"
    assert ["disk failing see ticket", "x"] == [event.reason for event in parse_events(answer)]


def test_answer_is_bounded() -> None:
    assert MAX_EVENTS == len(parse_events(b"1790000000|0|DOWN|root(0)|x\n" * (MAX_EVENTS + 5)))


@pytest.mark.parametrize("answer", [b"x\n", b"2026-01-01T00:00:00|0|DOWN|root(0)|x\n", b"1|2|DOWN|root(0)\n"])
def test_odd_answer_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_events(answer)


def test_query_names_the_node_and_the_day() -> None:
    asked: list[tuple[str, Sequence[str]]] = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        asked.append((name, arguments))
        return b""

    assert () == read_events(run, "n-1.lab", "2026-01-31")
    ((name, arguments),) = asked
    assert "sacctmgr" == name
    assert ("show", "event", "where", "nodes=n-1.lab", "start=2026-01-31") == tuple(arguments[3:8])


@given(st.text())
def test_impossible_names_are_not_queried(node: str) -> None:
    def run(_name: str, arguments: Sequence[str]) -> bytes:
        assert f"nodes={node}" in arguments
        assert not set(node) & set(",= \t\n|*[]'\"")
        return b""

    assert () == read_events(run, node, "2026-01-31")

# SPDX-License-Identifier: Apache-2.0
"""Events of a node are read whatever its reason contains, and sacctmgr is called for one possible name only."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.events import (
    ALL_ARGUMENTS,
    COLLECTOR,
    MAX_EVENTS,
    NODE_EVENTS,
    REASONS_LIMIT,
    NodeEvent,
    parse_all_events,
    parse_events,
    read_events,
)
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Labels


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


NOW = 1_790_604_800
ALL = b"""\
n1|1790000000|1790003600|DRAIN|root(0)|bad DIMM
n1|1790010000|1790010600|IDLE+DRAIN|root(0)|bad DIMM
n2|1780000000|1790000100|DOWN*|slurm(64030)|Not responding
n2|1790604000|Unknown|DOWN*|slurm(64030)|Not responding
n3|1790604700|Unknown|DRAINED|root(0)|disk
failing | soon
|1789000000|1790000000||root(0)|Cluster Registered TRES
n4|1780000000|1790000000|FAIL|root(0)|x
"""


def collect_all(answer: bytes = ALL) -> dict[str, dict[Labels, object]]:
    events = COLLECTOR.collect(NoOptions(), node_events=parse_all_events(answer, NOW))
    return {family.metric.name: dict(family.samples) for family in events}


def test_events_count_and_last_as_far_as_they_are_in_the_window() -> None:
    served = collect_all()

    assert {("n1", "drain"): 2, ("n2", "down"): 2, ("n3", "drain"): 1, ("n4", "fail"): 1} == served["slurm_node_events"]
    assert {
        ("n1", "drain"): 4200, ("n2", "down"): 900, ("n3", "drain"): 100, ("n4", "fail"): 0
    } == served["slurm_node_lost_seconds"]  # fmt: skip


def test_reasons_are_one_line_and_added_up_over_nodes() -> None:
    served = collect_all()

    assert {
        ("bad DIMM", "drain"): 4200, ("Not responding", "down"): 900, ("disk failing | soon", "drain"): 100,
        ("x", "fail"): 0,
    } == served["slurm_node_reason_lost_seconds"]  # fmt: skip
    assert 2 == served["slurm_node_reason_events"]["Not responding", "down"]


def test_reasons_beyond_the_limit_are_summed_without_their_text() -> None:
    rows = (f"n{lost}|{NOW - lost}|{NOW}|DOWN|root(0)|reason {lost}\n" for lost in range(1, REASONS_LIMIT + 3))
    served = collect_all("".join(rows).encode())

    assert REASONS_LIMIT + 2 == len(served["slurm_node_events"])
    assert {
        ("other", "down"): 1 + 2, **{(f"reason {lost}", "down"): lost for lost in range(3, REASONS_LIMIT + 3)}
    } == served["slurm_node_reason_lost_seconds"]  # fmt: skip


def test_cluster_without_events_has_no_series_and_an_odd_answer_is_refused() -> None:
    assert [{}, {}, {}, {}] == list(collect_all(answer=b"").values())
    with pytest.raises(MalformedAnswer):
        parse_all_events(b"n1|2026-01-01T00:00:00|0|DOWN|root(0)|x\n", NOW)


def test_all_events_of_the_window_are_read_by_one_call() -> None:
    asked: list[tuple[str, Sequence[str]]] = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        asked.append((name, arguments))
        return ALL

    sources = SimpleNamespace(run=run, wall_clock=lambda: NOW)
    found = NODE_EVENTS.bind(sources)()

    assert parse_all_events(ALL, NOW) == found
    assert [("sacctmgr", ALL_ARGUMENTS)] == asked
    assert ("show", "event", "where", "start=now-7days") == ALL_ARGUMENTS[3:7]

# SPDX-License-Identifier: Apache-2.0
"""The simulated sacctmgr prints events of nodes as our parser reads them, and refuses what it does not simulate."""

from __future__ import annotations

from collections.abc import Sequence

from slurmscope.cluster.events import read_events
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands import sacctmgr

CLUSTER = simulate(Shape(), now=1_800_000_000)


def run(_name: str, arguments: Sequence[str]) -> bytes:
    status, answer, errors = sacctmgr.answer(CLUSTER, arguments)
    assert (0, b"") == (status, errors)
    return answer


def test_node_that_is_down_has_one_event_with_its_whole_reason() -> None:
    down = [node for node in CLUSTER.nodes if node.reason]
    assert any("|" in (node.reason or "") for node in down)
    for node in down:
        (event,) = read_events(run, node.name, "2026-01-01")
        assert (node.reason_time, None) == (event.start_seconds, event.end_seconds)
        assert (node.reason or "").replace("\n", " ") == event.reason


def test_other_nodes_have_none() -> None:
    fine = next(node.name for node in CLUSTER.nodes if not node.reason)
    assert () == read_events(run, fine, "2026-01-01")


def test_other_columns_are_refused() -> None:
    status, _, errors = sacctmgr.answer(CLUSTER, ["show", "event", "where", "nodes=n1", "format=Cluster"])
    assert 0 != status
    assert b"not simulated" in errors

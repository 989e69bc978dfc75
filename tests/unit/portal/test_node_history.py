# SPDX-License-Identifier: Apache-2.0
"""The history of a node is read once in five minutes, and a failure costs only this part of the page."""

from __future__ import annotations

from collections.abc import Sequence

from slurmscope.cluster.events import NodeEvent
from slurmscope.core.errors import MalformedAnswer
from slurmscope.portal.nodes import FAILURE_SECONDS, LIFETIME_SECONDS, NodeHistory, open_node_history

EVENT = NodeEvent(1, 2, "DOWN", "root(0)", "x")


class Source:
    """Count the queries, and fail on request."""

    def __init__(self) -> None:
        self.now, self.fails, self.queried = 0.0, False, list[tuple[str, str]]()

    def read(self, cluster: str, node: str) -> tuple[NodeEvent, ...]:
        self.queried.append((cluster, node))
        if self.fails:
            raise MalformedAnswer("sacctmgr: odd")
        return (EVENT,)


def test_events_are_cached() -> None:
    source = Source()
    history = NodeHistory(source.read, clock=lambda: source.now)
    assert [(EVENT,)] * 3 == [history("", "n1") for _ in range(3)]
    source.now = LIFETIME_SECONDS
    history("", "n1")
    assert [("", "n1")] * 2 == source.queried
    history("beta", "n1")
    assert ("beta", "n1") == source.queried[-1]


def test_failure_is_unknown_for_a_minute() -> None:
    source = Source()
    history = NodeHistory(source.read, clock=lambda: source.now)
    source.fails = True
    assert [None, None] == [history("", "n1"), history("", "n1")]
    source.fails, source.now = False, FAILURE_SECONDS
    assert (EVENT,) == history("", "n1")
    assert 2 == len(source.queried)


def test_command_is_sacctmgr() -> None:
    commands: list[tuple[str, bool]] = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        commands.append((name, "clusters=beta" in arguments))
        return b"1790000000|0|DOWN|root(0)|x\n"

    history = open_node_history(run)
    assert ["x", "x"] == [(history(cluster, "n1") or (EVENT,))[0].reason for cluster in ("", "beta")]
    assert [("sacctmgr", False), ("sacctmgr", True)] == commands
    assert () == history("beta,alpha", "n1")

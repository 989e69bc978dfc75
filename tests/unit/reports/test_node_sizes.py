# SPDX-License-Identifier: Apache-2.0
"""The sizes of nodes are those that sinfo reports, and unknown where it reports none."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import CommandTimedOut
from slurmscope.reports.resubmission import KEEP_SECONDS, RETRY_SECONDS, NodeSize, NodeSizes, parse_sizes

MIB = 1 << 20
PATIENCE_SECONDS = 10.0


class FakeSinfo:
    """Answer sinfo, or fail; count the calls."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.calls = 0
        self.arguments: Sequence[str] = ()
        self.is_down = False

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        if name == "scontrol":
            return b"ClusterName = lab\nPrivateData = none\n"
        assert "sinfo" == name
        self.calls += 1
        self.arguments = arguments
        if self.is_down:
            raise CommandTimedOut(["sinfo"], "was killed")
        return self.answer.encode()


def test_smallest_node_counts() -> None:
    # A node in two partitions has two lines.
    sizes = NodeSizes(FakeSinfo("n1 16 64000\nn1 16 64000\nn2 64 32000\n").run)

    assert NodeSize(16, 32000 * MIB) == sizes.smallest("lab", ["n1", "n2"])
    assert NodeSize(64, 32000 * MIB) == sizes.smallest("lab", ["n2"])


def test_unknown_node_leaves_the_size_unknown() -> None:
    sizes = NodeSizes(FakeSinfo("n1 16 64000\nodd\nn3 16+ 1\n").run)

    assert [None, None, None] == [sizes.smallest("lab", nodes) for nodes in (["n1", "n2"], ["n3"], [])]


def test_sinfo_runs_once_an_hour_and_a_failure_is_retried_sooner() -> None:
    now, sinfo = [0.0], FakeSinfo("n1 16 64000\n")
    sizes = NodeSizes(sinfo.run, lambda: now[0])
    for now[0] in (0.0, KEEP_SECONDS - 1):
        assert sizes.smallest("lab", ["n1"])
    assert 1 == sinfo.calls

    now[0], sinfo.is_down = KEEP_SECONDS, True
    assert sizes.smallest("lab", ["n1"]), "the last known sizes stay"
    now[0] += RETRY_SECONDS - 1
    sizes.smallest("lab", ["n1"])
    assert 2 == sinfo.calls
    now[0] += 1
    sizes.smallest("lab", ["n1"])
    assert 3 == sinfo.calls


def test_nodes_of_other_clusters_have_their_own_sizes() -> None:
    sinfo = FakeSinfo("n1 16 64000\n")
    sizes = NodeSizes(sinfo.run)
    assert NodeSize(16, 64000 * MIB) == sizes.smallest("lab", ["n1"])
    assert not any(word.startswith("--clusters") for word in sinfo.arguments)

    # As sinfo prints it for a cluster that is named.
    sinfo.answer = "CLUSTER: beta\nn1 128 512000\n"
    assert NodeSize(128, 512000 * MIB) == sizes.smallest("beta", ["n1"])
    assert "--clusters=beta" == sinfo.arguments[0]
    assert NodeSize(16, 64000 * MIB) == sizes.smallest("lab", ["n1"])
    assert sizes.smallest("--help", ["n1"]) is None
    assert 2 == sinfo.calls

    # One that does not answer costs only its own sizes.
    sinfo.is_down = True
    assert sizes.smallest("gamma", ["n1"]) is None
    assert NodeSize(16, 64000 * MIB) == sizes.smallest("lab", ["n1"])


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    assert all(size.cpus >= 0 and size.memory_bytes >= 0 for size in parse_sizes(text).values())

# SPDX-License-Identifier: Apache-2.0
"""Nodes are judged by what the same jobs do elsewhere; numbers are worked out by hand, chances with scipy's formula."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.suspect_nodes import JudgedNode, NodeRuns, NodeVerdict, poisson_tail, rank_nodes


def runs(
    node: str, name: str, number: int, failed: int = 0, seconds: float = 100.0, *, user: str = "", spread: float = 0.0
) -> NodeRuns:
    """Make the runs of a job, of so many seconds more or less; half of the users have jobs with even numbers."""
    completed = number - failed
    user = user or ("ada" if name[-1] in "02" else "bob")
    squares = completed * (seconds**2 + spread**2)
    return NodeRuns("lab", node, user, name, number, failed, completed, completed * seconds, squares)


def judge(*found: NodeRuns, faults: dict[tuple[str, str], int] | None = None) -> dict[str, JudgedNode]:
    return {record.node: record for record in rank_nodes(found, faults or {})}


def cluster(*, failed: int, seconds: float = 100.0) -> list[NodeRuns]:
    """Return runs of four jobs on ten nodes, of which each fails once in 50 runs, and on the last one more often."""
    usual = [runs(f"n{node}", f"job{job}", 50, 1) for node, job in product(range(9), range(4))]
    return [*usual, *(runs("n9", f"job{job}", 50, failed, seconds) for job in range(4))]


def test_node_on_which_several_jobs_fail_is_suspect() -> None:
    found = judge(*cluster(failed=5))

    # 4 jobs of 50 runs at (9 + 0.028) / 451 = 2.0 % elsewhere.
    assert 4.003 == pytest.approx(found["n9"].expected_failed, abs=0.001)
    assert (NodeVerdict.SUSPECT, 20, 2) == (found["n9"].verdict, found["n9"].failed, found["n9"].failed_users)
    assert {NodeVerdict.NORMAL} == {found[f"n{node}"].verdict for node in range(9)}
    assert "n9" == rank_nodes(cluster(failed=5), {})[0].node


def test_healthy_nodes_are_not_suspect() -> None:
    assert {NodeVerdict.NORMAL} == {record.verdict for record in judge(*cluster(failed=1)).values()}


def test_one_failing_program_is_no_reason() -> None:
    found = judge(*cluster(failed=1), runs("n9", "broken", 30, 30), runs("n8", "broken", 1, 1))

    # What fails everywhere is expected to fail here too.
    assert NodeVerdict.NORMAL == found["n9"].verdict
    debugging = [runs("n9", f"try{number}", 10, 10, user="eve") for number in range(5)]
    assert NodeVerdict.NORMAL == judge(*(runs("n9", "a", 99), runs("n1", "a", 99), *debugging))["n9"].verdict
    lonely = judge(*cluster(failed=1), runs("n9", "only-here", 60, 60))
    assert NodeVerdict.NORMAL == lonely["n9"].verdict


def test_few_runs_are_too_little_data() -> None:
    assert (
        NodeVerdict.UNKNOWN == judge(runs("n1", "a", 10, 5), runs("n1", "b", 9, 5), runs("n2", "a", 90))["n1"].verdict
    )


def test_node_on_which_jobs_take_longer_is_watched() -> None:
    found = judge(*cluster(failed=1, seconds=130.0))

    assert 1.3 == pytest.approx(found["n9"].slow_factor)
    assert (NodeVerdict.WATCH, True) == (found["n9"].verdict, found["n9"].is_slow)
    # The others are compared with it too: (8 of 9 at 100 s, one at 130 s) is 103.3 s.
    assert 100 / 103.33 == pytest.approx(found["n0"].slow_factor, abs=0.001)


@pytest.mark.parametrize(("spread", "is_slow"), [(150.0, True), (160.0, False)])
def test_longer_runs_may_be_chance_where_times_differ_anyway(spread: float, is_slow: bool) -> None:
    # 50 runs of 200 s here and 450 of 100 s elsewhere: 5,000 s more than usual. All runs together deviate by
    # sqrt(spread^2 + 30^2), so 50 of them, and what is usual, by sqrt(50 * (1 + 50 / 450)) of that: 5,000 s are 4.39 or
    # 4.12 of these deviations, and more than 4.26 are found on one of ten nodes with a chance of 0.0001.
    usual = [runs(f"n{node}", "bash", 50, spread=spread) for node in range(9)]
    found = judge(*usual, runs("n9", "bash", 50, 0, 200.0, spread=spread))["n9"]

    assert (2.0, is_slow) == (found.slow_factor, found.is_slow)


@pytest.mark.parametrize(("completed", "is_compared"), [(19, False), (20, True)])
def test_times_are_compared_from_twenty_completed_runs_on(completed: int, is_compared: bool) -> None:
    here = runs("n9", "job0", completed, 0, 200.0)
    found = judge(*cluster(failed=1)[:36], here)["n9"]

    assert (2.0 if is_compared else None) == found.slow_factor


def test_node_with_gpu_errors_is_watched_even_without_other_jobs() -> None:
    found = judge(*cluster(failed=1), faults={("lab", "n2"): 1, ("lab", "g1"): 2})

    assert (NodeVerdict.WATCH, 1) == (found["n2"].verdict, found["n2"].gpu_faults)
    assert (NodeVerdict.WATCH, 0, 2) == (found["g1"].verdict, found["g1"].runs, found["g1"].gpu_faults)


@given(count=st.integers(0, 60), mean=st.floats(0.01, 50))
def test_tail_is_one_minus_the_sum_of_smaller_counts(count: int, mean: float) -> None:
    smaller = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count))

    assert 1 - smaller == pytest.approx(poisson_tail(count, mean), abs=1e-9)


def test_small_tails_are_exact() -> None:
    # P(X >= 20) for a mean of 2, from tables: 7.4e-14.
    assert 7.4e-14 == pytest.approx(poisson_tail(20, 2.0), rel=0.05)
    assert (1.0, 0.0) == (poisson_tail(0, 0.0), poisson_tail(1, 0.0))


def test_node_is_described_with_how_much_is_known_of_it() -> None:
    (slow,) = (node for node in rank_nodes(cluster(failed=1, seconds=150.0), {("lab", "n9"): 2}) if node.node == "n9")
    assert (
        "watch: 4 of 200 jobs of 2 users failed; 4.0 expected from the same jobs elsewhere; "
        f"by chance that happens to one node of {1 / poisson_tail(4, slow.expected_failed):.0f}; "
        "jobs took 1.50 times as long as elsewhere; 2 met errors of a GPU"
    ) == slow.sentence
    certain = judge(*cluster(failed=50))["n9"]
    assert "by chance that happens to one node of 1,000,000" in certain.sentence
    few = judge(runs("n1", "a", 10), runs("n2", "a", 90))
    assert "too little data: 10 jobs of one node, 20 are needed" == few["n1"].sentence
    assert "normal: none of 90 jobs failed; 0.0 expected from the same jobs elsewhere" == few["n2"].sentence

# SPDX-License-Identifier: Apache-2.0
"""Rank nodes on which jobs failed more often, or took longer, than the same jobs on other nodes.

Jobs are the same if user and name are. Only jobs of one node count: of others it is not known which node was at fault.
The failures to expect on a node are those that its jobs have elsewhere; how likely as many or more are by chance is the
upper tail of a Poisson distribution, and must be small for each of all the nodes that were looked at. So must the
chance that completed runs take so much longer, given how much the times of each job differ anyway.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MIN_RUNS = 20
"""A node with fewer runs is not judged."""
MIN_USERS = 2
"""Jobs of so many users must fail: one user who looks for an error submits again and again, often to the same node."""
MOST_FAILURES = 5.0
"""Failures of one job that count: of a broken program more would say nothing about the node."""
SUSPECT_CHANCE, WATCH_CHANCE = 0.01, 0.2
"""Chance that any of the nodes has as many failures without a cause of its own."""
RAREST_CHANCE = 1e-6
"""Smaller ones are shown as this one."""
SLOW_FACTOR = 1.25
SLOW_CHANCE = 0.0001
"""Chance that any of the nodes takes so much longer; times have longer tails than the distribution that it is from."""
MIN_TIMED_RUNS = 20


class NodeRuns(NamedTuple):
    """Runs of the jobs of one user and name on one node; ``completed_seconds`` is the time of the completed ones.

    ``completed_squares`` is the sum of the squares of their times.
    """

    cluster: str
    node: str
    user: str
    name: str
    runs: int
    failed: int
    completed: int
    completed_seconds: float
    completed_squares: float


class NodeVerdict(enum.StrEnum):
    """What is to be said of a node, worst first."""

    SUSPECT = "suspect"
    WATCH = "watch"
    NORMAL = "normal"
    UNKNOWN = "too little data"

    @property
    def rank(self) -> int:
        return tuple(NodeVerdict).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedNode:
    """One node; ``slow_factor`` is how much longer its completed runs took than the same jobs elsewhere."""

    cluster: str
    node: str
    verdict: NodeVerdict
    runs: int
    failed: int
    failed_users: int
    expected_failed: float
    chance: float
    """Of as many failures or more, by chance, on this node."""
    slow_factor: float | None
    is_slow: bool
    """Whether that is too much to be chance."""
    gpu_faults: int

    @property
    def sentence(self) -> str:
        """Return what is known of the node, with how much that is."""
        if self.verdict is NodeVerdict.UNKNOWN:
            return f"too little data: {self.runs:,} jobs of one node, {MIN_RUNS} are needed"
        failed = (
            f"{self.failed:,} of {self.runs:,} jobs of {self.failed_users:,} users failed"
            if self.failed
            else (f"none of {self.runs:,} jobs failed")
        )
        parts = [f"{self.verdict.value}: {failed}; {self.expected_failed:.1f} expected from the same jobs elsewhere"]
        if self.verdict is not NodeVerdict.NORMAL and self.chance < 1:
            parts.append(f"by chance that happens to one node of {1 / max(self.chance, RAREST_CHANCE):,.0f}")
        if self.is_slow:
            parts.append(f"jobs took {self.slow_factor:.2f} times as long as elsewhere")
        if self.gpu_faults:
            parts.append(f"{self.gpu_faults:,} met errors of a GPU")
        return "; ".join(parts)


class _Sums:
    """Add up runs."""

    def __init__(self) -> None:
        self.runs = self.failed = self.completed = 0
        self.completed_seconds = self.completed_squares = 0.0

    def add(self, found: NodeRuns) -> None:
        self.runs += found.runs
        self.failed += found.failed
        self.completed += found.completed
        self.completed_seconds += found.completed_seconds
        self.completed_squares += found.completed_squares

    def variance(self) -> float:
        """Return how much the times of completed runs differ, on all nodes."""
        mean = self.completed_seconds / self.completed
        return max(0.0, self.completed_squares / self.completed - mean * mean)


_Job = tuple[str, str, str]


def rank_nodes(found: Iterable[NodeRuns], gpu_faults: Mapping[tuple[str, str], int]) -> tuple[JudgedNode, ...]:
    """Judge all nodes, worst first; ``gpu_faults`` counts jobs that met errors of a GPU, by cluster and node."""
    runs = tuple(found)
    jobs: defaultdict[_Job, _Sums] = defaultdict(_Sums)
    everything = _Sums()
    of_nodes: defaultdict[tuple[str, str], list[NodeRuns]] = defaultdict(list)
    for each in runs:
        jobs[each.cluster, each.user, each.name].add(each)
        everything.add(each)
        of_nodes[each.cluster, each.node].append(each)
    usual = everything.failed / everything.runs if everything.runs else 0.0
    records = [
        _judge(place, of_nodes.get(place, []), jobs, usual, gpu_faults.get(place, 0), nodes=len(of_nodes))
        for place in of_nodes.keys() | gpu_faults.keys()
    ]
    return tuple(sorted(records, key=lambda record: (record.verdict.rank, record.chance, record.cluster, record.node)))


def _judge(
    place: tuple[str, str],
    here: list[NodeRuns],
    jobs: Mapping[_Job, _Sums],
    usual: float,
    gpu_faults: int,
    *,
    nodes: int,
) -> JudgedNode:
    runs, failed = sum(each.runs for each in here), sum(each.failed for each in here)
    expected = [each.runs * _rate_elsewhere(each, jobs, usual) for each in here]
    counted = math.fsum(min(each.failed, MOST_FAILURES) for each in here)
    chance = poisson_tail(int(counted), math.fsum(min(each, MOST_FAILURES) for each in expected))
    users = {each.user for each in here if each.failed}
    slow_factor, slow_chance = _compare_times(here, jobs)
    is_slow = slow_factor is not None and slow_factor >= SLOW_FACTOR and slow_chance * nodes < SLOW_CHANCE
    verdict = NodeVerdict.NORMAL if runs >= MIN_RUNS else NodeVerdict.UNKNOWN
    if runs >= MIN_RUNS and len(users) >= MIN_USERS and chance * nodes < WATCH_CHANCE:
        verdict = NodeVerdict.SUSPECT if chance * nodes < SUSPECT_CHANCE else NodeVerdict.WATCH
    elif gpu_faults or is_slow:
        verdict = NodeVerdict.WATCH
    return JudgedNode(
        cluster=place[0],
        node=place[1],
        verdict=verdict,
        runs=runs,
        failed=failed,
        failed_users=len(users),
        expected_failed=math.fsum(expected),
        chance=chance,
        slow_factor=slow_factor,
        is_slow=is_slow,
        gpu_faults=gpu_faults,
    )


def _rate_elsewhere(here: NodeRuns, jobs: Mapping[_Job, _Sums], usual: float) -> float:
    """Return how often the job fails on other nodes; one run more, at the usual rate, stands for what is not known."""
    total = jobs[here.cluster, here.user, here.name]
    return (total.failed - here.failed + usual) / (total.runs - here.runs + 1)


def _compare_times(here: list[NodeRuns], jobs: Mapping[_Job, _Sums]) -> tuple[float | None, float]:
    """Return how much longer completed runs took than the same jobs elsewhere, and how likely that is by chance.

    None with too few to compare.
    """
    took = usual = variance = 0.0
    compared = 0
    for each in here:
        total = jobs[each.cluster, each.user, each.name]
        others = total.completed - each.completed
        if not each.completed or others < MIN_TIMED_RUNS:
            continue
        took += each.completed_seconds
        usual += each.completed * (total.completed_seconds - each.completed_seconds) / others
        variance += total.variance() * each.completed * (1 + each.completed / others)
        compared += each.completed
    if compared < MIN_TIMED_RUNS or usual <= 0:
        return None, 1.0
    if variance <= 0:
        return took / usual, 0.0 if took > usual else 1.0
    return took / usual, math.erfc((took - usual) / math.sqrt(2 * variance)) / 2


def poisson_tail(count: int, mean: float) -> float:
    """Return the probability of at least so many events."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    # From the first term on: for the small probabilities that matter, 1 minus the rest would be rounding errors.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total, number = 0.0, count
    while term > total * 1e-12 or number < mean:
        total += term
        number += 1
        term *= mean / number
    return min(1.0, total)

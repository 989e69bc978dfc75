# SPDX-License-Identifier: Apache-2.0
"""Values exactly at, just below and just above the bounds of a summary."""

from __future__ import annotations

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import JobSummary
from slurmscope.node.gpu.attribution import Numbering, resolve
from slurmscope.node.gpu.records import Gpu
from tests.fakes.reports import START, make_record


def summed(totals: dict[str, dict[tuple[str, ...], float]], **record: object) -> JobSummary:
    return summarize(make_record(4711, **record), Measured(totals=totals), now_seconds=START + 7200.0)


def cores(*seconds: float) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        "cpu": {("n1",): sum(seconds)},
        "cpu_core": {("n1", str(core)): value for core, value in enumerate(seconds)},
    }


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        # 400 s on 4 cores: a fair share is 100 s, 80 s are enough.
        ((110.0, 105.0, 105.0, 80.0), 4),
        ((110.0, 105.0, 106.0, 79.0), 3),
        # 2 s: a fair share is half a second.
        ((2.0, 0.0, 0.0, 0.0), 1),
    ],
)
def test_core_is_used_from_80_percent_of_a_fair_share_on(seconds: tuple[float, ...], expected: int) -> None:
    assert expected == summed(cores(*seconds)).cpu.cores_used


@pytest.mark.parametrize(
    ("others", "expected"),
    # Of 2,000 s, 95 % are 1,900 s.
    [(100.0, 4), (101.0, 0)],
)
def test_cores_are_those_of_the_job_if_they_did_95_percent_of_the_work(others: float, expected: int) -> None:
    own = (2000.0 - others) / 4
    summary = summed(cores(own, own, own, own, others))

    assert expected == len(summary.nodes[0].core_seconds)


@pytest.mark.parametrize(
    ("limit", "expected"), [(0.0, None), (0.5, 0.5), (5e9, 5e9), (2.0**60 - 128, 2.0**60 - 128), (2.0**60, None)]
)
def test_memory_limit_is_above_zero_and_below_unlimited(limit: float, expected: float | None) -> None:
    assert expected == summed({"memory_limit": {("n1",): limit}}).memory.limit_bytes


@pytest.mark.parametrize(
    ("kills", "expected"),
    # A kill is certain even if the other node did not report; that there was none is not.
    [({"n1": 2.0}, 2), ({"n1": 0.0}, None), ({"n1": 0.0, "n2": 0.0}, 0), ({"n1": 1.0, "n2": 2.0}, 3), ({}, None)],
)
def test_oom_kills_of_all_nodes_are_added(kills: dict[str, float], expected: int | None) -> None:
    totals: dict[str, dict[tuple[str, ...], float]] = {"oom_kills": {(node,): count for node, count in kills.items()}}

    assert expected == summed(totals, nodes=("n1", "n2"), node_count=2).memory.oom_kills


def test_job_that_never_started_used_no_time() -> None:
    summary = summed({}, start_seconds=None, end_seconds=None, state="PENDING")

    assert (0.0, 0.0) == (summary.run_seconds, summary.time.used)


def test_gpus_of_a_pending_job_are_those_it_requested() -> None:
    pending = {"start_seconds": None, "end_seconds": None, "state": "PENDING"}

    assert 4 == summed({}, **pending, gres=(Gres(name="gpu", count=4),)).gpu.requested
    assert 0 == summed({}, **pending).gpu.requested


@pytest.mark.parametrize(("ratio", "idle"), [(0.5, 0), (0.501, 1), (1.0, 1)])
def test_gpu_is_held_idle_for_most_of_the_run(ratio: float, idle: int) -> None:
    totals: dict[str, dict[tuple[str, ...], float]] = {"gpu_held_idle": {("n1", "0", ""): ratio, ("n1", "1", ""): 0.0}}

    assert idle == summed(totals, gres=(Gres(name="gpu", count=2),)).gpu.held_idle


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        # Three GPUs at 0.8 and one at 0.4.
        ({("n1", "0", ""): 0.0, ("n1", "1", ""): 0.0, ("n1", "2", ""): 0.0, ("n2", "0", ""): 0.0}, 0.7),
        # Of the second node none is known: it counts as one of two.
        ({("n1", "0", ""): 0.0}, 0.6),
        ({}, 0.6),
    ],
)
def test_utilization_is_weighted_by_gpus(held: dict[tuple[str, ...], float], expected: float) -> None:
    totals: dict[str, dict[tuple[str, ...], float]] = {"gpu": {("n1",): 0.8, ("n2",): 0.4}, "gpu_held_idle": held}
    summary = summed(totals, nodes=("n1", "n2"), node_count=2, gres=(Gres(name="gpu", count=4),))

    assert pytest.approx(expected) == summary.gpu.mean_utilization


@pytest.mark.parametrize(("gpus", "reported", "expected"), [(1, 1, 3e9), (0, 1, None), (2, 1, None), (2, 2, 6e9)])
def test_gpu_memory_is_known_if_every_node_with_gpus_reported(gpus: int, reported: int, expected: float | None) -> None:
    memory: dict[tuple[str, ...], float] = {(f"n{number}",): 3e9 for number in range(1, reported + 1)}
    summary = summed({"gpu_memory": memory}, nodes=("n1", "n2"), node_count=2, gres=(Gres(name="gpu", count=gpus),))

    assert expected == summary.gpu.peak_memory_bytes


@pytest.mark.parametrize(
    ("word", "is_found"),
    [("GPU-abcd", True), ("GPU-abc", False), ("123456", True), ("0123456", False), ("12345", False)],
)
def test_gpu_is_found_by_eight_characters_of_its_uuid_or_six_digits(word: str, is_found: bool) -> None:
    gpu = Gpu(index=123456, minor=123456, uuid="GPU-abcd-0000")

    assert is_found == (resolve(word, [gpu], Numbering.AUTO) is gpu)

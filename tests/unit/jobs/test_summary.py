# SPDX-License-Identifier: Apache-2.0
"""Ratios, peaks and coverage of a summary; None stays None."""

from __future__ import annotations

import math

import pytest

from slurmscope.archive.interface import UseTotal
from slurmscope.jobs.rule import Finding, Severity, Subject
from slurmscope.jobs.series import total_of_rises
from slurmscope.jobs.summary import Coverage, MemorySummary, UsedShare
from tests.fakes.reports import make_report


@pytest.mark.parametrize(
    ("nodes", "measured", "run_ratio", "expected"),
    [
        (1, 1, 1.0, True),
        (1, 1, 0.8, True),
        (1, 1, 0.79, False),
        (2, 1, 1.0, False),
        (2, 2, 0.8, True),
        (2, 3, 1.0, True),
        (0, 0, 1.0, False),
    ],
)
def test_coverage_is_good_with_every_node_and_most_of_the_run(
    nodes: int, measured: int, run_ratio: float, expected: bool
) -> None:
    assert expected == Coverage(nodes=nodes, nodes_measured=measured, run_ratio=run_ratio).is_good


@pytest.mark.parametrize(
    ("requested", "used", "expected"),
    [(8.0, 2.0, 0.25), (8.0, 0.0, 0.0), (8.0, None, None), (None, 2.0, None), (0.0, 2.0, None), (None, None, None)],
)
def test_used_share_is_used_over_requested(requested: float | None, used: float | None, expected: float | None) -> None:
    assert expected == UsedShare(requested=requested, used=used).ratio


@pytest.mark.parametrize(
    ("working", "slurm", "is_whole", "charged", "expected"),
    [
        (200.0, None, True, 900.0, 200.0),
        (200.0, 150.0, True, 900.0, 200.0),
        # Samples missed a peak that Slurm saw, in one of several tasks or in all.
        (200.0, 300.0, False, 900.0, 300.0),
        (0.0, None, True, 900.0, 0.0),
        (None, 300.0, True, 900.0, 300.0),
        # MaxRSS of one of several tasks is not that of the job.
        (None, 300.0, False, 900.0, 900.0),
        (None, None, True, 900.0, 900.0),
        (None, None, True, None, None),
    ],
)
def test_best_peak_is_working_memory_then_max_rss_then_charged(
    working: float | None, slurm: float | None, is_whole: bool, charged: float | None, expected: float | None
) -> None:
    memory = MemorySummary(
        requested_bytes=1000.0, working_peak_bytes=working, slurm_peak_bytes=slurm, slurm_peak_is_whole=is_whole,
        charged_peak_bytes=charged,
    )  # fmt: skip

    assert expected == memory.best_peak_bytes
    assert (None if expected is None else expected / 1000) == memory.ratio


def test_memory_ratio_needs_a_request() -> None:
    assert MemorySummary(working_peak_bytes=5.0).ratio is None
    assert MemorySummary(working_peak_bytes=5.0, requested_bytes=0.0).ratio is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([7.0, 10.0], 10.0),
        # A decrease adds nothing, and later increases count from there: 7 + 3 + 0 + 4.
        ([7.0, 10.0, 2.0, 6.0], 14.0),
        ([7.0, 7.0, 7.0], 7.0),
        # 1 + 0.5 + 0.25: increases below 1 count as they are.
        ([1.0, 1.5, 1.75], 1.75),
    ],
)
def test_total_of_a_counter_is_its_start_and_its_increases(values: list[float], expected: float) -> None:
    assert math.isclose(expected, total_of_rises(values))


def use_total(*, measured: float, used: float, measured_gpu: float = 0.0, used_gpu: float = 0.0) -> UseTotal:
    return UseTotal(
        key="ada", jobs=3, core_seconds=5000.0, measured_core_seconds=measured, used_core_seconds=used,
        gpu_seconds=9000.0, measured_gpu_seconds=measured_gpu, used_gpu_seconds=used_gpu, jobs_with_findings=0,
    )  # fmt: skip


def test_totals_compare_with_what_was_measured() -> None:
    total = use_total(measured=4000.0, used=1000.0, measured_gpu=800.0, used_gpu=600.0)

    assert (0.25, 3000.0, 0.75) == (total.cpu_ratio, total.idle_core_seconds, total.gpu_ratio)


def test_totals_without_measurements_have_no_ratio() -> None:
    total = use_total(measured=0.0, used=0.0)

    assert (None, None, None) == (total.cpu_ratio, total.idle_core_seconds, total.gpu_ratio)


@pytest.mark.parametrize(
    ("severities", "worst", "has_warning"),
    [
        ((), None, False),
        ((Severity.INFO,), Severity.INFO, False),
        ((Severity.INFO, Severity.WARNING), Severity.WARNING, True),
        ((Severity.WARNING, Severity.CRITICAL, Severity.INFO), Severity.CRITICAL, True),
    ],
)
def test_worst_finding_decides(severities: tuple[Severity, ...], worst: Severity | None, has_warning: bool) -> None:
    findings = tuple(
        Finding(rule="r", severity=severity, subject=Subject.CPU, title="t", explanation="e.", advice="a.")
        for severity in severities
    )
    report = make_report(findings=findings)

    assert (worst, has_warning) == (report.worst, report.has_warning)

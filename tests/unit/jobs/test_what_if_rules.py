# SPDX-License-Identifier: Apache-2.0
"""Measured curves answer what a run would have done with another request; expected figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.wait_times import WaitingTime
from slurmscope.jobs.what_if import MemoryOutcome, OtherRequest, TimeOutcome, Verdict, predict
from tests.fakes.job_summaries import GIB, HOUR, make_summary
from tests.fakes.reports import START


def chart(name: str, *lines: tuple[float | None, ...], labels: tuple[str, ...] = ("n1", "n2")) -> Chart:
    """Make a chart with points at the ends of equal parts of the two hours."""
    count = len(lines[0])
    return Chart(
        name=name,
        title=name,
        unit="",
        subject=Subject.CPU,
        times=tuple(START + 2 * HOUR * (index + 1) / count for index in range(count)),
        lines=tuple(ChartLine(label=label, values=line) for label, line in zip(labels, lines, strict=False)),
    )


def run(*charts: Chart, **changed: Any) -> JobReport:
    """Make the report of a run of two hours with four cores and 8 GiB, of which it needed 6."""
    summary = make_summary(**changed)
    nodes = tuple(replace(node, working_peak_bytes=summary.memory.working_peak_bytes) for node in summary.nodes)
    return JobReport(summary=replace(summary, nodes=nodes), made_seconds=0, charts=charts)


GROWING = chart("memory", (2 * GIB, 3 * GIB, 5 * GIB, 6 * GIB))


def memory_of(report: JobReport, gib: float, cpus: int | None = None) -> MemoryOutcome:
    return predict(report, OtherRequest(memory_bytes=gib * GIB, cpus=cpus), {}).memory


def time_of(report: JobReport, **request: Any) -> TimeOutcome:
    return predict(report, OtherRequest(**request), {}).time


def test_memory_is_compared_with_the_curve() -> None:
    # The third point, at 1.5 h, is the first above 4 GiB.
    expected = MemoryOutcome(verdict=Verdict.TOO_LITTLE, needed_bytes=6 * GIB, killed_after_seconds=1.5 * HOUR)
    assert expected == memory_of(run(GROWING), 4)
    assert MemoryOutcome(verdict=Verdict.ENOUGH, needed_bytes=6 * GIB) == memory_of(run(GROWING), 6)


def test_memory_that_is_just_reached_is_enough_until_then() -> None:
    # 5 GiB at 1.5 h are no more than 5 GiB; 6 GiB at 2 h are.
    assert 2 * HOUR == memory_of(run(GROWING), 5).killed_after_seconds


@pytest.mark.parametrize(("nodes", "expected"), [(1, 3 * GIB), (2, None)])
def test_peak_of_the_kernel_is_the_need_on_a_single_node(nodes: int, expected: float | None) -> None:
    memory = {"working_peak_bytes": None, "charged_peak_bytes": 3 * GIB, "slurm_peak_is_whole": False}

    assert expected == memory_of(run(record={"node_count": nodes}, memory=memory), 4).needed_bytes


def test_sample_before_the_start_is_that_of_the_start() -> None:
    early = replace(GROWING, times=tuple(time - 3 * HOUR for time in GROWING.times))

    assert 0.0 == memory_of(run(early), 4).killed_after_seconds


def test_time_of_an_oom_kill_is_unknown_without_a_sample_of_it() -> None:
    for report in (run(), run(chart("memory", (None, GIB)))):
        expected = MemoryOutcome(verdict=Verdict.TOO_LITTLE, needed_bytes=6 * GIB)
        assert expected == memory_of(report, 4)


def test_fewer_cores_delay_the_oom_kill() -> None:
    # Four busy cores on two take twice as long.
    report = run(GROWING, chart("cpu", (4.0, 4.0, 4.0, 4.0)))
    assert 3 * HOUR == memory_of(report, 4, cpus=2).killed_after_seconds


def test_memory_that_was_not_measured_is_unknown() -> None:
    report = run(memory={"working_peak_bytes": None, "slurm_peak_bytes": None})
    assert MemoryOutcome(verdict=Verdict.UNKNOWN) == memory_of(report, 4)


def test_memory_that_only_slurm_sampled_is_a_lower_bound() -> None:
    report = run(memory={"working_peak_bytes": None, "slurm_peak_bytes": 3 * GIB})
    assert Verdict.TOO_LITTLE is memory_of(report, 2).verdict
    assert MemoryOutcome(verdict=Verdict.UNKNOWN, needed_bytes=3 * GIB) == memory_of(report, 4)


def test_memory_of_one_of_several_nodes_is_unknown_without_measurement() -> None:
    report = run(record={"node_count": 2}, memory={"working_peak_bytes": None, "slurm_peak_bytes": 3 * GIB})
    # A task of one of them had 3 GiB.
    assert MemoryOutcome(verdict=Verdict.TOO_LITTLE, needed_bytes=3 * GIB) == memory_of(report, 2)
    assert MemoryOutcome(verdict=Verdict.UNKNOWN, needed_bytes=3 * GIB) == memory_of(report, 4)
    unknown = run(record={"node_count": 2}, memory={"working_peak_bytes": None})
    assert MemoryOutcome(verdict=Verdict.UNKNOWN) == memory_of(unknown, 2)


def test_oom_killed_run_needed_what_its_header_says() -> None:
    report = run(record={"state": "OUT_OF_MEMORY"}, memory={"expected_bytes": 19 * GIB})
    assert MemoryOutcome(verdict=Verdict.TOO_LITTLE, needed_bytes=19 * GIB) == memory_of(report, 18)
    assert MemoryOutcome(verdict=Verdict.UNKNOWN, needed_bytes=19 * GIB) == memory_of(report, 23)


def test_need_of_an_oom_killed_run_is_unknown() -> None:
    report = run(record={"state": "OUT_OF_MEMORY"})
    assert Verdict.TOO_LITTLE is memory_of(report, 8).verdict
    assert Verdict.UNKNOWN is memory_of(report, 12).verdict
    unknown = run(record={"state": "OUT_OF_MEMORY"}, memory={"requested_bytes": None})
    assert Verdict.UNKNOWN is memory_of(unknown, 12).verdict


def test_memory_as_submitted_without_a_known_request_is_unknown() -> None:
    report = run(memory={"requested_bytes": None})
    assert Verdict.UNKNOWN is predict(report, OtherRequest(cpus=1), {}).memory.verdict


def test_run_time_follows_from_busy_cores() -> None:
    # One hour with 4 busy cores takes two on 2 cores, the other with 1 is not slower.
    report = run(chart("cpu", (4.0, 1.0)))
    assert TimeOutcome(verdict=Verdict.ENOUGH, run_seconds=3 * HOUR) == time_of(report, cpus=2)
    assert TimeOutcome(verdict=Verdict.ENOUGH, run_seconds=2 * HOUR) == time_of(report, cpus=8)


def test_busy_cores_of_all_nodes_count() -> None:
    report = run(chart("cpu", (2.0, None), (2.0, 1.0)))
    assert 3 * HOUR == time_of(report, cpus=2).run_seconds
    # Where nothing was measured, the next value counts.
    report = run(chart("cpu", (4.0, None, 1.0, 1.0)))
    assert 2.5 * HOUR == time_of(report, cpus=2).run_seconds


def test_curve_that_ends_early_is_continued() -> None:
    cpu = chart("cpu", (4.0, 4.0))
    report = run(replace(cpu, times=(START - 60.0, START + 1 * HOUR)))
    assert 4 * HOUR == time_of(report, cpus=2, limit_seconds=5 * HOUR).run_seconds


@pytest.mark.parametrize("labels", [("lowest of 64", "highest of 64"), ("n1", "n2")])
def test_mean_is_used_without_a_curve_of_every_node(labels: tuple[str, str]) -> None:
    charts = [chart("cpu", (4.0,), (1.0,), labels=labels)] if labels[0] != "n1" else []
    assert 4 * HOUR == time_of(run(*charts), cpus=2).run_seconds


def test_run_time_is_unknown_without_cpu_time() -> None:
    report = run(coverage=make_summary().coverage.__class__(nodes=1, nodes_measured=0, run_ratio=0.0))
    assert TimeOutcome(verdict=Verdict.UNKNOWN) == time_of(report, cpus=2)


def test_shorter_limit_cuts_the_run() -> None:
    expected = TimeOutcome(verdict=Verdict.TOO_LITTLE, run_seconds=2 * HOUR, cut_after_seconds=HOUR)
    assert expected == time_of(run(), limit_seconds=HOUR)
    assert TimeOutcome(verdict=Verdict.ENOUGH, run_seconds=2 * HOUR) == time_of(run(), limit_seconds=2 * HOUR)


def test_fewer_cores_may_exceed_the_submitted_limit() -> None:
    report = run(chart("cpu", (4.0, 4.0)))
    expected = TimeOutcome(verdict=Verdict.TOO_LITTLE, run_seconds=4 * HOUR, cut_after_seconds=3 * HOUR)
    assert expected == time_of(report, cpus=2)


def test_job_without_a_limit_is_never_cut() -> None:
    report = run(record={"time_limit_seconds": None})
    assert Verdict.ENOUGH is time_of(report, memory_bytes=GIB).verdict


def test_run_that_timed_out_was_not_done() -> None:
    report = run(record={"state": "TIMEOUT", "time_limit_seconds": 7200})
    assert TimeOutcome(verdict=Verdict.UNKNOWN, run_seconds=2 * HOUR) == time_of(report, limit_seconds=3 * HOUR)
    expected = TimeOutcome(verdict=Verdict.TOO_LITTLE, run_seconds=2 * HOUR, cut_after_seconds=2 * HOUR)
    assert expected == time_of(report, memory_bytes=GIB)


def test_waiting_times_are_those_of_both_sizes() -> None:
    def waited(seconds: float) -> WaitingTime:
        return WaitingTime(
            partition="", cores_class=0, limit_class=0, jobs=20, median_seconds=seconds, p90_seconds=seconds
        )

    # Four cores and three hours are in the classes 1 and 1, one core and one hour in 0 and 0.
    outcome = predict(run(), OtherRequest(cpus=1, limit_seconds=HOUR), {(1, 1): waited(600.0), (0, 0): waited(60.0)})
    assert (60.0, 600.0) == (outcome.wait_seconds, outcome.submitted_wait_seconds)
    assert predict(run(), OtherRequest(cpus=1), {}).wait_seconds is None


def test_suspended_time_is_no_time_in_which_fewer_cores_catch_up() -> None:
    # Busy for the first and the last hour of four, suspended in between: two hours of 4 cores take four on 2.
    report = run(chart("cpu", (4.0, 0.0, 0.0, 4.0)), record={"suspended_seconds": 7200, "time_limit_seconds": 3 * 3600})
    wall = replace(report.charts[0], times=tuple(START + HOUR * hour for hour in (1, 2, 3, 4)))
    outcome = time_of(replace(report, charts=(wall,)), cpus=2)
    assert TimeOutcome(verdict=Verdict.TOO_LITTLE, run_seconds=4 * HOUR, cut_after_seconds=3 * HOUR) == outcome

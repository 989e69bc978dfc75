# SPDX-License-Identifier: Apache-2.0
"""Measured curves answer what a run would have done with another request; expected figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.summary import GpuSummary, HeldGpu
from slurmscope.jobs.wait_times import WaitingTime
from slurmscope.jobs.what_if import MemoryOutcome, OtherRequest, Sufficiency, TimeOutcome, describe_outcome, predict
from tests.fakes.job_summaries import GIB, HOUR, covered, make_summary
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
    expected = MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=6 * GIB, killed_after_seconds=1.5 * HOUR)
    assert expected == memory_of(run(GROWING), 4)
    assert MemoryOutcome(verdict=Sufficiency.ENOUGH, needed_bytes=6 * GIB) == memory_of(run(GROWING), 6)


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
        expected = MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=6 * GIB)
        assert expected == memory_of(report, 4)


def test_fewer_cores_delay_the_oom_kill() -> None:
    # Four busy cores on two take twice as long.
    report = run(GROWING, chart("cpu", (4.0, 4.0, 4.0, 4.0)))
    assert 3 * HOUR == memory_of(report, 4, cpus=2).killed_after_seconds


def test_memory_that_was_not_measured_is_unknown() -> None:
    report = run(memory={"working_peak_bytes": None, "slurm_peak_bytes": None})
    assert MemoryOutcome(verdict=Sufficiency.UNKNOWN) == memory_of(report, 4)


def test_memory_that_only_slurm_sampled_is_a_lower_bound() -> None:
    report = run(memory={"working_peak_bytes": None, "slurm_peak_bytes": 3 * GIB})
    assert Sufficiency.TOO_LITTLE is memory_of(report, 2).verdict
    assert MemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=3 * GIB) == memory_of(report, 4)


def test_memory_of_one_of_several_nodes_is_unknown_without_measurement() -> None:
    report = run(record={"node_count": 2}, memory={"working_peak_bytes": None, "slurm_peak_bytes": 3 * GIB})
    # A task of one of them had 3 GiB.
    assert MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=3 * GIB) == memory_of(report, 2)
    assert MemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=3 * GIB) == memory_of(report, 4)
    unknown = run(record={"node_count": 2}, memory={"working_peak_bytes": None})
    assert MemoryOutcome(verdict=Sufficiency.UNKNOWN) == memory_of(unknown, 2)


def test_oom_killed_run_needed_what_its_header_says() -> None:
    report = run(record={"state": "OUT_OF_MEMORY"}, memory={"expected_bytes": 19 * GIB})
    assert MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=19 * GIB) == memory_of(report, 18)
    assert MemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=19 * GIB) == memory_of(report, 23)


def test_need_of_an_oom_killed_run_is_unknown() -> None:
    report = run(record={"state": "OUT_OF_MEMORY"})
    assert Sufficiency.TOO_LITTLE is memory_of(report, 8).verdict
    assert Sufficiency.UNKNOWN is memory_of(report, 12).verdict
    unknown = run(record={"state": "OUT_OF_MEMORY"}, memory={"requested_bytes": None})
    assert Sufficiency.UNKNOWN is memory_of(unknown, 12).verdict


def test_memory_as_submitted_without_a_known_request_is_unknown() -> None:
    report = run(memory={"requested_bytes": None})
    assert Sufficiency.UNKNOWN is predict(report, OtherRequest(cpus=1), {}).memory.verdict


def test_run_time_follows_from_busy_cores() -> None:
    # One hour with 4 busy cores takes two on 2 cores, the other with 1 is not slower.
    report = run(chart("cpu", (4.0, 1.0)))
    assert TimeOutcome(verdict=Sufficiency.ENOUGH, run_seconds=3 * HOUR) == time_of(report, cpus=2)
    assert TimeOutcome(verdict=Sufficiency.ENOUGH, run_seconds=2 * HOUR) == time_of(report, cpus=8)


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
    assert TimeOutcome(verdict=Sufficiency.UNKNOWN) == time_of(report, cpus=2)


def test_shorter_limit_cuts_the_run() -> None:
    expected = TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=2 * HOUR, cut_after_seconds=HOUR)
    assert expected == time_of(run(), limit_seconds=HOUR)
    assert TimeOutcome(verdict=Sufficiency.ENOUGH, run_seconds=2 * HOUR) == time_of(run(), limit_seconds=2 * HOUR)


def test_fewer_cores_may_exceed_the_submitted_limit() -> None:
    report = run(chart("cpu", (4.0, 4.0)))
    expected = TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=4 * HOUR, cut_after_seconds=3 * HOUR)
    assert expected == time_of(report, cpus=2)


def test_job_without_a_limit_is_never_cut() -> None:
    report = run(record={"time_limit_seconds": None})
    assert Sufficiency.ENOUGH is time_of(report, memory_bytes=GIB).verdict


def test_run_that_timed_out_was_not_done() -> None:
    report = run(record={"state": "TIMEOUT", "time_limit_seconds": 7200})
    assert TimeOutcome(verdict=Sufficiency.UNKNOWN, run_seconds=2 * HOUR) == time_of(report, limit_seconds=3 * HOUR)
    expected = TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=2 * HOUR, cut_after_seconds=2 * HOUR)
    assert expected == time_of(report, memory_bytes=GIB)


@pytest.mark.parametrize("state", ["CANCELLED", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT"])
def test_what_a_run_that_was_ended_needs_is_unknown(state: str) -> None:
    report = run(record={"state": state})
    assert MemoryOutcome(verdict=Sufficiency.UNKNOWN, needed_bytes=6 * GIB) == memory_of(report, 9)
    assert TimeOutcome(verdict=Sufficiency.UNKNOWN, run_seconds=2 * HOUR) == time_of(report, limit_seconds=4 * HOUR)


def test_completed_run_with_an_oom_kill_needs_more() -> None:
    report = run(memory={"oom_kills": 1})
    assert Sufficiency.UNKNOWN is memory_of(report, 9).verdict
    assert Sufficiency.UNKNOWN is time_of(report, limit_seconds=4 * HOUR).verdict


def test_memory_by_core_gets_less_with_fewer_cores() -> None:
    # Four cores had 2 GiB each, and the run needed 6 GiB; 1.5 h of four busy cores take 3 h on two.
    report = run(GROWING, record={"submit_line": "sbatch -c4 --mem-per-cpu=2G x.sh"})
    expected = MemoryOutcome(verdict=Sufficiency.TOO_LITTLE, needed_bytes=6 * GIB, killed_after_seconds=3 * HOUR)
    outcome = predict(report, OtherRequest(cpus=2), {})
    assert expected == outcome.memory
    assert (
        "With 4 GiB of memory per node it would have been OOM-killed after 3 h, at "
        in (describe_outcome(report, outcome)[0])
    )
    assert Sufficiency.ENOUGH is predict(report, OtherRequest(cpus=3), {}).memory.verdict
    assert Sufficiency.ENOUGH is predict(report, OtherRequest(cpus=2, memory_bytes=6 * GIB), {}).memory.verdict


def test_memory_of_a_node_is_kept_with_fewer_cores() -> None:
    report = run(GROWING, record={"submit_line": "sbatch -c4 --mem=8G x.sh"})
    assert Sufficiency.ENOUGH is predict(report, OtherRequest(cpus=1), {}).memory.verdict


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
    assert TimeOutcome(verdict=Sufficiency.TOO_LITTLE, run_seconds=4 * HOUR, cut_after_seconds=3 * HOUR) == outcome


def on_gpus(*busy: tuple[float | None, ...], peak_gib: float = 100.0, **gpu: Any) -> JobReport:
    """Make the report of a run of two hours on GPUs of 80 GiB, with a curve for each."""
    labels = tuple(f"GPU {number}" for number in range(len(busy)))
    count = len(busy) or 2
    charts = (chart("gpu_busy", *busy, labels=labels),) if busy else ()
    known = GpuSummary(
        requested=count, peak_memory_bytes=peak_gib * GIB, memory_size_bytes=count * 80.0 * GIB, coverage=covered()
    )
    return run(*charts, record={"gres": (Gres(name="gpu", count=count),)}, gpu=replace(known, **gpu))


def sentences_of(report: JobReport, **request: Any) -> tuple[str, ...]:
    return describe_outcome(report, predict(report, OtherRequest(**request), {}))[:-1]


def test_fewer_gpus_take_longer_by_what_was_busy_at_once() -> None:
    # Two GPUs, both busy in the first half and one in the second: on one, the first hour takes two.
    report = on_gpus((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 0.0, 0.0), peak_gib=60)
    assert ("With 1 GPU it would have run for at least 3 h instead of 2 h.",) == sentences_of(report, gpus=1)
    assert ("With 1 GPU it would have run for about 2 h, as it did.",) == sentences_of(
        on_gpus((0.9, 0.9), (0.0, 0.0), peak_gib=60), gpus=1
    )


def test_without_curves_gpus_count_by_their_mean() -> None:
    report = on_gpus(mean_utilization=0.75, peak_gib=60)
    assert 3 * HOUR == time_of(report, gpus=1).run_seconds
    assert 2 * HOUR == time_of(report, gpus=2).run_seconds
    assert time_of(on_gpus(), gpus=1).run_seconds is None


def test_memory_must_fit_into_fewer_gpus() -> None:
    report = on_gpus((0.4, 0.4), (0.4, 0.4), peak_gib=100)
    assert (
        "With 1 GPU it would have run for about 2 h, as it did.",
        "It held up to 100 GiB of GPU memory, and 1 GPU has 80 GiB: it would not have fit.",
    ) == sentences_of(report, gpus=1)
    assert Sufficiency.ENOUGH is predict(report, OtherRequest(gpus=2), {}).gpu_memory.verdict
    assert Sufficiency.UNKNOWN is predict(on_gpus(memory_size_bytes=None), OtherRequest(gpus=1), {}).gpu_memory.verdict


def test_cores_and_gpus_together_take_as_long_as_what_is_slower() -> None:
    report = on_gpus((0.9, 0.9), (0.9, 0.9), peak_gib=10)
    report = replace(report, charts=(*report.charts, chart("cpu", (4.0, 4.0))))
    assert 1.8 * 2 * HOUR == pytest.approx(time_of(report, gpus=1).run_seconds)
    sentence = "With 1 core and 1 GPU it would have run for at least 8 h instead of 2 h."
    assert sentence == sentences_of(report, gpus=1, cpus=1)[0]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((HeldGpu(node="n1", gpu="0", mean_utilization=0.95), HeldGpu(node="n1", gpu="1", mean_utilization=0.9)),
         "With 4 GPUs it may be faster: that was not measured."),
        ((HeldGpu(node="n1", gpu="0", mean_utilization=0.95), HeldGpu(node="n1", gpu="1", mean_utilization=0.0)),
         "With 4 GPUs it would not have been faster."),
    ],
)  # fmt: skip
def test_more_gpus_do_not_help_while_one_is_idle(devices: tuple[HeldGpu, ...], expected: str) -> None:
    assert (expected,) == sentences_of(on_gpus(devices=devices), gpus=4)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (HeldGpu(node="n1", gpu="0", jobs=2), "other jobs used its GPUs, too"),
        (HeldGpu(node="n1", gpu="0", stuck_seconds=700.0), "its GPUs were stuck"),
        (HeldGpu(node="n1", gpu="0"), "the use of its cores or GPUs was not measured"),
    ],
)
def test_unknown_use_of_gpus_leaves_the_time_open(device: HeldGpu, why: str) -> None:
    report = on_gpus(devices=(device,), peak_gib=1.0)
    assert (f"With 1 GPU its run time is not known: {why}.",) == sentences_of(report, gpus=1)


def test_gpus_of_a_job_without_any_are_unknown() -> None:
    assert ("Whether GPUs would help is not known: it had none.",) == sentences_of(run(), gpus=1)

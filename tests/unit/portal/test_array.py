# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.archive.job_columns import JobRow
from slurmscope.jobs.pending.queue import PendingJob
from slurmscope.portal.array import ArrayView, Recommendation, keep_newest_runs, make_array_view
from tests.fakes.archive import make_row
from tests.fakes.reports import GIB, make_record, make_report

REPORT = make_report(make_record(1))
BASE = make_row(REPORT)
MIB = 1 << 20


def make_rows(count: int = 10, **changed: object) -> list[JobRow]:
    """Make tasks that use nearly all of their four cores, memory and time."""
    fit = replace(BASE, cpu_ratio=0.98, memory_ratio=0.9, time_ratio=0.9, **changed)  # type: ignore[arg-type]
    return [replace(fit, job_id=index) for index in range(count)]


def summarize(rows: list[JobRow], submit_line: str = "sbatch job.sh") -> ArrayView:
    record = replace(REPORT.record, submit_line=submit_line)
    return make_array_view(rows, replace(REPORT.summary, record=record))


def test_distribution_has_every_task_in_one_bin() -> None:
    rows = [replace(row, run_seconds=100.0 * (index + 1)) for index, row in enumerate(make_rows(24))]
    distribution = summarize(rows).distributions[0]
    assert ("Run time", 24, (2,) * 12, 2) == (
        distribution.label,
        distribution.known,
        distribution.bins,
        distribution.tallest,
    )
    assert ("1 min 40 s", "20 min 50 s", "40 min") == (distribution.lowest, distribution.median, distribution.highest)


def test_number_that_is_never_known_has_no_distribution() -> None:
    assert "GPU use" not in [distribution.label for distribution in summarize(make_rows()).distributions]


def test_single_known_task_has_no_distribution() -> None:
    rows = [replace(row, cpu_ratio=None) for row in make_rows(3)]
    labels = [found.label for found in summarize([*rows[:2], replace(rows[2], cpu_ratio=0.5)]).distributions]
    assert "CPU use" not in labels
    assert "Run time" in labels


def test_task_far_from_the_others_is_an_outlier() -> None:
    rows = make_rows(10)
    rows[3] = replace(rows[3], run_seconds=90000.0)
    (outlier,) = summarize(rows).outliers
    assert (3, "Run time: 1 d 1 h (median 2 h)") == (outlier.row.job_id, outlier.why)


def test_few_tasks_have_no_outliers() -> None:
    rows = make_rows(5)
    rows[3] = replace(rows[3], run_seconds=90000.0)
    assert () == summarize(rows).outliers


def test_equal_tasks_have_no_outliers() -> None:
    rows = [replace(row, run_seconds=7200.0 + (index == 0)) for index, row in enumerate(make_rows(20))]
    assert () == summarize(rows).outliers


def recommend(rows: list[JobRow], submit_line: str = "sbatch job.sh") -> Recommendation:
    recommendation = summarize(rows, submit_line).recommendation
    assert recommendation is not None
    return recommendation


def test_idle_cores_come_first_as_a_mean_and_without_a_suggested_number() -> None:
    # 0.45 of 16 cores is 7.2. In a busy phase it may have been all of them.
    rows = [replace(row, cpus=16, cpu_ratio=0.45, memory_ratio=0.01) for row in make_rows()]
    recommendation = recommend(rows)
    sentence = "Averaged over its run, no task kept more than 7.2 of its 16 cores busy."
    assert (sentence, "") == (recommendation.sentence, recommendation.suggestion)
    assert recommendation.advice == (
        "The report of a task shows how many were busy at the same time, and suggests what to request."
    )


@pytest.mark.parametrize(
    "changed",
    [{"cpu_ratio": 0.9}, {"cpu_ratio": 0.9, "state": "RUNNING"}, {"cpu_ratio": None}, {"gpus": 1}, {"nodes": 2}],
    ids=str,
)
def test_one_task_that_is_busy_or_unknown_or_of_another_kind_suppresses_idle_cores(changed: dict[str, object]) -> None:
    rows = [replace(row, cpus=8, cpu_ratio=0.13) for row in make_rows()]
    rows[0] = replace(rows[0], **changed)  # type: ignore[arg-type]
    assert None is summarize(rows).recommendation


def test_task_with_one_core_has_no_idle_cores() -> None:
    rows = [replace(row, cpus=1, cpu_ratio=0.4) for row in make_rows()]
    assert None is summarize(rows).recommendation


def test_idle_cores_of_tasks_with_gpus_are_not_reported() -> None:
    rows = [replace(row, gpus=1, cpus=16, cpu_ratio=0.05) for row in make_rows()]
    assert None is summarize(rows).recommendation


def test_memory_is_the_largest_peak_plus_a_fifth() -> None:
    rows = [replace(row, memory_bytes=100 * GIB, memory_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], memory_ratio=0.10)
    recommendation = recommend(rows)
    assert "#SBATCH --mem=12G" == recommendation.suggestion
    assert "No task used more than 10 GiB of the 100 GiB it requested." == recommendation.sentence
    expected = "With a safety margin, based on 10 tasks that completed and ran for at least 5 min:"
    assert expected == recommendation.advice


def test_peak_of_a_failed_task_counts() -> None:
    rows = [replace(row, memory_bytes=100 * GIB, memory_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], memory_ratio=0.30, state="FAILED")
    # 30 GiB and a fifth.
    assert "#SBATCH --mem=36G" == recommend(rows).suggestion


@pytest.mark.parametrize(("peak_mib", "suggestion"), [(300, "512M"), (1024, "1280M"), (1500, "2G")])
def test_memory_is_rounded_as_in_the_report_of_a_task(peak_mib: int, suggestion: str) -> None:
    rows = [replace(row, memory_bytes=8 * GIB, memory_ratio=peak_mib * MIB / (8 * GIB)) for row in make_rows()]
    assert f"#SBATCH --mem={suggestion}" == recommend(rows).suggestion


@pytest.mark.parametrize(("cpus", "suggestion"), [(1, "512M"), (4, "128M")])
def test_array_submitted_with_memory_per_cpu_gets_memory_per_cpu(cpus: int, suggestion: str) -> None:
    rows = [replace(row, cpus=cpus, memory_bytes=8 * GIB, memory_ratio=300 * MIB / (8 * GIB)) for row in make_rows()]
    assert f"#SBATCH --mem-per-cpu={suggestion}" == recommend(rows, "sbatch --mem-per-cpu=2G job.sh").suggestion


def test_memory_per_cpu_is_enough_for_the_task_with_the_fewest_cores() -> None:
    rows = [replace(row, memory_bytes=8 * GIB, memory_ratio=300 * MIB / (8 * GIB)) for row in make_rows()]
    rows[0] = replace(rows[0], cpus=2)
    assert "#SBATCH --mem-per-cpu=256M" == recommend(rows, "sbatch --mem-per-cpu=2G job.sh").suggestion


def test_memory_known_for_one_task_of_a_hundred_is_not_enough() -> None:
    rows = [replace(row, memory_bytes=64 * GIB, memory_ratio=None) for row in make_rows(100)]
    rows[0] = replace(rows[0], memory_ratio=0.01)
    assert None is summarize(rows).recommendation


@pytest.mark.parametrize("changed", [{"state": "OUT_OF_MEMORY"}, {"state": "FAILED", "rules": ("oom_kill",)}], ids=str)
def test_task_that_ran_out_of_memory_suppresses_less_memory(changed: dict[str, object]) -> None:
    rows = [replace(row, memory_bytes=64 * GIB, memory_ratio=0.3, rules=()) for row in make_rows()]
    assert "#SBATCH --mem=24G" == recommend(rows).suggestion
    rows[0] = replace(rows[0], **changed)  # type: ignore[arg-type]
    assert ("1 of 10 tasks ran out of memory.", "") == (recommend(rows).sentence, recommend(rows).suggestion)


def test_one_task_on_two_nodes_suppresses_less_memory() -> None:
    rows = [replace(row, memory_bytes=64 * GIB, memory_ratio=0.3, rules=()) for row in make_rows()]
    assert None is summarize([replace(rows[0], nodes=2), *rows[1:]]).recommendation


def test_time_is_rounded_as_in_the_report_of_a_task() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    recommendation = recommend(rows)
    assert "#SBATCH --time=01:30:00" == recommendation.suggestion
    assert "The longest task ran for 1 h; the time limit was 20 h." == recommendation.sentence


def test_run_time_of_a_running_task_counts() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], run_seconds=14400.0, time_ratio=0.2, state="RUNNING", end_seconds=None)
    # Four hours and a half of that.
    assert "#SBATCH --time=06:00:00" == recommend(rows).suggestion


def test_task_that_reached_the_time_limit_suppresses_less_time() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    # Its own limit of an hour was shorter than the 20 hours of the others.
    rows[0] = replace(rows[0], time_ratio=1.0, state="TIMEOUT")
    expected = ("1 of 10 tasks reached the time limit.", "")
    assert expected == (recommend(rows).sentence, recommend(rows).suggestion)


@pytest.mark.parametrize("cpu_ratio", [0.01, None])
def test_tasks_that_failed_at_once_are_no_examples(cpu_ratio: float | None) -> None:
    failed = {"state": "FAILED", "run_seconds": 2.0, "time_ratio": 2 / 86400, "memory_ratio": 0.001}
    rows = [replace(row, cpus=8, cpu_ratio=cpu_ratio, **failed) for row in make_rows()]  # type: ignore[arg-type]
    assert None is summarize(rows).recommendation


def test_tasks_that_completed_at_once_are_no_examples() -> None:
    rows = [replace(row, run_seconds=299.0, time_ratio=299 / 86400, memory_ratio=0.001) for row in make_rows()]
    assert None is summarize(rows).recommendation
    assert None is not summarize([replace(row, run_seconds=300.0) for row in rows]).recommendation


def test_fitting_array_and_unmeasured_array_get_no_recommendation() -> None:
    unknown = [replace(row, cpu_ratio=None, memory_ratio=None, time_ratio=None) for row in make_rows()]
    assert None is summarize(make_rows()).recommendation
    assert None is summarize(unknown).recommendation


def test_tasks_that_still_run_recommend_nothing() -> None:
    rows = [replace(row, state="RUNNING", end_seconds=None, cpus=8, cpu_ratio=0.1) for row in make_rows()]
    assert None is summarize(rows).recommendation


def test_whole_array_is_one_line() -> None:
    rows = [replace(row, core_seconds=3600.0, run_seconds=600.0 + 60 * index) for index, row in enumerate(make_rows(9))]
    rows.append(replace(rows[0], job_id=9, state="OUT_OF_MEMORY", cpu_ratio=None, core_seconds=1800.0))
    expected = "10 tasks: 9 completed, 1 out of memory; 9.5 core-hours; CPU use 98 %; median run time 13 min 30 s."
    assert expected == summarize(rows).sentence


def test_array_that_has_not_started_has_only_its_tasks() -> None:
    rows = [replace(row, state="PENDING", start_seconds=None, core_seconds=0.0, cpu_ratio=None) for row in make_rows(2)]
    assert "2 tasks: 2 pending." == summarize(rows).sentence


def test_every_task_that_did_not_complete_is_listed() -> None:
    states = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "RUNNING"]
    rows = [replace(row, state=state) for row, state in zip(make_rows(6), states, strict=True)]
    rows[-1] = replace(rows[-1], end_seconds=None)
    assert ["FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"] == [row.state for row in summarize(rows).incomplete]


def test_ended_run_of_a_task_that_is_pending_again_is_not_a_task() -> None:
    pending = PendingJob(
        20, "relax", "ada", "physics", ("cpu",), "", "PENDING", "Priority", 2000, array_job_id=1, tasks=(range(3, 6),)
    )  # fmt: skip
    ended, running = (replace(BASE, shown_id=f"1_{task}", state=state) for task, state in ((3, "NODE_FAIL"), (4, "R")))
    other, first_run = replace(BASE, shown_id="1_9"), replace(BASE, shown_id="1_9", state="PREEMPTED")
    running = replace(running, end_seconds=None)

    assert [running, other] == keep_newest_runs([ended, running, other, first_run], [pending])


def test_task_that_differs_in_two_numbers_is_one_outlier() -> None:
    rows = [replace(row, shown_id=f"1_{index}") for index, row in enumerate(make_rows(12))]
    rows[3] = replace(rows[3], run_seconds=90000.0, cpu_ratio=0.1)
    (outlier,) = summarize(rows).outliers
    assert "1_3" == outlier.row.shown_id
    assert outlier.why.startswith("Run time: 1 d 1 h")
    assert "; CPU use: 10 %" in outlier.why


def test_bar_links_to_its_tasks_unless_they_are_too_many() -> None:
    rows = [
        replace(row, shown_id=f"1_{index}", run_seconds=100.0 * (index + 1)) for index, row in enumerate(make_rows(24))
    ]
    first = summarize(rows).distributions[0].bars[0]
    assert (2, "1 min 40 s to 4 min 52 s", "?ids=1_0%2C1_1") == (first.count, first.span, first.query)
    many = [replace(row, shown_id=f"1_{index}") for index, row in enumerate(make_rows(201))]
    assert {""} == {bar.query for bar in summarize(many).distributions[0].bars}


def test_equal_numbers_are_one_bar_without_a_range() -> None:
    rows = [replace(row, cpu_ratio=0.61) for row in make_rows(5)]
    (cpu,) = (found for found in summarize(rows).distributions if found.label == "CPU use")

    assert [(5, "61 %")] == [(bar.count, bar.span) for bar in cpu.bars if bar.count]
    assert not any(" to " in bar.span for bar in cpu.bars)

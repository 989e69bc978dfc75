# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.model.archive import JobRow
from slurmscope.portal.views.array import Recommendation, make_array_view
from tests.fakes.archive import make_row
from tests.fakes.reports import GIB, make_record, make_report

BASE = make_row(make_report(make_record(1)))


def make_rows(count: int = 10, **changed: object) -> list[JobRow]:
    """Make tasks that use all of their four cores, their memory and their time."""
    fit = replace(BASE, cpu_ratio=0.98, memory_ratio=0.9, time_ratio=0.9, **changed)  # type: ignore[arg-type]
    return [replace(fit, job_id=index) for index in range(count)]


def test_spread_has_every_task_in_one_bin() -> None:
    rows = [replace(row, run_seconds=100.0 * (index + 1)) for index, row in enumerate(make_rows(24))]
    spread = make_array_view(rows).spreads[0]
    assert ("Run time", 24, (2,) * 12, 2) == (spread.label, spread.known, spread.bins, spread.tallest)
    assert ("1 min 40 s", "20 min 50 s", "40 min") == (spread.lowest, spread.median, spread.highest)


def test_number_that_nobody_knows_has_no_spread() -> None:
    assert "GPU use" not in [spread.label for spread in make_array_view(make_rows()).spreads]


def test_task_far_from_the_others_stands_out() -> None:
    rows = make_rows(10)
    rows[3] = replace(rows[3], run_seconds=90000.0)
    (outlier,) = make_array_view(rows).outliers
    assert (3, "Run time: 1 d 1 h, where the median is 2 h") == (outlier.row.job_id, outlier.why)


def test_few_tasks_have_no_outliers() -> None:
    rows = make_rows(5)
    rows[3] = replace(rows[3], run_seconds=90000.0)
    assert () == make_array_view(rows).outliers


def test_equal_tasks_have_no_outliers() -> None:
    rows = [replace(row, run_seconds=7200.0 + (index == 0)) for index, row in enumerate(make_rows(20))]
    assert () == make_array_view(rows).outliers


def recommend(rows: list[JobRow]) -> Recommendation:
    recommendation = make_array_view(rows).recommendation
    assert recommendation is not None
    return recommendation


def test_idle_cores_are_told_first_as_a_mean_and_without_a_number_to_ask_for() -> None:
    # 0.45 of 16 cores is 7.2. In a busy phase it may have been all of them.
    rows = [replace(row, cpus=16, cpu_ratio=0.45, memory_ratio=0.01) for row in make_rows()]
    recommendation = recommend(rows)
    sentence = "On average over its run, no task kept more than 7.2 of its 16 cores busy."
    assert (sentence, "") == (recommendation.sentence, recommendation.suggestion)
    assert "The report of a task tells how many were busy at once, and what to ask for." == recommendation.advice


@pytest.mark.parametrize(
    "changed",
    [{"cpu_ratio": 0.9}, {"cpu_ratio": 0.9, "state": "RUNNING"}, {"cpu_ratio": None}, {"gpus": 1}, {"nodes": 2}],
    ids=str,
)
def test_one_task_that_is_busy_or_not_known_or_of_another_kind_silences_idle_cores(changed: dict[str, object]) -> None:
    rows = [replace(row, cpus=8, cpu_ratio=0.13) for row in make_rows()]
    rows[0] = replace(rows[0], **changed)  # type: ignore[arg-type]
    assert None is make_array_view(rows).recommendation


def test_task_of_one_core_has_none_to_give_back() -> None:
    rows = [replace(row, cpus=1, cpu_ratio=0.4) for row in make_rows()]
    assert None is make_array_view(rows).recommendation


def test_idle_cores_of_tasks_with_gpus_are_not_told() -> None:
    rows = [replace(row, gpus=1, cpus=16, cpu_ratio=0.05) for row in make_rows()]
    assert None is make_array_view(rows).recommendation


def test_memory_is_what_the_largest_task_needed_and_a_fifth() -> None:
    rows = [replace(row, memory_bytes=100 * GIB, memory_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], memory_ratio=0.10)
    recommendation = recommend(rows)
    assert "#SBATCH --mem=12G" == recommendation.suggestion
    assert "No task needed more than 10 GiB of the 100 GiB that it asked for." == recommendation.sentence
    assert "With a fifth to spare, this is enough for 10 tasks that completed after 5 min or more:" == (
        recommendation.advice
    )


def test_task_that_failed_needed_at_least_what_it_had() -> None:
    rows = [replace(row, memory_bytes=100 * GIB, memory_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], memory_ratio=0.30, state="FAILED")
    # 30 GiB and a fifth.
    assert "#SBATCH --mem=36G" == recommend(rows).suggestion


def test_little_memory_is_told_in_mebibytes() -> None:
    rows = [replace(row, memory_bytes=8 * GIB, memory_ratio=0.125) for row in make_rows()]
    # 1024 MiB and a fifth is 1228.8.
    assert "#SBATCH --mem=1229M" == recommend(rows).suggestion


def test_memory_known_of_one_task_of_a_hundred_is_not_what_all_need() -> None:
    rows = [replace(row, memory_bytes=64 * GIB, memory_ratio=None) for row in make_rows(100)]
    rows[0] = replace(rows[0], memory_ratio=0.01)
    assert None is make_array_view(rows).recommendation


@pytest.mark.parametrize("changed", [{"state": "OUT_OF_MEMORY"}, {"state": "FAILED", "rules": ("oom_kill",)}], ids=str)
def test_task_that_ran_out_of_memory_is_told_and_nobody_gets_less(changed: dict[str, object]) -> None:
    rows = [replace(row, memory_bytes=64 * GIB, memory_ratio=0.3, rules=()) for row in make_rows()]
    assert "#SBATCH --mem=24G" == recommend(rows).suggestion
    rows[0] = replace(rows[0], **changed)  # type: ignore[arg-type]
    assert ("1 of 10 tasks ran out of memory.", "") == (recommend(rows).sentence, recommend(rows).suggestion)


def test_one_task_on_more_nodes_keeps_the_memory_for_all() -> None:
    rows = [replace(row, memory_bytes=64 * GIB, memory_ratio=0.3, rules=()) for row in make_rows()]
    assert None is make_array_view([replace(rows[0], nodes=2), *rows[1:]]).recommendation


def test_time_is_what_the_longest_task_took_and_a_fifth() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    recommendation = recommend(rows)
    assert "#SBATCH --time=01:12:00" == recommendation.suggestion
    assert "The longest task ran for 1 h, its limit was 20 h." == recommendation.sentence


def test_task_that_still_runs_needs_at_least_the_time_that_it_had() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], run_seconds=14400.0, time_ratio=0.2, state="RUNNING", end_seconds=None)
    # Four hours and a fifth are 288 minutes.
    assert "#SBATCH --time=04:48:00" == recommend(rows).suggestion


def test_task_that_ran_out_of_time_is_told_and_nobody_gets_less() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    # Its own limit of an hour was shorter than the 20 hours of the others.
    rows[0] = replace(rows[0], time_ratio=1.0, state="TIMEOUT")
    told = ("1 of 10 tasks were ended by their time limit.", "")
    assert told == (recommend(rows).sentence, recommend(rows).suggestion)


@pytest.mark.parametrize("cpu_ratio", [0.01, None])
def test_tasks_that_failed_at_once_are_no_examples(cpu_ratio: float | None) -> None:
    failed = {"state": "FAILED", "run_seconds": 2.0, "time_ratio": 2 / 86400, "memory_ratio": 0.001}
    rows = [replace(row, cpus=8, cpu_ratio=cpu_ratio, **failed) for row in make_rows()]  # type: ignore[arg-type]
    assert None is make_array_view(rows).recommendation


def test_tasks_that_completed_at_once_are_no_examples() -> None:
    rows = [replace(row, run_seconds=299.0, time_ratio=299 / 86400, memory_ratio=0.001) for row in make_rows()]
    assert None is make_array_view(rows).recommendation


def test_fitting_array_and_unmeasured_array_get_no_recommendation() -> None:
    unknown = [replace(row, cpu_ratio=None, memory_ratio=None, time_ratio=None) for row in make_rows()]
    assert None is make_array_view(make_rows()).recommendation
    assert None is make_array_view(unknown).recommendation


def test_tasks_that_still_run_recommend_nothing() -> None:
    rows = [replace(row, state="RUNNING", end_seconds=None, cpus=8, cpu_ratio=0.1) for row in make_rows()]
    assert None is make_array_view(rows).recommendation

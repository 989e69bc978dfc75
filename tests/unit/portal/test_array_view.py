# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from slurmscope.model.archive import JobRow
from slurmscope.portal.array_view import make_array_view
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


def test_cores_that_no_task_used_are_given_back_first() -> None:
    rows = [replace(row, cpus=8, cpu_ratio=0.13, memory_ratio=0.01) for row in make_rows()]
    recommendation = make_array_view(rows).recommendation
    assert recommendation is not None
    # 0.13 of 8 cores is 1.04: one core, and a little for those who help it.
    assert "#SBATCH --cpus-per-task=1" == recommendation.suggestion


def test_one_busy_task_keeps_the_cores_for_all() -> None:
    rows = [replace(row, cpus=8, cpu_ratio=0.13) for row in make_rows()]
    rows[0] = replace(rows[0], cpu_ratio=0.9)
    assert None is make_array_view(rows).recommendation


def test_memory_is_what_the_largest_task_needed_and_a_fifth() -> None:
    rows = [replace(row, memory_bytes=100 * GIB, memory_ratio=0.05) for row in make_rows()]
    rows[0] = replace(rows[0], memory_ratio=0.10)
    recommendation = make_array_view(rows).recommendation
    assert recommendation is not None
    assert "#SBATCH --mem=12G" == recommendation.suggestion


def test_little_memory_is_told_in_mebibytes() -> None:
    rows = [replace(row, memory_bytes=8 * GIB, memory_ratio=0.125) for row in make_rows()]
    recommendation = make_array_view(rows).recommendation
    assert recommendation is not None
    # 1024 MiB and a fifth is 1228.8.
    assert "#SBATCH --mem=1229M" == recommendation.suggestion


def test_time_is_what_the_longest_task_took_and_a_fifth() -> None:
    rows = [replace(row, run_seconds=3600.0, time_ratio=0.05) for row in make_rows()]
    recommendation = make_array_view(rows).recommendation
    assert recommendation is not None
    assert "#SBATCH --time=01:12:00" == recommendation.suggestion


def test_fitting_array_and_unmeasured_array_get_no_recommendation() -> None:
    unknown = [replace(row, cpu_ratio=None, memory_ratio=None, time_ratio=None) for row in make_rows()]
    assert None is make_array_view(make_rows()).recommendation
    assert None is make_array_view(unknown).recommendation


def test_tasks_that_still_run_recommend_nothing() -> None:
    rows = [replace(row, end_seconds=None, cpus=8, cpu_ratio=0.1) for row in make_rows()]
    assert None is make_array_view(rows).recommendation

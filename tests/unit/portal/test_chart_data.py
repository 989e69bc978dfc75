# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slurmscope.jobs.charts import fold_lines
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.portal.charts import encode_charts, make_data_table
from slurmscope.portal.compare import overlay_charts
from tests.fakes.reports import make_chart, make_record, make_report


def make_job(
    job_id: int, start: int, values: tuple[float | None, ...], unit: str = "cores", lines: int = 1
) -> JobReport:
    """Make a job with one chart, with a point every ten seconds."""
    times = tuple(float(start + 10 * index) for index in range(len(values)))
    each = (ChartLine(label="n1", values=values),)
    chart = Chart(name="cpu", title="CPU", unit="cores", subject=Subject.CPU, times=times, lines=each, reference=4.0)
    return make_report(make_record(job_id, start_seconds=start), charts=(chart,))


def test_table_has_the_first_and_the_last_point() -> None:
    table = make_data_table(make_chart())
    assert 20 == len(table.rows)
    assert ("2026-09-21 14:13:20 UTC", "2") == table.rows[0]
    assert "2026-09-21 16:13:20 UTC" == table.rows[-1][0]


def test_short_chart_is_complete_and_its_gap_is_not_measured() -> None:
    (chart,) = make_job(1, 0, (1.0, None, 3.0)).charts
    rows = make_data_table(chart, is_run_time=True).rows
    assert (("0 s", "1"), ("10 s", "not measured"), ("20 s", "3")) == rows


def test_charts_are_overlaid_from_the_start_of_each_job() -> None:
    (chart,) = overlay_charts([make_job(1, 1000, (1.0,) * 11), make_job(2, 5000, (2.0,) * 6)])
    long, short = chart.lines
    assert (0.0, 100.0) == (chart.times[0], chart.times[-1])
    assert ("job 1", "job 2") == (long.label, short.label)
    assert {1.0} == set(long.values)
    assert 2.0 == short.values[0]
    assert None is short.values[-1]
    assert None is chart.reference


def overlaid(name: str, **lines: float) -> float | None:
    """Return the first value of a job with one chart of these lines."""
    report = make_job(1, 0, (1.0, 1.0))
    made = tuple(ChartLine(label=label.replace("_", " "), values=(value, value)) for label, value in lines.items())
    chart = replace(report.charts[0], name=name, lines=made)
    return overlay_charts([replace(report, charts=(chart,))])[0].lines[0].values[0]


def test_job_on_some_nodes_is_their_median() -> None:
    assert 3.0 == overlaid("cpu", n1=1.0, n2=3.0, n3=10.0)


def test_job_on_many_nodes_uses_its_median_line() -> None:
    assert 2.5 == overlaid("cpu", lowest_of_64=0.0, median_of_64=2.5, highest_of_64=4.0)


def test_user_and_system_time_are_added_up() -> None:
    assert 3.5 == overlaid("cpu_split", user=3.0, system=0.5)


def test_gap_stays_a_gap() -> None:
    (chart,) = overlay_charts([make_job(1, 0, (1.0, None, None, None, None, None, 1.0))])
    middle = chart.lines[0].values[len(chart.times) // 2]
    assert None is middle


def test_cores_of_different_jobs_are_not_compared() -> None:
    report = make_job(1, 0, (1.0, 1.0))
    cores = replace(report.charts[0], name="cpu_core")
    assert ["cpu"] == [chart.name for chart in overlay_charts([replace(report, charts=(cores, *report.charts))])]


def test_title_names_the_median_node() -> None:
    one, many = make_job(1, 0, (1.0, 1.0)), make_job(2, 0, (1.0, 1.0))
    many = replace(many, summary=replace(many.summary, record=replace(many.record, node_count=8)))
    assert ["CPU", "CPU, median node"] == [overlay_charts(jobs)[0].title for jobs in ([one], [one, many])]


def test_jobs_without_charts_have_no_overlay() -> None:
    empty = replace(make_chart(), times=(), lines=())
    assert () == overlay_charts([make_report(charts=(empty,)), make_report(charts=())])


def test_chart_of_one_point_can_be_overlaid() -> None:
    (chart,) = overlay_charts([make_job(1, 0, (1.0,))])
    assert 1.0 == chart.lines[0].values[0]


def test_values_for_the_script_have_five_digits() -> None:
    chart = replace(
        make_chart(), times=(1.0, 2.0, 3.0), lines=(ChartLine(label="n1", values=(1 / 3, None, 123456789.0)),)
    )
    (made,) = json.loads(encode_charts([chart]))["charts"]
    assert [0.33333, None, 123460000.0] == made["lines"][0]["values"]


@pytest.mark.parametrize("name", ["filesystem_read", "filesystem_metadata", "traced_cpu", "traced_read"])
def test_parts_of_a_job_are_added_up(name: str) -> None:
    # 1 GB/s to one file system and nothing to another is 1 GB/s, not the half of it.
    assert 1e9 == overlaid(name, home=0.0, scratch=1e9)


def test_parts_that_are_too_many_to_be_kept_have_no_sum() -> None:
    report = make_job(1, 0, (1.0, 1.0))
    folded = fold_lines([ChartLine(label=f"process {number}", values=(1.0, 1.0)) for number in range(20)])
    chart = replace(report.charts[0], name="traced_cpu", lines=folded)
    assert () == overlay_charts([replace(report, charts=(chart,))])


def test_what_was_traced_is_not_mixed_with_what_was_measured() -> None:
    assert 2.0 == overlaid("traced_cpu_node", traced_processes=2.0, whole_job=6.0)

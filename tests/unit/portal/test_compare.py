# SPDX-License-Identifier: Apache-2.0
"""The page that compares jobs shows those that the viewer may see, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.charts import TRACED
from slurmscope.jobs.report import Chart, ChartLine
from slurmscope.jobs.rule import Subject
from slurmscope.portal.compare import _merge_lines, overlay_charts
from tests.fakes.browser import Page, open_portal
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import make_record, make_report


def test_comparison_shows_numbers_and_charts(backend: FakeBackend) -> None:
    browser = open_portal(backend, "sue")
    page = Page(browser.get("/compare?job=4711&job=4712").text)
    assert "Job 4711" in page.text
    assert "Job 4712" in page.text
    charts = browser.get("/compare/charts.json?job=4711&job=4712").json()["charts"]
    assert ["job 4711", "job 4712"] == [line["label"] for line in charts[0]["lines"]]
    assert 0.0 == charts[0]["times"][0]
    assert 200 == browser.get("/compare/charts/cpu.svg?job=4711&job=4712").status_code
    assert 404 == browser.get("/compare/charts/none.svg?job=4711").status_code


def test_job_has_one_place_in_all_charts_also_where_it_was_not_measured() -> None:
    plain, other = make_report(make_record(1)), make_report(make_record(2))
    other = replace(other, charts=(*other.charts, replace(other.charts[0], name="gpu_busy")))
    (chart,) = (chart for chart in overlay_charts([plain, other]) if chart.name == "gpu_busy")
    assert ["job 1", "job 2"] == [line.label for line in chart.lines]
    first, second = (set(line.values) for line in chart.lines)
    assert {None} == first
    assert {None} != second


def test_comparison_accepts_jobs_in_one_field(backend: FakeBackend) -> None:
    assert "Job 4800_1" in Page(open_portal(backend, "ada").get("/compare?job=4711,%204800_1").text).text


def test_comparison_with_an_inaccessible_job_is_absent(backend: FakeBackend) -> None:
    browser = open_portal(backend, "ada")
    for path in ("/compare", "/compare/charts.json", "/compare/charts/cpu.svg"):
        inaccessible, absent = browser.get(f"{path}?job=4711&job=4712"), browser.get(f"{path}?job=4711&job=9")
        assert (404, absent.content) == (inaccessible.status_code, inaccessible.content)


def test_comparison_is_limited(backend: FakeBackend) -> None:
    jobs = "&".join(f"job=4800_{task}" for task in range(7))
    assert 400 == open_portal(backend, "ada").get(f"/compare?{jobs}").status_code


def test_comparison_is_available_as_a_file(backend: FakeBackend) -> None:
    lines = open_portal(backend, "ada").get("/compare?job=4711&job=4720&format=csv").text.splitlines()
    assert "what,job 4711,job 4720" == lines[0]


def test_comparison_without_jobs_shows_the_form(backend: FakeBackend) -> None:
    assert "Job IDs, at most six" in Page(open_portal(backend, "ada").get("/compare").text).text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("filesystem_read", 1e9),
        ("traced_write", 1e9),
        ("cpu_split", 1e9),
        # A line for each node: the median one.
        ("read", 5e8),
        # Traced processes beside the whole job.
        ("traced_cpu_node", 1e9),
    ],
)
def test_parts_of_a_job_are_added_up_and_nodes_are_not(name: str, expected: float) -> None:
    lines = (ChartLine(label=TRACED, values=(1e9,)), ChartLine(label="b", values=(0.0,)))
    chart = Chart(name=name, title="", unit="bytes/s", subject=Subject.FILES, times=(0.0,), lines=lines)

    assert [expected] == list(_merge_lines(chart))

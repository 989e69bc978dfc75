# SPDX-License-Identifier: Apache-2.0
"""A histogram counts the jobs that the viewer sees, and each class links to its jobs."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta

import pytest

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.metric_ranges import JobHistogram, JobMetric
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.report import JobReport
from slurmscope.portal.histogram import make_histogram_view
from slurmscope.portal.queries import render_day
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, make_backend
from tests.fakes.reports import START, make_record, make_report

OLD_JOB = 90_000


@pytest.fixture
def backend() -> FakeBackend:
    return make_backend()


def make_old_report(number: int, *, days: int, cpus: int = 4) -> JobReport:
    start = START - days * DAY_SECONDS
    times = {"submit_seconds": start, "start_seconds": start, "end_seconds": start + 7200}
    return make_report(make_record(OLD_JOB + number, cpus=cpus, **times))


def read_jobs(browser: PortalClient, address: str) -> list[dict[str, str]]:
    separator = "&" if "?" in address else "?"
    return list(csv.DictReader(io.StringIO(browser.get(f"{address}{separator}format=csv").text)))


@pytest.mark.parametrize(
    "query", ["", "&partition=batch", "&cpu_min=1", "&cores_max=4&since=2026-01-01", "&until=2026-08-01", "&user=none"]
)
def test_each_class_counts_the_jobs_of_its_link(backend: FakeBackend, query: str) -> None:
    backend.archive.save([make_old_report(number, days=60 + number, cpus=1 + number) for number in range(5)])
    browser = PortalClient(backend.make_app(), "sue")
    page = Page(browser.get(f"/histogram?metric=cores{query}").text)
    _, all_jobs, *classes = (link for link in page.links if link.startswith("/jobs"))

    counted = [int(row["jobs"]) for row in read_jobs(browser, f"/histogram?metric=cores{query}")]
    listed = [len(read_jobs(browser, link)) for link in classes]

    assert [count for count in counted if count] == listed
    assert len(read_jobs(browser, all_jobs)) == sum(counted)
    api = browser.get(f"/api/v2/histogram?metric=cores{query}").json()
    assert counted == [each["jobs"] for each in api["classes"]]


def test_page_and_api_name_the_day_since_which_jobs_were_submitted(backend: FakeBackend) -> None:
    backend.archive.save([make_old_report(0, days=60)])
    browser = PortalClient(backend.make_app(), "sue")

    def read(query: str) -> tuple[str, int]:
        (day,) = re.findall("submitted since ([0-9-]+)", browser.get(f"/histogram?{query}").text)
        return day, browser.get(f"/api/v2/histogram?{query}").json()["since_seconds"]

    old = START - 60 * DAY_SECONDS
    assert (render_day(old), old) == read("")
    day, since = read("cores_min=1")
    assert str(datetime.fromtimestamp(backend.clock(), UTC).date() - timedelta(days=29)) == day
    assert since > START - 30 * DAY_SECONDS
    assert "submitted since" not in browser.get("/histogram?user=none").text


def test_class_of_the_newest_jobs_links_to_their_days() -> None:
    counts = tuple(range(len(JobMetric.CPU.edges) + 1))
    histogram = JobHistogram(metric=JobMetric.CPU, counts=counts, unknown=0, is_cut=True, since_seconds=START)

    view = make_histogram_view(histogram, JobFilter(since_seconds=START - 365 * DAY_SECONDS))

    assert f"?since={render_day(START)}&cpu_max=10" == view.bars[0].query


def test_viewer_counts_what_the_viewer_sees(backend: FakeBackend) -> None:
    def count(name: str) -> int:
        rows = read_jobs(PortalClient(backend.make_app(), name), "/histogram?metric=cores")
        return sum(int(row["jobs"]) for row in rows)

    assert 0 == count("eve") < count("ada") < count("sue")


def test_other_metrics_are_rejected(backend: FakeBackend) -> None:
    assert 400 == PortalClient(backend.make_app(), "ada").get("/histogram?metric=user").status_code


def test_range_narrows_the_list_and_stays_in_the_form(backend: FakeBackend) -> None:
    browser = PortalClient(backend.make_app(), "sue")
    low = read_jobs(browser, "/jobs?cpu_max=60&since=2026-01-01")
    page = browser.get("/jobs?cpu_max=60&since=2026-01-01").text

    assert low
    assert all(float(row["cpu_ratio"]) < 0.6 for row in low)
    assert 'name="cpu_max" maxlength="40" value="60"' in page
    assert 400 == browser.get("/jobs?cpu_max=sixty").status_code


def test_range_until_a_day_searches_the_30_days_before_it(backend: FakeBackend) -> None:
    backend.archive.save([make_old_report(number, days=60 + number) for number in range(40)])
    browser = PortalClient(backend.make_app(), "sue")
    last = datetime.fromtimestamp(START - 65 * DAY_SECONDS, UTC).date()
    query = f"cores_min=1&until={last}"

    listed = read_jobs(browser, f"/jobs?{query}")
    page = browser.get(f"/jobs?{query}").text
    api = browser.get(f"/api/v2/jobs?{query}&limit=500").json()["jobs"]

    expected = [str(OLD_JOB + number) for number in range(5, 35)]
    assert expected == [row["job_id"] for row in listed] == [str(job["job_id"]) for job in api]
    assert f'name="since" value="{last - timedelta(days=29)}"' in page
    # With a later day, the last 30 days are searched, as without one.
    assert read_jobs(browser, "/jobs?cores_min=1") == read_jobs(browser, "/jobs?cores_min=1&until=2099-12-31")

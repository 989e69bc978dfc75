# SPDX-License-Identifier: Apache-2.0
"""A histogram counts the jobs that the viewer sees, and each class links to its jobs."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest

from slurmscope.model.report import JobReport
from slurmscope.units import DAY_SECONDS
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, make_backend
from tests.fakes.reports import START, make_record, make_report

OLD_JOB = 90_000


@pytest.fixture
def backend() -> FakeBackend:
    return make_backend()


def make_old_report(number: int, *, days: int) -> JobReport:
    start = START - days * DAY_SECONDS
    return make_report(
        make_record(OLD_JOB + number, submit_seconds=start, start_seconds=start, end_seconds=start + 7200)
    )


def read_jobs(browser: PortalClient, address: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(browser.get(f"{address}&format=csv").text)))


def test_classes_add_up_to_the_list_and_link_to_it(backend: FakeBackend) -> None:
    browser = PortalClient(backend.make_app(), "sue")
    page = Page(browser.get("/histogram?metric=cpu&partition=batch").text)
    listed = read_jobs(browser, "/jobs?partition=batch&since=2026-01-01")
    classes = [link for link in page.links if link.startswith("/jobs?") and "cpu_m" in link]

    counted = [len(read_jobs(browser, f"{link}&since=2026-01-01")) for link in classes]

    known = [row for row in listed if row["cpu_ratio"]]
    assert len(known) == sum(counted) > 0
    assert all(counted)
    table = read_jobs(browser, "/histogram?metric=cpu&partition=batch")
    assert len(known) == sum(int(row["jobs"]) for row in table)


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

# SPDX-License-Identifier: Apache-2.0
"""Find out in a real browser why a job is pending."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.demo_jobs import DemoJobs
from tests.browser.watching import PATIENCE_MILLISECONDS, Watched

expect.set_options(timeout=PATIENCE_MILLISECONDS)


def test_pending_job_is_found_with_the_filter_and_explained(window: Watched) -> None:
    page = window.open("/jobs")
    window.open_filter()
    page.get_by_label("State").select_option("PENDING")
    page.get_by_role("button", name="Filter").click()
    rows = page.locator("table.jobs tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("pending")
    window.shoot("pending-list")
    rows.first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="Why it is pending")).to_be_visible()
    expect(page.locator(".gauge")).to_have_count(0)


def test_page_of_a_pending_job_has_position_and_priority_and_updates_itself(window: Watched, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.pending}")
    expect(page.get_by_text("Expected start:")).to_be_visible()
    expect(page.get_by_role("heading", name="Position in the queue")).to_be_visible()
    expect(page.get_by_role("rowheader", name="fairshare").first).to_be_visible()
    window.shoot("pending-job")
    with page.expect_response(lambda response: response.url.endswith(f"/jobs/{jobs.pending}/waiting")) as update:
        page.evaluate("htmx.ajax('GET', location.pathname + '/waiting', {target: '#waiting', swap: 'outerHTML'})")
    assert 200 == update.value.status
    expect(page.locator("#waiting")).to_have_count(1)
    expect(page.get_by_role("heading", name="Why it is pending")).to_be_visible()


def test_cluster_page_shows_queue_and_waiting_times(window: Watched) -> None:
    page = window.open("/cluster")
    expect(page.get_by_role("heading", name="Pending jobs by partition and reason")).to_be_visible()
    expect(page.get_by_role("heading", name="Waiting times")).to_be_visible()
    page.get_by_label("Partition", exact=True).select_option(index=1)
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("partition="))
    window.shoot("cluster-waiting-times")

# SPDX-License-Identifier: Apache-2.0
"""A job ID of two clusters offers a choice, the chosen job is shown whole, and lists are filtered by cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.watching import NARROW, watching
from tests.fakes.archive_backend import open_archive_backend
from tests.fakes.asgi import running
from tests.fakes.portal_backend import USER_HEADER
from tests.fakes.two_clusters import make_two_clusters

ADA = {USER_HEADER: "ada"}


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        open_archive_backend(tmp_path_factory.mktemp("clusters"), make_two_clusters()) as backend,
        running(backend.make_app(), backend.fake.settings) as listener,
    ):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_chosen_job_is_shown_with_its_charts(browser: Browser, portal: str) -> None:
    with watching(browser, portal, extra_http_headers=ADA) as window:
        page = window.open("/jobs/4711")
        expect(page.get_by_role("heading", name="Job 4711")).to_be_visible()
        assert [] == window.find_barriers()
        page.get_by_role("link", name="beta", exact=True).click()
        expect(page.get_by_role("heading", name="on-beta")).to_be_visible()
        assert f"{portal}/jobs/beta/4711" == page.url
        expect(page.locator(".plot canvas").first).to_be_visible()


def test_list_is_filtered_by_cluster(browser: Browser, portal: str) -> None:
    with watching(browser, portal, extra_http_headers=ADA) as window:
        page = window.open("/jobs")
        expect(page.get_by_role("columnheader", name="Cluster")).to_be_visible()
        window.open_filter()
        page.get_by_label("Cluster", exact=True).select_option("beta")
        page.get_by_role("button", name="Filter").click()
        expect(page.get_by_label("Cluster", exact=True)).to_have_value("beta")
        assert {"beta"} == set(page.locator("table.jobs .cell-cluster").all_inner_texts())
        assert 0 == page.locator('a[href^="/jobs/alpha/"]').count()
        assert [] == window.find_barriers()


def test_pages_fit_into_a_narrow_window(browser: Browser, portal: str) -> None:
    with watching(browser, portal, extra_http_headers=ADA, viewport=NARROW) as window:
        for path in ("/jobs/4711", "/jobs", "/nodes/n1", "/arrays/4800"):
            window.open(path)
            assert not window.is_wider_than_its_window()

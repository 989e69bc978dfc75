# SPDX-License-Identifier: Apache-2.0
"""Charts of the cluster are drawn in a real browser."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.watching import PATIENCE_MILLISECONDS, watching
from tests.fakes.asgi import running
from tests.fakes.portal_backend import USER_HEADER, make_backend

expect.set_options(timeout=PATIENCE_MILLISECONDS)


def test_cluster_page_draws_the_last_24_hours(browser: Browser) -> None:
    backend = make_backend()
    (chart,) = backend.charts
    with running(backend.make_app(), backend.settings) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with watching(browser, base, extra_http_headers={USER_HEADER: "ada"}) as window:
            page = window.open("/cluster")
            expect(page.locator(f'[data-chart="{chart.name}"] canvas')).to_be_visible()
            legend = page.locator(f"#chart-{chart.name} .chart-lines")
            for line in chart.lines:
                expect(legend).to_contain_text(line.label)
            assert [] == window.find_barriers()
            window.shoot("cluster-day")

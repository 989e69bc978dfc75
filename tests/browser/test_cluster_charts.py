# SPDX-License-Identifier: Apache-2.0
"""The last day of the cluster is drawn in a real browser."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from slurmscope.portal.app import make_app
from tests.browser.watching import PATIENCE_MILLISECONDS, watching
from tests.fakes.asgi import running
from tests.fakes.portal_desk import WHO, make_desk

expect.set_options(timeout=PATIENCE_MILLISECONDS)


def test_cluster_page_draws_the_last_day(browser: Browser) -> None:
    desk = make_desk()
    (chart,) = desk.cluster_charts()
    with running(make_app(desk), desk.settings) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with watching(browser, base, extra_http_headers={WHO: "ada"}) as window:
            page = window.open("/cluster")
            expect(page.locator(f'[data-chart="{chart.name}"] canvas')).to_be_visible()
            legend = page.locator(f'[data-chart="{chart.name}"] .u-legend')
            for line in chart.lines:
                expect(legend).to_contain_text(line.label)
            assert [] == window.find_barriers()
            window.shoot("cluster-day")

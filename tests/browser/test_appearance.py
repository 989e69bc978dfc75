# SPDX-License-Identifier: Apache-2.0
"""Check every page in light and dark, wide and narrow, without scripts, and with the keyboard alone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.demo_jobs import DemoJobs, list_jobs
from tests.browser.watching import NARROW, PATIENCE_MILLISECONDS, watching
from tests.fakes.portal_backend import make_backend

expect.set_options(timeout=PATIENCE_MILLISECONDS)

PAGES = {
    "/": "/",
    "/jobs": "/jobs?worst=critical",
    "/jobs/{shown_id}": "/jobs/{running}",
    "/jobs/{shown_id}/script": "/jobs/{wasteful}/script",
    "/arrays/{array_id}": "/arrays/{array}",
    "/nodes": "/nodes",
    "/nodes/{name}": "/nodes/{node}",
    "/users/{name:path}": "/users/{user}",
    "/accounts/{name:path}": "/accounts/{account}",
    "/cluster": "/cluster",
    "/waste": "/waste",
    "/jobs/{shown_id}/zoom": "/jobs/{wasteful}/zoom",
    "/savings": "/savings",
    "/hours": "/hours",
    "/suspects": "/suspects",
    "/tags": "/tags",
    "/histogram": "/histogram?metric=cpu",
    "/filesystems": "/filesystems",
    "/compare": "/compare?job={wasteful}&job={gpu}",
    "/help": "/help",
    "/api": "/api",
}
"""An address for each route that shows a page."""
REDIRECTS = {"/d/slurmscope/job"}
"""Routes that only lead to the page of a job."""
MORE = (
    "/jobs/{pending}",
    "/jobs?state=PENDING",
    "/jobs/{wasteful}",
    "/jobs/{gpu}",
    "/jobs/{gpu}?tab=nodes",
    "/jobs/{wasteful}?tab=charts",
    "/jobs/{wasteful}?tab=record",
    "/jobs/{wasteful}?tab=what-if",
    "/jobs/{running}?tab=io",
    "/compare",
    "/jobs?name=nothing-has-this-name",
)

STYLES: dict[str, dict[str, object]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": NARROW, "has_touch": True},
}


def fill(address: str, jobs: DemoJobs) -> str:
    names = {name: quote(getattr(jobs, name), safe="") for name in DemoJobs.__slots__}
    return address.format(**names)


def luminance(page: Page) -> float:
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", color)[:3]) / 3


def test_every_route_that_shows_a_page_is_checked() -> None:
    names = {
        getattr(route, "path", "")
        for part in make_backend().make_app().routes
        for route in (part, *getattr(getattr(part, "original_router", None), "routes", ()))
        if getattr(route, "name", "").startswith("show_")
    }
    assert set(PAGES) == names - REDIRECTS


@pytest.mark.parametrize("address", [*PAGES.values(), *MORE])
@pytest.mark.parametrize("style", STYLES)
def test_page_is_accessible(browser: Browser, demo: str, jobs: DemoJobs, address: str, style: str) -> None:
    with watching(browser, demo, **STYLES[style]) as window:
        page = window.open(fill(address, jobs))
        assert [] == window.find_barriers()
        assert [] == window.find_shared_names()
        assert not window.is_wider_than_its_window()
        assert ("dark" == style) == (luminance(page) < 128)
        window.shoot(f"{re.sub('[^a-z]+', '-', address).strip('-') or 'first'}-{style}")


# Tables of the points of a chart are folded, and as wide as there are jobs on a node.
_CUT = """all => all.filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.getAttribute("aria-label"))"""


@pytest.mark.parametrize(
    "address",
    ["/", "/jobs", "/jobs?worst=critical", "/nodes", "/nodes/{node}", "/users/{user}", "/jobs/{gpu}", "/savings"],
)
def test_no_table_is_cut_at_1280_pixels(browser: Browser, demo: str, jobs: DemoJobs, address: str) -> None:
    with watching(browser, demo) as window:
        assert [] == window.open(fill(address, jobs)).locator(".scroll").evaluate_all(_CUT)


@pytest.mark.parametrize("address", ["/compare?job={wasteful}&job={other_wasteful}", "/nodes/gpu01"])
def test_no_table_is_cut_on_a_phone(browser: Browser, demo: str, jobs: DemoJobs, address: str) -> None:
    with watching(browser, demo, viewport=NARROW, has_touch=True) as window:
        assert [] == window.open(fill(address, jobs)).locator(".scroll").evaluate_all(_CUT)


def test_current_page_is_visible_in_the_menu_of_a_phone(browser: Browser, demo: str) -> None:
    with watching(browser, demo, viewport=NARROW, has_touch=True) as window:
        page = window.open("/compare")
        expect(page.locator(".top nav [aria-current]")).to_be_in_viewport()


def test_printed_page_has_no_controls_and_no_notes_of_staff(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    with watching(browser, demo) as window:
        page = window.open(f"/jobs/{jobs.wasteful}")
        expect(page.locator(".staff")).to_be_visible()
        page.emulate_media(media="print")
        expect(page.locator("#findings")).to_be_visible()
        shown = page.locator("button, input, textarea, .tabs, .staff, .chart summary")
        assert [] == shown.evaluate_all("all => all.filter((one) => one.checkVisibility()).map((one) => one.outerHTML)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_error_page_is_accessible(browser: Browser, demo: str, scheme: str) -> None:
    with watching(browser, demo, color_scheme=scheme) as window:
        page = window.open("/jobs/1")
        expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
        assert [] == window.find_barriers()
        window.shoot(f"error-{scheme}")
        # The browser logs to the console that the page was not found.
        assert 1 == len(window.errors)
        window.errors.clear()


@pytest.mark.parametrize("address", PAGES.values())
def test_page_is_complete_without_scripts(browser: Browser, demo: str, jobs: DemoJobs, address: str) -> None:
    # The demo archives its history meanwhile: a heading may be there with the second page only, but not every time.
    for _ in range(5):
        with watching(browser, demo) as window:
            wanted = read_all(window.open(fill(address, jobs)))
        with watching(browser, demo, java_script_enabled=False) as window:
            shown = read_all(window.open(fill(address, jobs)))
        if wanted == shown:
            break
    assert wanted == shown


def read_all(page: Page) -> list[str]:
    """Return headings and captions, which do not contain changing numbers."""
    return page.locator("h1, h2, figcaption, main caption").all_inner_texts()


def test_charts_are_images_without_scripts(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    with watching(browser, demo, java_script_enabled=False) as window:
        images: list[int] = []
        window.page.on("response", lambda response: images.append(response.status) if ".svg?" in response.url else None)
        page = window.open(f"/jobs/{jobs.wasteful}")
        charts = page.locator("figure.chart")
        for index in range(charts.count()):
            charts.nth(index).scroll_into_view_if_needed()
            expect(charts.nth(index).locator("img")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert {200} == set(images)
        charts.first.locator("summary").click()
        expect(charts.first.locator("details table")).to_be_visible()
        window.shoot("job-without-scripts")


def test_list_is_filtered_and_searched_without_scripts(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    with watching(browser, demo, java_script_enabled=False) as window:
        page = window.open("/jobs")
        window.open_filter()
        page.get_by_label("Worst finding").select_option("critical")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url(re.compile("worst=critical"))
        found = page.locator("table.jobs .severity").all_inner_texts()
        assert found
        assert all(text.startswith("critical:") for text in found)
        page.get_by_role("searchbox").fill(jobs.wasteful)
        page.get_by_role("button", name="Search").click()
        page.wait_for_url(f"{demo}/jobs/{jobs.wasteful}")


def tab_until(page: Page, selector: str, limit: int = 150) -> None:
    for _ in range(limit):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached with the tab key")


def test_skip_link_leads_to_the_content(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    with watching(browser, demo) as window:
        page = window.open(f"/jobs/{jobs.wasteful}")
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to content")
        expect(page.locator(":focus")).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_chart_is_read_and_zoomed_out_with_the_keyboard(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    with watching(browser, demo) as window:
        page = window.open(f"/jobs/{jobs.wasteful}#from=1&to=99999999999")
        expect(page.get_by_role("button", name="Whole run")).to_be_visible()
        tab_until(page, '[data-chart="cpu"]')
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Whole run")).to_be_hidden()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        for chart in ("cpu", "memory"):
            expect(page.locator(f"#chart-{chart} .chart-time")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
        window.shoot("job-keyboard")


_SHIFTS = """window.shifts = []; new PerformanceObserver((list) => list.getEntries().forEach((entry) =>
    window.shifts.push(entry.value))).observe({type: "layout-shift"});"""


@pytest.mark.parametrize("style", ["light", "narrow"])
def test_pointing_at_a_chart_does_not_move_the_page(browser: Browser, demo: str, style: str) -> None:
    """A job on many nodes has legends with many values, which are empty until someone points at the chart."""
    ended = [job for job in list_jobs(demo, "state=COMPLETED&limit=500") if job["cpu_ratio"] is not None]
    largest = max(ended, key=lambda job: job["nodes"])
    with watching(browser, demo, **STYLES[style]) as window:
        page = window.open(f"/jobs/{largest['shown_id']}")
        value = page.locator("#chart-cpu .chart-value").first
        expect(value).to_have_text("")
        page.locator('[data-chart="cpu"] .u-over').scroll_into_view_if_needed()
        area = page.locator('[data-chart="cpu"] .u-over').bounding_box()
        assert area
        page.evaluate(_SHIFTS)
        heights = {page.evaluate("document.documentElement.scrollHeight")}
        for share in (0.1, 0.35, 0.6, 0.9):
            page.mouse.move(area["x"] + share * area["width"], area["y"] + area["height"] / 2)
            expect(value).to_have_text(re.compile(r"\d|–"))
            heights.add(page.evaluate("document.documentElement.scrollHeight"))
        page.mouse.move(1, 1)
        expect(value).to_have_text("")
        expect(page.locator("#chart-cpu .chart-time")).to_have_text("")
        heights.add(page.evaluate("document.documentElement.scrollHeight"))

        assert 1 == len(heights)
        assert [] == page.evaluate("window.shifts")


def test_times_are_in_the_zone_of_the_browser_with_a_switch(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    # Nine hours ahead of UTC all year.
    with watching(browser, demo, timezone_id="Asia/Tokyo") as window:
        page = window.open(f"/jobs/{jobs.wasteful}?tab=record")
        shown = page.locator("dl.facts time").first
        moment = datetime.fromisoformat(shown.get_attribute("datetime") or "")
        there = moment.astimezone(timezone(timedelta(hours=9)))
        expect(shown).to_contain_text(f"{there:%Y-%m-%d %H:%M:%S}")
        expect(page.locator("footer")).to_contain_text("Asia/Tokyo")
        page.get_by_role("button", name="Show times in UTC").click()
        expect(shown).to_have_text(f"{moment:%Y-%m-%d %H:%M:%S} UTC")
        page.reload()
        expect(page.locator("dl.facts time").first).to_have_text(f"{moment:%Y-%m-%d %H:%M:%S} UTC")
        window.shoot("job-time-zone")


def test_first_job_of_a_list_is_reached_and_opened_with_the_keyboard(browser: Browser, demo: str) -> None:
    with watching(browser, demo) as window:
        page = window.open("/jobs?worst=critical")
        tab_until(page, "table.jobs tbody th a")
        number = page.locator(":focus").inner_text()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(f"/jobs/{number}$"))


def cause_errors(browser: Browser, base: str) -> None:
    with watching(browser, base) as window:
        window.open("/help")
        window.page.evaluate("console.error('message'); fetch('http://evil.invalid/').catch(() => 0)")
        window.page.wait_for_timeout(200)


def test_errors_in_a_window_fail_the_test(browser: Browser, demo: str) -> None:
    with pytest.raises(AssertionError, match=r"(?s)message.*policy violated: connect-src http://evil.invalid/"):
        cause_errors(browser, demo)

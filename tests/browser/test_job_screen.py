# SPDX-License-Identifier: Apache-2.0
"""The first screen of a job answers what happened, what to type and how well it was used, and nothing on it moves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.demo_jobs import list_jobs
from tests.browser.watching import NARROW, PATIENCE_MILLISECONDS, WIDE, screenshot_folder, watching
from tests.processes import until

expect.set_options(timeout=PATIENCE_MILLISECONDS)

KINDS = ("completed", "wasteful", "oom", "timeout", "gpu", "running", "array")
SIZES = {"wide": (WIDE, 900), "phone": (NARROW, 1600)}
PARTS = {"verdict": ".verdict", "gauges": ".gauges", "first chart": "figure.chart:first-child"}
MAX_HEADER = 80
_BOTTOM = "element => Math.round(element.getBoundingClientRect().bottom + scrollY)"
_WATCH_SHIFTS = """window.shifts = []; new PerformanceObserver((list) => list.getEntries().forEach((entry) =>
    window.shifts.push([entry.value, ...entry.sources.map((source) => source.node?.outerHTML?.slice(0, 80))])))
    .observe({type: "layout-shift", buffered: true});"""


@pytest.fixture(scope="module")
def kinds(demo: str) -> dict[str, str]:
    """Return one job of each kind, the largest where sizes differ."""
    found: dict[str, str] = {}

    def find() -> bool:
        found.update(find_kinds(demo))
        return set(KINDS) <= set(found)

    until(find, 120)
    return found


def find_kinds(base: str) -> dict[str, str]:
    long = [job for job in list_jobs(base, "limit=500") if job["run_seconds"] > 900]
    ended = [job for job in long if job["end_seconds"] is not None]
    chosen = {
        "completed": [job for job in ended if job["state"] == "COMPLETED" and not job["rules"] and job["cpu_ratio"]],
        "wasteful": [job for job in list_jobs(base, "worst=critical&state=COMPLETED&limit=100") if job["rules"]],
        "oom": list_jobs(base, "state=OUT_OF_MEMORY&limit=100"),
        "timeout": list_jobs(base, "state=TIMEOUT&limit=100"),
        "gpu": [job for job in ended if job["gpus"] and job["gpu_ratio"] is not None],
        "running": [job for job in long if job["state"] == "RUNNING"],
        "array": [job for job in ended if job["array_job_id"] is not None],
    }
    return {kind: max(jobs, key=size_of)["shown_id"] for kind, jobs in chosen.items() if jobs}


def size_of(job: dict[str, Any]) -> tuple[int, int]:
    return len(job["rules"]), job["nodes"] + job["gpus"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_first_screen_decides(browser: Browser, demo: str, kinds: dict[str, str], kind: str, size: str) -> None:
    viewport, height = SIZES[size]
    with watching(browser, demo, viewport=viewport) as window:
        page = window.open(f"/jobs/{kinds[kind]}")
        expect(page.locator("figure.chart canvas").first).to_be_visible()
        bottoms = {name: page.locator(selector).first.evaluate(_BOTTOM) for name, selector in PARTS.items()}
        assert sorted(bottoms.values()) == list(bottoms.values())
        assert height >= bottoms["first chart"], bottoms
        assert MAX_HEADER >= page.locator("header.top").evaluate("element => element.offsetHeight")
        window.shoot(f"job-screen-{kind}-{size}")
        write_heights(f"{kind}-{size}", bottoms)


def write_heights(name: str, bottoms: dict[str, int]) -> None:
    (screenshot_folder() / f"heights-{name}.json").write_text(json.dumps(bottoms))


@pytest.mark.parametrize("kind", ["gpu", "oom", "running"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_moves_while_the_page_loads(
    browser: Browser, demo: str, kinds: dict[str, str], kind: str, size: str
) -> None:
    with watching(browser, demo, viewport=SIZES[size][0]) as window:
        window.page.add_init_script(_WATCH_SHIFTS)
        page = window.open(f"/jobs/{kinds[kind]}")
        expect(page.locator("figure.chart canvas").first).to_be_visible()
        assert [] == shifts_of(page)


def test_nothing_moves_when_a_running_job_is_updated(browser: Browser, demo: str, kinds: dict[str, str]) -> None:
    with watching(browser, demo) as window:
        page = window.open(f"/jobs/{kinds['running']}")
        expect(page.locator("figure.chart canvas").first).to_be_visible()
        page.evaluate(_WATCH_SHIFTS)
        with page.expect_response(re.compile(r"/charts\.json")):
            page.evaluate("htmx.ajax('GET', location.pathname + '/live', {target: '#live', swap: 'outerHTML'})")
        expect(page.locator("#live-more")).to_have_count(1)
        assert [] == [shift for shift in shifts_of(page) if shift[0] > 0.0]


def shifts_of(page: Page) -> list[list[Any]]:
    page.wait_for_load_state("networkidle")
    page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    shifts: list[list[Any]] = page.evaluate("window.shifts")
    return shifts


def test_links_with_one_name_lead_to_one_address(browser: Browser, demo: str, kinds: dict[str, str]) -> None:
    for tab in ("", "?tab=nodes", "?tab=charts", "?tab=record"):
        with watching(browser, demo) as window:
            window.open(f"/jobs/{kinds['gpu']}{tab}")
            assert [] == window.find_shared_names()


def test_tabs_are_opened_with_the_keyboard(browser: Browser, demo: str, kinds: dict[str, str]) -> None:
    with watching(browser, demo, java_script_enabled=False) as window:
        page = window.open(f"/jobs/{kinds['gpu']}")
        page.get_by_role("link", name="Slurm record").focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"\?tab=record$"))
        expect(page.get_by_role("heading", name="Slurm record")).to_be_visible()
        tabs = page.get_by_role("navigation", name="Parts of job")
        tabs.get_by_role("link", name="Overview").click()
        expect(page.locator(".verdict")).to_be_visible()


def test_limit_is_labelled_and_more_than_eight_lines_have_patterns(
    browser: Browser, demo: str, kinds: dict[str, str]
) -> None:
    with watching(browser, demo) as window:
        page = window.open(f"/jobs/{kinds['running']}?tab=charts")
        for chart in page.locator("figure.chart").all():
            swatches = chart.locator(".swatch").evaluate_all("all => all.map((one) => one.getAttribute('class'))")
            assert len(swatches) == len(set(swatches))

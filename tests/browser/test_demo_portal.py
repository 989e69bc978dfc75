# SPDX-License-Identifier: Apache-2.0
"""Use the demo in a real browser as a new user does."""

from __future__ import annotations

import io
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from pypdf import PdfReader

from tests.browser.demo_jobs import DemoJobs
from tests.browser.watching import PATIENCE_MILLISECONDS, Watched, watching
from tests.processes import until

expect.set_options(timeout=PATIENCE_MILLISECONDS)

DRAWN = "canvas => canvas.toDataURL()"
ZOOM = re.compile(r"#from=(\d+)&to=(\d+)$")


def test_first_page_is_full(window: Watched) -> None:
    page = window.open("/")
    expect(page.get_by_role("heading", name="My jobs")).to_be_visible()
    own = page.get_by_role("table", name="My newest jobs").locator("tbody tr")
    # Staff see few of their own jobs, which come last.
    expect(own).to_have_count(3)
    expect(page.locator("dl.tiles dd").first).not_to_have_text("0")
    window.shoot("demo-first-page")
    page.get_by_role("button", name="user", exact=True).click()
    expect(own).to_have_count(12)


def test_guided_path_opens_five_pages(window: Watched) -> None:
    def find() -> Locator:
        return window.open("/").get_by_role("navigation", name="Begin with these pages").get_by_role("link")

    # Until the demo has archived one job of each kind, there are fewer.
    until(lambda: find().count() == 5, 120)
    links = find()
    for path in [link.get_attribute("href") for link in links.all()]:
        expect(window.open(str(path)).get_by_role("heading", level=1)).to_be_visible()


def test_file_systems_have_users_and_the_cluster_has_a_day(window: Watched) -> None:
    expect(window.open("/filesystems").get_by_role("heading", name="scratch")).to_be_visible()
    day = re.compile(r"^Jobs: .*running")
    until(lambda: window.open("/cluster").get_by_role("img", name=day).count() > 0, 120)


def test_wasteful_job_is_found_and_its_findings_are_read(window: Watched) -> None:
    page = window.open("/")
    page.get_by_role("link", name="All jobs with critical findings").click()
    worst = page.locator("table.jobs tbody tr").first
    assert "critical" in worst.inner_text()
    number = worst.get_by_role("link").first.inner_text()
    worst.get_by_role("link", name=number, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(number)
    verdict = page.locator(".verdict.critical")
    expect(verdict).to_be_visible()
    sentences = verdict.locator("p").first.inner_text()
    assert re.search(r"\d", sentences), "a finding has numbers of the job"
    assert 2 <= sentences.count(".")
    window.shoot("demo-findings")


def drag(page: Page, chart: str, start: float, end: float) -> None:
    """Drag over a chart, from one share of its width to another."""
    plot = page.locator(f'[data-chart="{chart}"] .u-over')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * start, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * (start + end) / 2, middle, steps=4)
    page.mouse.move(box["x"] + box["width"] * end, middle, steps=4)
    page.mouse.up()


def test_dragging_over_a_chart_zooms_all_of_them(window: Watched, demo: str, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.wasteful}")
    charts = httpx.get(f"{demo}/jobs/{jobs.wasteful}/charts.json", trust_env=False, timeout=60).json()["charts"]
    times = next(chart["times"] for chart in charts if chart["name"] == "cpu")
    memory = page.locator('[data-chart="memory"] canvas')
    before = memory.evaluate(DRAWN)
    drag(page, "cpu", 0.25, 0.75)
    page.wait_for_url(ZOOM)
    zoomed = ZOOM.search(page.url)
    assert zoomed is not None
    whole = times[-1] - times[0]
    tolerance = 0.02 * whole + 1
    assert times[0] + 0.25 * whole == pytest.approx(int(zoomed[1]), abs=tolerance)
    assert times[0] + 0.75 * whole == pytest.approx(int(zoomed[2]), abs=tolerance)
    # A screenshot would wait until the canvas is stable, while finer data replaces it.
    assert before != memory.evaluate(DRAWN)
    window.shoot("demo-zoomed")
    page.get_by_role("button", name="Whole run").click()
    assert "#" not in page.url


def test_zoom_is_part_of_the_address(window: Watched, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.wasteful}")
    drag(page, "cpu", 0.4, 0.6)
    page.wait_for_url(ZOOM)
    page.reload()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("button", name="Whole run")).to_be_visible()
    page.locator('[data-chart="cpu"] .u-over').dblclick()
    expect(page.get_by_role("button", name="Whole run")).to_be_hidden()


def test_downloaded_pdf_contains_the_findings(window: Watched, jobs: DemoJobs, tmp_path: Path) -> None:
    page = window.open(f"/jobs/{jobs.wasteful}")
    title = page.locator(".verdict h2").inner_text().removeprefix("critical").strip()
    with page.expect_download() as download:
        page.get_by_role("link", name="PDF").click()
    assert f"job-{jobs.wasteful}.pdf" == download.value.suggested_filename
    download.value.save_as(tmp_path / "job.pdf")
    reader = PdfReader(io.BytesIO((tmp_path / "job.pdf").read_bytes()))
    text = " ".join(" ".join(sheet.extract_text() for sheet in reader.pages).split())
    assert jobs.wasteful in text
    assert title in text


def test_two_jobs_are_compared(window: Watched, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.wasteful}")
    page.get_by_role("link", name="Compare with other jobs").click()
    page.get_by_label("Job IDs").fill(f"{jobs.wasteful} {jobs.other_wasteful}")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_load_state("networkidle")
    heads = page.locator("table.compare thead th").all_inner_texts()
    assert [f"Job {jobs.wasteful}", f"Job {jobs.other_wasteful}"] == heads
    legend = page.locator("#chart-cpu .chart-lines")
    expect(legend).to_contain_text(f"job {jobs.wasteful}")
    expect(legend).to_contain_text(f"job {jobs.other_wasteful}")
    window.shoot("demo-compared")


def shown_jobs(page: Page) -> list[str]:
    return page.locator("table.jobs tbody th a").all_inner_texts()


def test_list_is_filtered_and_the_filter_is_in_the_address(window: Watched, demo: str) -> None:
    wanted = f"{demo}/api/v2/jobs?state=COMPLETED&rule=cpu_idle"
    # The history of the demo is archived while pages can be seen already.
    until(lambda: httpx.get(wanted, trust_env=False, timeout=60).json()["jobs"], 120)
    page = window.open("/jobs")
    window.open_filter()
    page.get_by_label("State").select_option("COMPLETED")
    page.get_by_label("Finding", exact=True).select_option(label="Cores were idle")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile(r"state=COMPLETED.*rule=cpu_idle"))
    rows = page.locator("table.jobs tbody tr")
    assert rows.count() >= 1
    assert {"completed"} == set(rows.locator(".state").all_inner_texts())
    titles = [badge.get_attribute("title") or "" for badge in rows.locator(".severity").all()]
    assert all("Cores were idle" in title for title in titles)
    expect(page.get_by_label("Finding", exact=True)).to_have_value("cpu_idle")
    page.get_by_role("link", name="Clear").click()
    expect(page.get_by_label("State")).to_have_value("")


def test_list_is_paged(window: Watched, demo: str) -> None:
    # The demo archives its history while pages are already served.
    until(lambda: 'rel="next"' in httpx.get(f"{demo}/jobs?state=COMPLETED", trust_env=False, timeout=60).text, 120)
    page = window.open("/jobs?state=COMPLETED")
    first = shown_jobs(page)
    page.get_by_role("link", name="Next page").click()
    page.wait_for_url(re.compile("after="))
    second = shown_jobs(page)
    assert 50 == len(first)
    assert set() == set(first) & set(second)
    page.get_by_role("link", name="First page").click()
    page.wait_for_url(re.compile("jobs.state=COMPLETED$"))
    assert first[-1] in shown_jobs(page) or first[0] in shown_jobs(page)


def test_search_finds_jobs_users_and_names(window: Watched, jobs: DemoJobs) -> None:
    page = window.open("/")
    for text, target in ((jobs.wasteful, f"/jobs/{jobs.wasteful}"), (jobs.account, f"/accounts/{jobs.account}")):
        page.get_by_role("searchbox").fill(text)
        page.get_by_role("searchbox").press("Enter")
        page.wait_for_url(window.base + target)


def test_running_job_is_updated_without_losing_the_charts(window: Watched, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.running}")
    expect(page.locator(".live-note")).to_be_visible()
    with page.expect_response(re.compile("/charts.json")):
        page.evaluate("htmx.ajax('GET', location.pathname + '/live', {target: '#live', swap: 'outerHTML'})")
    # Which charts there are depends on the job: flat ones are folded.
    expect(page.locator("[data-chart] canvas").first).to_be_visible()
    expect(page.locator("#live")).to_have_count(1)


def test_zoomed_job_has_finer_points(window: Watched, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.wasteful}")
    with page.expect_response(re.compile(r"charts\.json\?from=\d+&to=\d+$")) as answer:
        drag(page, "cpu", 0.4, 0.5)
    expect(page.locator(".zoom-note")).to_have_text(re.compile(r"^A point every "))
    charts = {chart["name"]: chart for chart in answer.value.json()["charts"]}
    assert charts["cpu"]["is_finer"]
    page.locator('[data-chart="cpu"]').focus()
    page.keyboard.press("Escape")
    expect(page.locator(".zoom-note")).to_have_text("")
    page.keyboard.press("+")
    page.wait_for_url(ZOOM)


def test_part_of_a_run_is_chosen_without_scripts(browser: Browser, demo: str, jobs: DemoJobs) -> None:
    with watching(browser, demo, java_script_enabled=False) as window:
        page = window.open(f"/jobs/{jobs.wasteful}")
        page.get_by_role("link", name="Show a part of the run").click()
        page.get_by_role("link", name="Closer").click()
        expect(page.locator(".zoom-note")).to_have_text(re.compile(r"^A point every "))
        page.get_by_role("button", name="Show").last.click()
        expect(page.locator(".zoom-note")).to_have_text(re.compile(r"^A point every "))
        picture = page.locator("#chart-memory img")
        picture.scroll_into_view_if_needed()
        # A picture that was not loaded has no width of its own.
        until(lambda: picture.evaluate("image => image.naturalWidth") == 720)
        window.shoot("job-part-without-scripts")


def test_each_gpu_has_a_row_and_its_memory_a_size(window: Watched, jobs: DemoJobs) -> None:
    page = window.open(f"/jobs/{jobs.gpu}")
    assert re.search(r"of \d+ GiB at its peak", page.locator(".gauges").inner_text())
    table = page.get_by_role("group", name="GPUs")
    expect(table.locator("tbody tr").first).to_contain_text(re.compile(r"\d GiB"))
    # GPUs of one model have it below the table.
    expect(table.locator("+ p")).to_contain_text("Model: NVIDIA")
    window.shoot("job-gpus")

# SPDX-License-Identifier: Apache-2.0
"""Get from a failed job to a corrected header, and change its request, as a new user does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.demo_jobs import PATIENCE_SECONDS, find_jobs, list_jobs
from tests.browser.watching import NARROW, PATIENCE_MILLISECONDS, Watched, watching
from tests.processes import until

expect.set_options(timeout=PATIENCE_MILLISECONDS)


@pytest.fixture(scope="module")
def killed(demo: str) -> str:
    """Return a job that ran out of memory, once the demo has archived one; in some hours there are few."""
    find_jobs(demo)
    until(lambda: bool(list_jobs(demo, "state=OUT_OF_MEMORY")), PATIENCE_SECONDS)
    return str(list_jobs(demo, "state=OUT_OF_MEMORY")[0]["shown_id"])


@pytest.fixture(scope="module")
def failed(demo: str, killed: str) -> None:
    """Wait until the demo has archived a failed job of the user as whom it is shown; it archives the newest first."""

    def is_shown() -> bool:
        text = httpx.get(demo, timeout=PATIENCE_SECONDS, trust_env=False).text
        table = text.partition("Failed in the last 7 days")[2].partition("</table>")[0]
        return re.search("out of memory|timeout", table) is not None

    until(is_shown, PATIENCE_SECONDS)


@pytest.fixture
def window(browser: Browser, demo: str) -> Iterator[Watched]:
    with watching(browser, demo, permissions=["clipboard-read", "clipboard-write"]) as watched:
        yield watched


def header_of(page: Page) -> str:
    return page.locator("#header-lines").inner_text().strip()


def test_corrected_header_of_a_failed_job_is_three_clicks_away(window: Watched, killed: str) -> None:
    page = window.open("/")
    page.get_by_role("link", name="All jobs with critical findings").click()
    row = page.locator("table.jobs tbody tr").filter(has_text=re.compile("out of memory|timeout")).first
    row.get_by_role("link").first.click()
    page.get_by_role("button", name="Copy").click()
    expect(page.locator(".copied")).to_have_text("Copied.")
    copied = page.evaluate("navigator.clipboard.readText()").strip()
    assert re.match(r"#SBATCH --(mem|time|mem-per-cpu|cpus-per-task|ntasks|nodes)\S*=\S+", copied)
    assert header_of(page) == copied
    window.shoot("resubmit")


@pytest.mark.parametrize("style", [{}, {"viewport": NARROW, "has_touch": True}, {"color_scheme": "dark"}], ids=str)
def test_plain_user_gets_from_a_failed_job_to_its_header_in_two_clicks(
    browser: Browser, demo: str, failed: None, style: dict[str, object]
) -> None:
    with watching(browser, demo, permissions=["clipboard-read", "clipboard-write"], **style) as window:
        page = choose_view(window, "user")
        assert [] == window.find_barriers()
        open_failed_job(page).click()
        expect(page.locator(".verdict.critical h2")).to_be_visible()
        page.get_by_role("button", name="Copy").click()
        expect(page.locator(".copied")).to_have_text("Copied.")
        assert header_of(page) == page.evaluate("navigator.clipboard.readText()").strip()
        assert header_of(page).startswith("#SBATCH --")


def test_plain_user_gets_there_by_keyboard_and_without_scripts(browser: Browser, demo: str, failed: None) -> None:
    with watching(browser, demo, java_script_enabled=False) as window:
        page = window.open("/")
        page.get_by_role("button", name="user", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="user", exact=True)).to_have_attribute("aria-pressed", "true")
        open_failed_job(page).focus()
        page.keyboard.press("Enter")
        expect(page.locator("#header-lines")).to_contain_text("#SBATCH --")


def choose_view(window: Watched, name: str) -> Page:
    """Choose the rights with which the demo is shown."""
    page = window.open("/")
    page.get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-pressed", "true")
    return page


def open_failed_job(page: Page) -> Locator:
    """Return the link to a job that ran out of memory or time, on the first page."""
    failed = page.get_by_role("table", name="Failed in the last 7 days").locator("tbody tr")
    return failed.filter(has_text=re.compile("out of memory|timeout")).first.get_by_role("link").first


def test_header_is_copied_by_keyboard(window: Watched, killed: str) -> None:
    page = window.open(f"/jobs/{killed}")
    page.get_by_role("button", name="Copy").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".copied")).to_have_text("Copied.")
    assert header_of(page) == page.evaluate("navigator.clipboard.readText()").strip()
    page.get_by_text("Changes and reasons").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".diff .added").first).to_contain_text("+#SBATCH --mem")
    assert [] == window.find_barriers()


def test_what_if_is_answered_by_the_measured_curve(window: Watched, killed: str) -> None:
    page = window.open(f"/jobs/{killed}?tab=what-if")
    page.get_by_label("Memory per node").fill("600M")
    page.get_by_label("Time limit", exact=True).fill("1-00")
    page.keyboard.press("Enter")
    answer = page.locator(".outcome li")
    expect(answer.first).to_contain_text("With 600 MiB of memory per node it would have been OOM-killed after")
    expect(page.get_by_label("Memory per node")).to_have_value("600M")
    window.shoot("what-if")


def test_wrong_input_is_explained(browser: Browser, demo: str, killed: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{demo}/jobs/{killed}?cores=many")
    expect(page.get_by_role("alert")).to_have_text("Cores must be a whole number from 1 to 1,000,000, such as 4.")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_header_and_form_work_on_a_phone_without_scripts(browser: Browser, demo: str, killed: str, scheme: str) -> None:
    with watching(browser, demo, viewport=NARROW, color_scheme=scheme, java_script_enabled=False) as window:
        page = window.open(f"/jobs/{killed}")
        assert "#SBATCH --mem" in header_of(page)
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)
        page.get_by_role("link", name="What if").click()
        page.get_by_label("Cores", exact=True).fill("1")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".outcome li").first).to_contain_text("With 1 core")
        window.shoot(f"resubmit-phone-{scheme}")
    with watching(browser, demo, viewport=NARROW, color_scheme=scheme) as window:
        window.open(f"/jobs/{killed}?memory=600M")
        assert not window.is_wider_than_its_window()
        assert [] == window.find_barriers()

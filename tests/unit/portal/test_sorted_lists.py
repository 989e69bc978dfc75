# SPDX-License-Identifier: Apache-2.0
"""Lists are sorted, paged there and back, searched and counted, for what the viewer may see."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fakes.browser import Page, PortalClient, open_portal
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import START, make_record, make_report
from tests.fakes.waiting import make_queue, make_waiting

JOBS = 120


@pytest.fixture
def many(backend: FakeBackend) -> FakeBackend:
    """Give eve 120 jobs of different sizes, and bob one that is larger than all of them."""
    records = [
        make_record(
            1000 + number,
            user="eve",
            name=f"Run_{number:03}",
            cpus=1 + number * 7 % JOBS,
            submit_seconds=START + number,
        )
        for number in range(JOBS)
    ]
    backend.archive.save([make_report(record) for record in (*records, make_record(900, user="bob", cpus=5000))])
    return backend


def read_jobs(page: Page) -> list[int]:
    return [int(link.rsplit("/", 1)[1]) for link in page.links if link.startswith("/jobs/1")]


def follow(browser: PortalClient, page: Page, rel: str) -> Page | None:
    found = [str(attrs["href"]) for attrs in page.all("a") if attrs.get("rel") == rel]
    return Page(browser.get(found[0]).text) if found else None


def walk(browser: PortalClient, address: str) -> list[list[int]]:
    """Read all pages forward, check that they are the same backward, and return the jobs of each."""
    page: Page | None = Page(browser.get(address).text)
    pages = []
    last = page
    while page is not None:
        pages.append(read_jobs(page))
        last, page = page, follow(browser, page, "next")
    page, backward = last, []
    while page is not None:
        backward.append(read_jobs(page))
        page = follow(browser, page, "prev")
    assert pages == backward[::-1]
    return pages


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_pages_of_a_sorted_list_are_the_same_there_and_back(many: FakeBackend, direction: str) -> None:
    pages = walk(open_portal(many, "eve"), f"/jobs?sort=cores&dir={direction}")

    assert [50, 50, 20] == [len(page) for page in pages]
    cores = {1000 + number: 1 + number * 7 % JOBS for number in range(JOBS)}
    found = [cores[job] for page in pages for job in page]
    assert sorted(cores.values(), reverse=direction == "desc") == found


def test_pages_in_the_order_of_submission_are_the_same_there_and_back(many: FakeBackend) -> None:
    many.waiting = make_queue(
        *(make_waiting(1500 + number, user="eve", submit_seconds=START + number) for number in range(40))
    )
    pages = walk(open_portal(many, "eve"), "/jobs")
    assert [50, 50, 50, 10] == [len(page) for page in pages]
    assert JOBS + 40 == len({job for page in pages for job in page})


def test_heading_turns_the_direction_and_keeps_the_filter(many: FakeBackend) -> None:
    page = Page(open_portal(many, "eve").get("/jobs?sort=cores&name=run").text)
    links = [parse_qs(urlsplit(link).query) for link in page.links if "sort=" in link and "after=" not in link]

    assert {"name": ["run"], "sort": ["cores"], "dir": ["asc"]} in links
    assert {"name": ["run"], "sort": ["cpu"]} in links
    assert ["descending"] == [attrs["aria-sort"] for attrs in page.all("th") if attrs.get("aria-sort")]


def test_pending_jobs_are_sorted_with_the_others_by_what_they_request(many: FakeBackend) -> None:
    many.waiting = make_queue(make_waiting(1999, user="eve", cpus=400), make_waiting(1998, user="bob", cpus=9000))
    browser = open_portal(many, "eve")

    assert 1999 == read_jobs(Page(browser.get("/jobs?sort=cores").text))[0]
    assert 1999 not in [job for page in walk(browser, "/jobs?sort=cpu") for job in page]
    assert "jobs for which this is not known are left out" in browser.get("/jobs?sort=cpu").text


@pytest.mark.parametrize("part", ["un_05", "UN_05"])
def test_part_of_a_name_is_found(many: FakeBackend, part: str) -> None:
    many.waiting = make_queue(make_waiting(1999, user="eve", name="rerun_055"))
    page = Page(open_portal(many, "eve").get(f"/jobs?name={part}").text)
    assert [1999, *range(1059, 1049, -1)] == read_jobs(page)


def test_total_counts_only_what_the_viewer_may_see(many: FakeBackend) -> None:
    many.waiting = make_queue(
        make_waiting(1998, user="bob"), make_waiting(1999, user="eve", array_job_id=1999, tasks=(range(30),))
    )
    text = Page(open_portal(many, "eve").get("/jobs").text).text
    assert f"Jobs {JOBS + 30} jobs" in text
    # The jobs of the fake portal, those of eve and bob, and 31 pending tasks.
    count = len(many.archive.reports) + 31
    assert f"Jobs {count} jobs" in Page(open_portal(many, "sue").get("/jobs").text).text


def test_position_in_a_list_shows_no_job_of_another_user(many: FakeBackend) -> None:
    """The largest job of all is before the first one of eve."""
    page = Page(open_portal(many, "eve").get(f"/jobs?sort=cores&after={START}-900-6000").text)
    assert 50 == len(read_jobs(page))
    assert "/jobs/900" not in page.links


def test_page_before_the_first_one_is_the_first_one(many: FakeBackend) -> None:
    browser = open_portal(many, "eve")
    first = read_jobs(Page(browser.get("/jobs").text))
    assert first == read_jobs(Page(browser.get(f"/jobs?before={START + 110}-1110").text))


def test_every_condition_is_a_chip_that_removes_it(many: FakeBackend) -> None:
    text = open_portal(many, "eve").get("/jobs?state=COMPLETED&name=run&cores_min=4&sort=run").text
    (chips,) = re.findall(r'aria-label="Conditions of the filter">(.*?)</ul>', text, re.DOTALL)
    page = Page(chips)

    assert "State completed" in page.text
    assert "Name contains run" in page.text
    assert "Cores 4 or more" in page.text
    others = {"/jobs?name=run&cores_min=4", "/jobs?state=COMPLETED&cores_min=4", "/jobs?state=COMPLETED&name=run"}
    assert {*others, "/jobs"} == set(page.links)


def test_own_list_has_no_column_of_users_and_staff_have_one(many: FakeBackend) -> None:
    assert "User" not in re.findall(r"<th[^>]*>(?:<a[^>]*>)?(\w+)", open_portal(many, "eve").get("/jobs").text)
    assert "User" in re.findall(r"<th[^>]*>(?:<a[^>]*>)?(\w+)", open_portal(many, "sue").get("/jobs").text)


def test_reason_of_a_pending_job_is_with_its_state(many: FakeBackend) -> None:
    many.waiting = make_queue(make_waiting(1999, user="eve", reason="Resources"))
    text = open_portal(many, "eve").get("/jobs?state=PENDING").text
    (state,) = re.findall(r'<td class="cell-state">(.*?)</td>', text, re.DOTALL)
    (found,) = re.findall(r'<td class="cell-found">(.*?)</td>', text, re.DOTALL)

    assert "pending Resources" == Page(state).text.strip()
    assert "The job waits until enough resources are free." in state
    assert "Resources" not in found


def test_file_of_a_sorted_list_is_sorted(many: FakeBackend) -> None:
    lines = open_portal(many, "eve").get("/jobs?sort=cores&format=csv").text.splitlines()
    cpus = [int(line.split(",")[lines[0].split(",").index("cpus")]) for line in lines[1:]]
    assert sorted(cpus, reverse=True) == cpus


def test_api_sorts_and_continues_after_a_position(many: FakeBackend) -> None:
    browser = open_portal(many, "eve")
    first = browser.get("/api/v2/jobs?sort=cores&limit=100").json()
    rest = browser.get(f"/api/v2/jobs?sort=cores&limit=100&after={first['next']}").json()
    cores = [job["cpus"] for job in (*first["jobs"], *rest["jobs"])]

    assert (list(range(JOBS, 0, -1)), None) == (cores, rest["next"])
    assert 400 == browser.get("/api/v2/jobs?sort=rules").status_code

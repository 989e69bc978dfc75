# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.requests import Request

from slurmscope.model.archive import JobFilter
from slurmscope.portal.app import make_app
from slurmscope.portal.pages.jobs import read_all_rows
from slurmscope.portal.pages.visit import Visit
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.web.rendering_cache import KeptRenderings
from tests.fakes.browser import Page, Visitor
from tests.fakes.portal_desk import PEOPLE, FakeDesk
from tests.fakes.reports import START, make_record, make_report


def visit(desk: FakeDesk, name: str) -> Visitor:
    return Visitor(make_app(desk), name)


def test_first_page_shows_own_jobs_and_the_cluster(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/").text)
    assert "4720" in page.text
    assert "4712" not in page.text
    assert "Running jobs 812" in page.text
    assert "Most idle core hours" not in page.text
    assert [] == page.open


def test_first_page_of_staff_has_the_waste_of_everybody(desk: FakeDesk) -> None:
    page = Page(visit(desk, "sue").get("/").text)
    assert "/users/ada" in page.links
    assert {"/waste", "/jobs/4720", "/jobs?worst=critical"} <= set(page.links)
    assert ("sue", "/", "waste of everybody") in desk.audited


def test_first_page_without_jobs_says_so(desk: FakeDesk) -> None:
    assert "You have no jobs here yet." in Page(visit(desk, "eve").get("/").text).text


def test_banner_says_which_server_is_missing(desk: FakeDesk) -> None:
    desk.missing = ("Prometheus does not answer.",)
    assert "Prometheus does not answer." in Page(visit(desk, "ada").get("/jobs").text).text


def test_list_shows_only_what_is_the_viewers(desk: FakeDesk) -> None:
    page = Page(visit(desk, "bob").get("/jobs").text)
    assert ["/jobs/4712"] == [link for link in page.links if link.startswith("/jobs/")]


def test_filter_of_the_address_is_in_the_form_and_in_every_link(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/jobs?name=re&worst=critical&since=2026-09-21&until=2026-09-21").text)
    values = {attrs["name"]: attrs.get("value") for attrs in page.all("input") if attrs.get("name")}
    assert ("re", "2026-09-21", "2026-09-21") == (values["name"], values["since"], values["until"])
    (address,) = [link for link in page.links if "format=csv" in link]
    expected = {"name": ["re"], "worst": ["critical"], "since": ["2026-09-21"], "until": ["2026-09-21"]}
    assert expected | {"format": ["csv"]} == parse_qs(urlsplit(address).query)
    assert ["/jobs/4711"] == [link for link in page.links if link.startswith("/jobs/")]


def test_following_the_pages_shows_every_job_once(desk: FakeDesk) -> None:
    desk.archive.save([make_report(make_record(1000 + number, submit_seconds=START - number)) for number in range(120)])
    browser, address, seen = visit(desk, "ada"), "/jobs", list[str]()
    for _ in range(5):
        page = Page(browser.get(address).text)
        seen += [link for link in page.links if link.startswith("/jobs/")]
        following = [attrs["href"] for attrs in page.all("a") if attrs.get("rel") == "next"]
        if not following:
            break
        address = following[0] or ""
    assert 120 + 15 == len(seen) == len(set(seen))


def test_file_of_a_list_has_the_rows_of_all_pages(desk: FakeDesk) -> None:
    desk.archive.save([make_report(make_record(1000 + number, submit_seconds=START - number)) for number in range(700)])
    rows = list(csv.DictReader(io.StringIO(visit(desk, "ada").get("/jobs?format=csv").text)))
    assert 700 + 15 == len(rows)
    assert {"cpu_idle memory_over_asked"} == {row["rules"] for row in rows}
    assert {"ada"} == {row["user"] for row in rows}


@pytest.mark.parametrize(
    "query",
    ["worst=bad", "since=tomorrow", "until=9999-01-01", "array=x", "running=maybe", "format=xml", "after=1",
     "after=1-2-3", f"name={'x' * 201}", "user=%00", "array=99999999999"],
)  # fmt: skip
def test_filter_that_cannot_be_understood_is_said_in_a_sentence(desk: FakeDesk, query: str) -> None:
    answer = visit(desk, "ada").get(f"/jobs?{query}")
    assert 400 == answer.status_code
    assert "Nothing here" not in answer.text


@pytest.mark.parametrize(
    ("text", "place"),
    [("4711", "/jobs/4711"), ("4800", "/arrays/4800"), ("4800_3", "/jobs/4800_3"), ("4800_[0-9]", "/arrays/4800"),
     ("ada", "/users/ada"), ("physics", "/accounts/physics"), ("rel", "/jobs?name=rel"), ("", "/jobs"),
     ("  4711 ", "/jobs/4711")],
)  # fmt: skip
def test_search_goes_where_the_text_belongs(desk: FakeDesk, text: str, place: str) -> None:
    answer = visit(desk, "ada").get("/search?q=" + text.replace(" ", "%20"))
    assert (303, place) == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize(("foreign", "absent"), [("4712", "9999"), ("bob", "nob"), ("4800", "4900")])
def test_search_treats_foreign_and_absent_alike(desk: FakeDesk, foreign: str, absent: str) -> None:
    browser = visit(desk, "eve")
    places = [browser.get(f"/search?q={text}").headers["location"] for text in (foreign, absent)]
    assert [f"/jobs?name={foreign}", f"/jobs?name={absent}"] == places


def test_search_cannot_be_made_to_write_a_header_or_to_leave_the_portal(desk: FakeDesk) -> None:
    browser = visit(desk, "ada")
    places = [
        browser.get(f"/search?q={text}").headers["location"] for text in ("%0d%0aX:1", "//evil.example", "\\\\evil")
    ]
    assert ["/jobs?name=X%3A1", "/jobs?name=%2F%2Fevil.example", "/jobs?name=%5C%5Cevil"] == places


def test_links_have_the_path_under_which_a_proxy_shows_the_portal(desk: FakeDesk) -> None:
    desk.settings = PortalSettings(base_path="/portal")
    browser = visit(desk, "ada")
    for path in ("/", "/portal/", "/portal/jobs/4711"):
        page = Page(browser.get(path).text)
        assert {True} == {link.startswith(("/portal/", "#")) for link in page.links}
    assert "/portal/jobs/4711" == browser.get("/portal/search?q=4711").headers["location"]


def test_array_shows_spread_outlier_and_one_recommendation(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/arrays/4800").text)
    assert "12 tasks" in page.text
    assert "no task kept more than 2.0 of its 4 cores busy." in page.text
    assert "#SBATCH" not in page.text
    assert "Run time: 6 h, where the median is 2 h" in page.text
    assert [] == page.open


def test_array_whose_memory_is_known_shows_the_line_for_the_script(desk: FakeDesk) -> None:
    tasks = [make_record(6000 + task, array_job_id=6000, array_task_id=task, cpus=2) for task in range(3)]
    desk.archive.save([make_report(task) for task in tasks])
    page = Page(visit(desk, "ada").get("/arrays/6000").text)
    # 0.8 GiB are 819.2 MiB; with a fifth more 983.04.
    assert "this is enough for 3 tasks that completed after 5 min or more: #SBATCH --mem=984M" in page.text


def test_array_of_somebody_else_is_absent(desk: FakeDesk) -> None:
    browser = visit(desk, "bob")
    foreign, absent = browser.get("/arrays/4800"), browser.get("/arrays/1")
    assert (404, absent.text) == (foreign.status_code, foreign.text)
    assert 404 == browser.get("/arrays/x").status_code


def test_array_is_had_as_a_file(desk: FakeDesk) -> None:
    assert 13 == len(visit(desk, "ada").get("/arrays/4800?format=csv").text.splitlines())


def test_user_page_sums_up_days(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/users/ada?days=7").text)
    assert "Core hours by day of submission" in page.text
    assert "2026-09-18" in page.text
    assert "2026-09-24" in page.text
    assert [] == page.open


@pytest.mark.parametrize("path", ["/users/{}", "/accounts/{}", "/users/{}?format=csv", "/accounts/{}?format=json"])
def test_foreign_people_and_absent_people_are_the_same(desk: FakeDesk, path: str) -> None:
    desk.archive.save([make_report(make_record(50, user="mallory", account="secret"))])
    browser = visit(desk, "eve")
    foreign = browser.get(path.format("mallory" if "users" in path else "secret"))
    absent = browser.get(path.format("nobody"))
    assert (404, absent.content) == (foreign.status_code, foreign.content)


def test_own_page_is_there_before_the_first_job(desk: FakeDesk) -> None:
    assert 200 == visit(desk, "eve").get("/users/eve").status_code


def test_user_sees_the_own_part_of_an_account_and_is_told_so(desk: FakeDesk) -> None:
    page = Page(visit(desk, "bob").get("/accounts/physics").text)
    assert "You see your own jobs in this account." in page.text
    assert "/users/ada" not in page.links


def test_coordinator_sees_the_whole_account(desk: FakeDesk) -> None:
    page = Page(visit(desk, "cora").get("/accounts/physics").text)
    assert {"/users/ada", "/users/bob"} <= set(page.links)
    assert "You see your own jobs" not in page.text


@pytest.mark.parametrize("table", ["", "&table=days"])
def test_sums_of_people_are_had_as_files(desk: FakeDesk, table: str) -> None:
    rows = list(csv.DictReader(io.StringIO(visit(desk, "ada").get(f"/users/ada?format=csv{table}").text)))
    assert 15 == sum(int(row["jobs"]) for row in rows)


@pytest.mark.parametrize("days", ["0", "367", "-1", "x"])
def test_period_has_bounds(desk: FakeDesk, days: str) -> None:
    assert 400 == visit(desk, "ada").get(f"/users/ada?days={days}").status_code


def test_names_with_slashes_have_pages(desk: FakeDesk) -> None:
    desk.archive.save([make_report(make_record(60, account="a/b c"))])
    page = Page(visit(desk, "ada").get("/jobs").text)
    assert "/accounts/a%2Fb%20c" in page.links
    assert "Account a/b c" in Page(visit(desk, "ada").get("/accounts/a%2Fb%20c").text).text


def test_cluster_page_has_queue_nodes_and_partitions(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/cluster").text)
    for part in ("Priority 1,001", "drained 8", "batch 240 15,360", "As Slurm told it 12 s ago."):
        assert part in page.text
    assert "bad DIMM" not in page.text


def test_staff_is_told_why_nodes_are_away(desk: FakeDesk) -> None:
    assert "bad DIMM <b>" in Page(visit(desk, "sue").get("/cluster").text).text


def test_cluster_that_cannot_be_read_is_not_a_cluster_of_zeros(desk: FakeDesk) -> None:
    desk.cluster = replace(desk.cluster, jobs_by_state=None, pending_by_reason=None, nodes_by_state=None, cpus=None)
    page = Page(visit(desk, "ada").get("/cluster").text)
    assert "Jobs by state: not known now." in page.text
    assert "Running jobs not known" in page.text


@pytest.mark.parametrize(("table", "lines"), [("partitions", 3), ("jobs", 4), ("reasons", 4), ("nodes", 5)])
def test_tables_of_the_cluster_are_had_as_files(desk: FakeDesk, table: str, lines: int) -> None:
    assert lines == len(visit(desk, "ada").get(f"/cluster?format=csv&table={table}").text.splitlines())


def test_table_that_the_cluster_does_not_have_is_refused(desk: FakeDesk) -> None:
    assert 400 == visit(desk, "ada").get("/cluster?format=csv&table=users").status_code


def test_long_list_is_cut_and_says_so(desk: FakeDesk) -> None:
    app = make_app(desk)
    person = Visit(
        request=Request({"type": "http"}),
        desk=desk,
        viewer=PEOPLE["ada"],
        pages=app.state.pages,
        renderings=KeptRenderings(),
    )
    rows, is_cut = read_all_rows(person, JobFilter(), 10)
    assert (10, True) == (len(rows), is_cut)
    assert (15, False) == (len(read_all_rows(person, JobFilter(), 15)[0]), read_all_rows(person, JobFilter(), 15)[1])


def test_waste_is_for_staff(desk: FakeDesk) -> None:
    assert 403 == visit(desk, "ada").get("/waste").status_code
    assert 403 == visit(desk, "cora").get("/waste?format=csv").status_code
    page = Page(visit(desk, "root").get("/waste").text)
    assert {"/users/ada", "/accounts/physics"} <= set(page.links)


@pytest.mark.parametrize("table", ["user", "account", "rule", "partition"])
def test_waste_is_had_as_a_file(desk: FakeDesk, table: str) -> None:
    browser = visit(desk, "sue")
    assert 1 < len(browser.get(f"/waste?format=csv&table={table}").text.splitlines())
    assert 400 == browser.get("/waste?format=csv&table=day").status_code


def test_comparison_sets_numbers_and_curves_side_by_side(desk: FakeDesk) -> None:
    browser = visit(desk, "sue")
    page = Page(browser.get("/compare?job=4711&job=4712").text)
    assert "Job 4711" in page.text
    assert "Job 4712" in page.text
    charts = browser.get("/compare/charts.json?job=4711&job=4712").json()["charts"]
    assert ["job 4711", "job 4712"] == [line["label"] for line in charts[0]["lines"]]
    assert 0.0 == charts[0]["times"][0]
    assert 200 == browser.get("/compare/charts/cpu.svg?job=4711&job=4712").status_code
    assert 404 == browser.get("/compare/charts/none.svg?job=4711").status_code


def test_comparison_takes_jobs_from_one_field(desk: FakeDesk) -> None:
    assert "Job 4800_1" in Page(visit(desk, "ada").get("/compare?job=4711,%204800_1").text).text


def test_comparison_with_a_foreign_job_is_absent(desk: FakeDesk) -> None:
    browser = visit(desk, "ada")
    for path in ("/compare", "/compare/charts.json", "/compare/charts/cpu.svg"):
        foreign, absent = browser.get(f"{path}?job=4711&job=4712"), browser.get(f"{path}?job=4711&job=9")
        assert (404, absent.content) == (foreign.status_code, foreign.content)


def test_comparison_has_a_bound(desk: FakeDesk) -> None:
    jobs = "&".join(f"job=4800_{task}" for task in range(7))
    assert 400 == visit(desk, "ada").get(f"/compare?{jobs}").status_code


def test_comparison_is_had_as_a_file(desk: FakeDesk) -> None:
    lines = visit(desk, "ada").get("/compare?job=4711&job=4720&format=csv").text.splitlines()
    assert "what,job 4711,job 4720" == lines[0]


def test_comparison_without_jobs_asks_for_them(desk: FakeDesk) -> None:
    assert "Job numbers, at most six" in Page(visit(desk, "ada").get("/compare").text).text


def test_help_is_there(desk: FakeDesk) -> None:
    assert [] == Page(visit(desk, "ada").get("/help").text).open


def test_health_is_for_everybody_and_says_nothing(desk: FakeDesk) -> None:
    assert "ok\n" == visit(desk, "").get("/healthz").text


def test_rules_are_chosen_from_a_list_by_their_titles(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/jobs?rule=cpu_idle").text)
    options = {attrs.get("value"): attrs for attrs in page.all("option")}
    assert "selected" in options["cpu_idle"]
    assert "Cores were idle" in page.text
    assert "memory_over_asked" in options


def test_rule_that_is_gone_stays_chosen(desk: FakeDesk) -> None:
    page = Page(visit(desk, "ada").get("/jobs?rule=long_gone").text)
    assert ["long_gone"] == [attrs.get("value") for attrs in page.all("option") if "selected" in attrs]
    assert "long gone" in page.text

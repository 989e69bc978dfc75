# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest

from slurmscope.archive.interface import JobFilter
from slurmscope.jobs.summary import UsedShare
from slurmscope.portal.jobs import read_rows
from slurmscope.portal.settings import PortalSettings
from tests.fakes.browser import Page, open_portal
from tests.fakes.portal_backend import VIEWERS, FakeBackend
from tests.fakes.reports import START, make_finding, make_record, make_report


def test_first_page_shows_no_job_twice_and_failed_ones_first(backend: FakeBackend) -> None:
    states = {21: "COMPLETED", 22: "FAILED", 23: "TIMEOUT", 24: "CANCELLED"}
    backend.archive.save(
        [make_report(make_record(number, user="sue", state=state)) for number, state in states.items()]
    )
    text = open_portal(backend, "sue").get("/").text
    rows = re.findall(r'<th scope="row"[^>]*><a href="/jobs/([0-9]+)">', text)

    assert {"21", "22", "23", "24"} <= set(rows)
    assert len(rows) == len(set(rows))
    assert ["23", "22"] == [row for row in rows if row in {"22", "23"}]
    assert rows.index("22") < rows.index("24")
    assert "Failed in the last 7 days" in text
    assert "Failed in the last" not in open_portal(backend, "ada").get("/").text


def test_first_page_shows_own_jobs_and_the_cluster(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/").text)
    assert "4720" in page.text
    assert "4712" not in page.text
    assert "Running jobs 812" in page.text
    assert "Most idle core-hours" not in page.text
    assert [] == page.open


def test_first_page_of_staff_shows_waste_of_all_users(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "sue").get("/").text)
    assert "/users/ada" in page.links
    assert {"/waste", "/jobs/4720", "/jobs?worst=critical"} <= set(page.links)
    assert ("sue", "/", "waste of all users") in backend.audited


def test_first_page_names_what_is_worth_fixing_before_the_jobs(backend: FakeBackend) -> None:
    text = open_portal(backend, "ada").get("/").text
    page = Page(text)
    assert text.index("Worth fixing") < text.index("My newest jobs")
    assert re.search(r"[0-9]+ jobs? in 30 days", page.text)
    assert any(link.startswith("/jobs?") and "rule=cpu_idle" in link for link in page.links)


def test_list_names_the_worst_finding_and_counts_the_others(backend: FakeBackend) -> None:
    report = make_report(make_record(8000, user="ada", name="three_findings"))
    more = tuple(make_finding(rule) for rule in ("cpu_idle", "oom_kill", "gpu_idle"))
    backend.archive.save([replace(report, findings=more)])
    text = open_portal(backend, "ada").get("/jobs?name=three_findings").text
    (cell,) = re.findall(r'<td class="cell-found">(.*?)</td>', text, re.DOTALL)
    assert "critical: Cores were idle +2 more" == " ".join(Page(cell).text.split())


def test_first_page_without_jobs_says_so(backend: FakeBackend) -> None:
    assert "You have no jobs yet." in Page(open_portal(backend, "eve").get("/").text).text


def test_banner_says_which_server_is_unreachable(backend: FakeBackend) -> None:
    backend.failures = ("Prometheus is unreachable.",)
    assert "Prometheus is unreachable." in Page(open_portal(backend, "ada").get("/jobs").text).text


def test_list_shows_only_accessible_jobs(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "bob").get("/jobs").text)
    assert ["/jobs/4712"] == [link for link in page.links if link.startswith("/jobs/")]


def test_filter_of_the_address_is_in_the_form_and_in_every_link(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/jobs?name=re&worst=critical&since=2026-09-21&until=2026-09-21").text)
    filters = [attrs for attrs in page.all("input") if str(attrs.get("id")).startswith("filter-")]
    values = {attrs["name"]: attrs.get("value") for attrs in filters}
    assert ("re", "2026-09-21", "2026-09-21") == (values["name"], values["since"], values["until"])
    (address,) = [link for link in page.links if "format=csv" in link]
    expected = {"name": ["re"], "worst": ["critical"], "since": ["2026-09-21"], "until": ["2026-09-21"]}
    assert expected | {"format": ["csv"]} == parse_qs(urlsplit(address).query)
    assert ["/jobs/4711"] == [link for link in page.links if link.startswith("/jobs/")]


def test_following_the_pages_shows_every_job_once(backend: FakeBackend) -> None:
    backend.archive.save(
        [make_report(make_record(1000 + number, submit_seconds=START - number)) for number in range(120)]
    )
    browser, address, seen = open_portal(backend, "ada"), "/jobs", list[str]()
    for _ in range(5):
        page = Page(browser.get(address).text)
        seen += [link for link in page.links if link.startswith("/jobs/")]
        following = [attrs["href"] for attrs in page.all("a") if attrs.get("rel") == "next"]
        if not following:
            break
        address = following[0] or ""
    assert 120 + 15 == len(seen) == len(set(seen))


def test_file_of_a_list_has_the_rows_of_all_pages(backend: FakeBackend) -> None:
    backend.archive.save(
        [make_report(make_record(1000 + number, submit_seconds=START - number)) for number in range(700)]
    )
    rows = list(csv.DictReader(io.StringIO(open_portal(backend, "ada").get("/jobs?format=csv").text)))
    assert 700 + 15 == len(rows)
    assert {"cpu_idle memory_over_requested"} == {row["rules"] for row in rows}
    assert {"ada"} == {row["user"] for row in rows}


@pytest.mark.parametrize(
    "query",
    ["worst=bad", "since=tomorrow", "until=9999-01-01", "array=x", "running=maybe", "format=xml", "after=1",
     "after=1-2-3", f"name={'x' * 201}", "user=%00", "array=99999999999"],
)  # fmt: skip
def test_invalid_filter_is_an_error_page(backend: FakeBackend, query: str) -> None:
    answer = open_portal(backend, "ada").get(f"/jobs?{query}")
    assert 400 == answer.status_code
    assert "Not found" not in answer.text


@pytest.mark.parametrize(
    ("text", "page"),
    [("4711", "/jobs/4711"), ("4800", "/arrays/4800"), ("4800_3", "/jobs/4800_3"), ("4800_[0-9]", "/arrays/4800"),
     ("ada", "/users/ada"), ("physics", "/accounts/physics"), ("rel", "/jobs?name=rel"), ("", "/jobs"),
     ("  4711 ", "/jobs/4711")],
)  # fmt: skip
def test_search_redirects_to_the_match(backend: FakeBackend, text: str, page: str) -> None:
    answer = open_portal(backend, "ada").get("/search?q=" + text.replace(" ", "%20"))
    assert (303, page) == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize(("inaccessible", "absent"), [("4712", "9999"), ("bob", "nob"), ("4800", "4900")])
def test_search_treats_inaccessible_and_absent_alike(backend: FakeBackend, inaccessible: str, absent: str) -> None:
    browser = open_portal(backend, "eve")
    places = [browser.get(f"/search?q={text}").headers["location"] for text in (inaccessible, absent)]
    assert [f"/jobs?name={inaccessible}", f"/jobs?name={absent}"] == places


def test_search_cannot_inject_headers_or_leave_the_portal(backend: FakeBackend) -> None:
    browser = open_portal(backend, "ada")
    places = [
        browser.get(f"/search?q={text}").headers["location"] for text in ("%0d%0aX:1", "//evil.example", "\\\\evil")
    ]
    assert ["/jobs?name=X%3A1", "/jobs?name=%2F%2Fevil.example", "/jobs?name=%5C%5Cevil"] == places


def test_links_include_the_base_path(backend: FakeBackend) -> None:
    backend.settings = PortalSettings(base_path="/portal")
    browser = open_portal(backend, "ada")
    for path in ("/", "/portal/", "/portal/jobs/4711"):
        page = Page(browser.get(path).text)
        assert {True} == {link.startswith(("/portal/", "#")) for link in page.links}
    assert "/portal/jobs/4711" == browser.get("/portal/search?q=4711").headers["location"]


def test_array_shows_distribution_outlier_and_one_recommendation(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/arrays/4800").text)
    assert "12 tasks" in page.text
    assert "no task kept more than 2.0 of its 4 cores busy." in page.text
    assert "#SBATCH" not in page.text
    assert "Run time: 6 h (median 2 h)" in page.text
    assert [] == page.open


def test_array_with_known_memory_shows_the_line_for_the_script(backend: FakeBackend) -> None:
    tasks = [make_record(6000 + task, array_job_id=6000, array_task_id=task, cpus=2) for task in range(3)]
    backend.archive.save([make_report(task) for task in tasks])
    page = Page(open_portal(backend, "ada").get("/arrays/6000").text)
    # 0.8 GiB are 819.2 MiB, with a fifth more 983.04, rounded up as in the report of a task.
    assert "based on 3 tasks that completed and ran for at least 5 min: #SBATCH --mem=1G" in page.text


def test_id_of_an_array_cancelled_before_all_tasks_started_redirects_to_the_array(backend: FakeBackend) -> None:
    rest = make_record(6000, array_job_id=6000, state="CANCELLED", start_seconds=None)
    started = make_record(6001, array_job_id=6000, array_task_id=1)
    backend.archive.save([make_report(rest), make_report(started)])
    answer = open_portal(backend, "ada").get("/jobs/6000")
    assert (303, "/arrays/6000") == (answer.status_code, answer.headers["location"])


def test_requeued_task_is_one_task_with_the_state_of_its_newest_run(backend: FakeBackend) -> None:
    tasks = [make_record(6000 + task, array_job_id=6000, array_task_id=task) for task in range(3)]
    first_run = replace(tasks[1], state="NODE_FAIL", submit_seconds=tasks[1].submit_seconds - 7200)
    backend.archive.save([make_report(record) for record in (*tasks, first_run)])

    page = Page(open_portal(backend, "ada").get("/arrays/6000").text)

    assert "3 tasks: 3 completed;" in page.text
    assert "1 earlier run of requeued tasks not counted" in page.text
    assert "Tasks that did not complete" not in page.text
    assert 1 + 4 == len(open_portal(backend, "ada").get("/arrays/6000?format=csv").text.splitlines())


def test_inaccessible_array_is_absent(backend: FakeBackend) -> None:
    browser = open_portal(backend, "bob")
    inaccessible, absent = browser.get("/arrays/4800"), browser.get("/arrays/1")
    assert (404, absent.text) == (inaccessible.status_code, inaccessible.text)
    assert 404 == browser.get("/arrays/x").status_code


def test_array_is_available_as_a_file(backend: FakeBackend) -> None:
    assert 13 == len(open_portal(backend, "ada").get("/arrays/4800?format=csv").text.splitlines())


def test_user_page_shows_usage_by_day(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/users/ada?days=7").text)
    assert "Core-hours by day of submission" in page.text
    assert "2026-09-18" in page.text
    assert "2026-09-24" in page.text
    assert [] == page.open


def test_user_page_lists_each_job_once(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/users/ada").text)
    jobs = [link for link in page.links if link.startswith("/jobs/")]
    # The running job 4720 has a table of its own.
    assert ("/jobs/4720", 15, 15) == (jobs[0], len(jobs), len(set(jobs)))


@pytest.mark.parametrize("path", ["/users/{}", "/accounts/{}", "/users/{}?format=csv", "/accounts/{}?format=json"])
def test_inaccessible_and_absent_people_are_alike(backend: FakeBackend, path: str) -> None:
    backend.archive.save([make_report(make_record(50, user="mallory", account="secret"))])
    browser = open_portal(backend, "eve")
    inaccessible = browser.get(path.format("mallory" if "users" in path else "secret"))
    absent = browser.get(path.format("nobody"))
    assert (404, absent.content) == (inaccessible.status_code, inaccessible.content)


def test_own_page_exists_before_the_first_job(backend: FakeBackend) -> None:
    assert 200 == open_portal(backend, "eve").get("/users/eve").status_code


def test_account_page_says_that_only_own_jobs_are_shown(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "bob").get("/accounts/physics").text)
    assert "Only your own jobs in this account are shown." in page.text
    assert "/users/ada" not in page.links


def test_coordinator_sees_the_whole_account(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "cora").get("/accounts/physics").text)
    assert {"/users/ada", "/users/bob"} <= set(page.links)
    assert "Only your own jobs" not in page.text


@pytest.mark.parametrize("table", ["", "&table=days"])
def test_totals_are_available_as_files(backend: FakeBackend, table: str) -> None:
    rows = list(csv.DictReader(io.StringIO(open_portal(backend, "ada").get(f"/users/ada?format=csv{table}").text)))
    assert 15 == sum(int(row["jobs"]) for row in rows)


@pytest.mark.parametrize("days", ["0", "367", "-1", "x"])
def test_period_has_bounds(backend: FakeBackend, days: str) -> None:
    assert 400 == open_portal(backend, "ada").get(f"/users/ada?days={days}").status_code


def test_names_with_slashes_have_pages(backend: FakeBackend) -> None:
    backend.archive.save([make_report(make_record(60, account="a/b c"))])
    page = Page(open_portal(backend, "sue").get("/jobs").text)
    assert "/accounts/a%2Fb%20c" in page.links
    assert "Account a/b c" in Page(open_portal(backend, "ada").get("/accounts/a%2Fb%20c").text).text


def test_cluster_page_has_queue_nodes_and_partitions(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/cluster").text)
    for part in ("Priority 1,001", "drained 8", "batch 240 15,360", "Updated 12 s ago."):
        assert part in page.text
    assert "bad DIMM" not in page.text


def test_staff_see_why_nodes_are_down(backend: FakeBackend) -> None:
    assert "bad DIMM <b>" in Page(open_portal(backend, "sue").get("/cluster").text).text


def test_unreadable_cluster_is_shown_as_unknown(backend: FakeBackend) -> None:
    backend.cluster = replace(
        backend.cluster, jobs_by_state=None, pending_by_reason=None, nodes_by_state=None, cpus=None
    )
    page = Page(open_portal(backend, "ada").get("/cluster").text)
    assert "Jobs by state: currently unknown." in page.text
    assert "Running jobs unknown" in page.text


@pytest.mark.parametrize(("table", "lines"), [("partitions", 3), ("jobs", 4), ("reasons", 4), ("nodes", 5)])
def test_tables_of_the_cluster_are_available_as_files(backend: FakeBackend, table: str, lines: int) -> None:
    assert lines == len(open_portal(backend, "ada").get(f"/cluster?format=csv&table={table}").text.splitlines())


def test_unknown_table_of_the_cluster_is_rejected(backend: FakeBackend) -> None:
    assert 400 == open_portal(backend, "ada").get("/cluster?format=csv&table=users").status_code


@pytest.mark.parametrize(("limit", "count", "is_cut"), [(10, 10, True), (15, 15, False), (16, 15, False)])
def test_long_list_is_cut(backend: FakeBackend, limit: int, count: int, is_cut: bool) -> None:
    rows, was_cut = read_rows(partial(backend.archive.list_jobs, VIEWERS["ada"]), JobFilter(), limit)
    assert (count, is_cut) == (len(rows), was_cut)


def test_waste_is_for_staff(backend: FakeBackend) -> None:
    assert 403 == open_portal(backend, "ada").get("/waste").status_code
    assert 403 == open_portal(backend, "cora").get("/waste?format=csv").status_code
    page = Page(open_portal(backend, "root").get("/waste").text)
    assert {"/users/ada", "/accounts/physics"} <= set(page.links)


def test_waste_is_attributed_to_causes_and_sorted_by_a_link(backend: FakeBackend) -> None:
    # 5,749 core-hours, of which 10 % were idle: all of them are lost.
    hours = 5749.0
    killed = make_report(make_record(99, user="zed", state="OUT_OF_MEMORY", cpus=100, submit_seconds=START))
    used = UsedShare(requested=hours * 3600, used=0.9 * hours * 3600, coverage=killed.summary.coverage)
    summary = replace(killed.summary, run_seconds=hours * 36, cpu=replace(killed.summary.cpu, time=used))
    backend.archive.save([replace(killed, summary=summary)])
    browser = open_portal(backend, "sue")

    page = Page(browser.get("/waste").text)
    texts = [browser.get(path).text for path in ("/waste", "/waste?order=jobs")]
    tables = [re.findall(r'href="(/users/[^"?]+)"', text.partition('id="by-user"')[2]) for text in texts]

    assert "Failed jobs" in page.text
    assert "5,749" in page.text
    # The size of the nodes is unknown here: blocked cores are not shown as 0.
    assert "none known" in page.text
    assert any("order=failed_core_seconds" in link for link in page.links)
    assert any("state=OUT_OF_MEMORY" in link for link in page.links)
    # Of all users the one with the largest loss is first, and the one with the most jobs if these are wanted.
    assert ["/users/zed", "/users/ada"] == [links[0] for links in tables]
    assert 400 == browser.get("/waste?order=name").status_code


@pytest.mark.parametrize("table", ["user", "account", "rule", "partition"])
def test_waste_is_available_as_a_file(backend: FakeBackend, table: str) -> None:
    browser = open_portal(backend, "sue")
    assert 1 < len(browser.get(f"/waste?format=csv&table={table}").text.splitlines())
    assert 400 == browser.get("/waste?format=csv&table=day").status_code


def test_help_is_well_formed(backend: FakeBackend) -> None:
    assert [] == Page(open_portal(backend, "ada").get("/help").text).open


def test_health_check_needs_no_sign_in(backend: FakeBackend) -> None:
    assert "ok\n" == open_portal(backend, "").get("/healthz").text


def test_rules_are_selected_by_title(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/jobs?rule=cpu_idle").text)
    options = {attrs.get("value"): attrs for attrs in page.all("option")}
    assert "selected" in options["cpu_idle"]
    assert "Cores were idle" in page.text
    assert "memory_over_requested" in options


def test_removed_rule_stays_selected(backend: FakeBackend) -> None:
    page = Page(open_portal(backend, "ada").get("/jobs?rule=long_gone").text)
    assert ["long_gone"] == [attrs.get("value") for attrs in page.all("option") if "selected" in attrs]
    assert "long gone" in page.text


def test_job_of_a_minute_without_findings_is_too_short_on_its_page_and_in_lists(backend: FakeBackend) -> None:
    report = make_report(make_record(5100, user="eve", end_seconds=START + 60), findings=())
    backend.archive.save([replace(report, summary=replace(report.summary, run_seconds=60.0))])
    browser = open_portal(backend, "eve")
    assert "too short" in Page(browser.get("/jobs").text).text
    assert "Too short to judge: the job ran for 1 min" in Page(browser.get("/jobs/5100").text).text


def test_running_job_is_not_too_short_yet(backend: FakeBackend) -> None:
    report = make_report(make_record(5101, user="eve", state="RUNNING", end_seconds=None), findings=())
    backend.archive.save([replace(report, summary=replace(report.summary, run_seconds=60.0))])
    text = Page(open_portal(backend, "eve").get("/jobs").text).text
    assert "none yet" in text
    assert "too short" not in text


def test_filter_without_jobs_names_the_filter(backend: FakeBackend) -> None:
    text = Page(open_portal(backend, "ada").get("/jobs?name=nothing-has-this-name").text).text
    assert "No job matches all of these conditions." in text

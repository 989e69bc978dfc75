# SPDX-License-Identifier: Apache-2.0
"""How much was wasted is the same number on the pages of users, staff and waste."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.interface import GroupBy, JobFilter, UseTotal
from slurmscope.archive.waste import describe_lost, describe_rest, find_main_cause
from slurmscope.jobs.findings import RULES, LossCause, make_finding
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Match
from slurmscope.jobs.summary import UsedShare
from slurmscope.jobs.viewer import Viewer
from tests.fakes.archive import FakeArchive
from tests.fakes.browser import Page, open_portal
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import make_record, make_report

HOUR = 3600.0
NOTHING = UseTotal(
    key="ada", jobs=0, core_seconds=0.0, measured_core_seconds=0.0, used_core_seconds=0.0, gpu_seconds=0.0,
    measured_gpu_seconds=0.0, used_gpu_seconds=0.0, jobs_with_findings=0,
)  # fmt: skip


def make_job(number: int, allocated_hours: float, used_hours: float, **values: object) -> JobReport:
    """Make a job of eve on 100 cores."""
    report = make_report(make_record(number, user="eve", cpus=100, **values))
    coverage = report.summary.coverage
    used = UsedShare(requested=allocated_hours * HOUR, used=used_hours * HOUR, coverage=coverage)
    cpu = replace(report.summary.cpu, time=used)
    return replace(report, summary=replace(report.summary, run_seconds=allocated_hours * 36, cpu=cpu))


@pytest.fixture
def wasted(backend: FakeBackend) -> FakeBackend:
    """Let eve have 27,134 core-hours, of which 6,364 were idle; 5,000 were of a job that failed, busy to 4,000."""
    backend.archive.reports.clear()
    backend.archive.save([make_job(1, 22134.0, 16770.0), make_job(2, 5000.0, 4000.0, state="FAILED")])
    return backend


@pytest.mark.parametrize(
    ("viewer", "path"), [("eve", "/"), ("eve", "/users/eve"), ("sue", "/users/eve"), ("sue", "/waste")]
)
def test_lost_hours_are_the_same_everywhere(wasted: FakeBackend, viewer: str, path: str) -> None:
    # 5,364 idle hours of the job that completed, and all 5,000 of the one that failed, however busy it was.
    text = Page(open_portal(wasted, viewer).get(path).text).text
    assert "10,364 38 %" in text if path == "/" else "10,364 of 27,134 core-hours lost (38 %)" in text
    assert "6,364" not in text


@pytest.mark.parametrize("path", ["/", "/users/bob", "/accounts/physics"])
def test_jobs_of_other_users_are_not_in_the_idle_share(wasted: FakeBackend, path: str) -> None:
    wasted.archive.save([make_report(make_record(3, user="bob"))])
    assert "27,134" not in open_portal(wasted, "bob").get(path).text


def test_waste_names_who_to_contact_with_a_message(wasted: FakeBackend) -> None:
    page = Page(open_portal(wasted, "sue").get("/waste").text)
    mails = [unquote(str(attrs["href"])) for attrs in page.all("a") if str(attrs.get("href")).startswith("mailto:")]

    # 5,000 hours of the failed job, and 5,364 idle ones of the other; failures count whole.
    assert "10,364" in page.text
    # The 5,364 are of the job with that finding, which is more than the failed 5,000.
    assert "eve 10,364 100 % none Cores were idle 5,364 core-hours never" in page.text
    assert ["mailto:eve?"] == [mail.partition("subject")[0] for mail in mails]
    assert "10,364 of 27,134 core-hours lost (38 %): 5,364 idle, 5,000 of failed jobs" in mails[0]
    assert "http://portal.test/jobs?user=eve&rule=cpu_idle" in mails[0]
    # What is copied from the page is what the mail program opens with.
    assert " ".join(mails[0].partition("&body=")[2].split()) in page.text


def test_largest_cause_is_a_link_to_its_jobs(wasted: FakeBackend) -> None:
    page = Page(open_portal(wasted, "sue").get("/waste").text)
    links = [link for link in page.links if link.startswith("/jobs?")]
    assert any("state=FAILED" in link and "sort=run" in link for link in links)
    assert any("sort=cpu&dir=asc" in link for link in links)


def test_first_page_of_staff_begins_with_the_cluster_and_ends_with_own_jobs(wasted: FakeBackend) -> None:
    running = make_record(8, user="eve", state="RUNNING", end_seconds=None)
    wasted.archive.save([make_report(make_record(9, user="sue")), make_report(running)])
    text = Page(open_portal(wasted, "sue").get("/").text).text
    parts = ("Running jobs 812", "critical findings", "Most lost hours", "bad DIMM", "My newest jobs")
    places = [text.index(part) for part in parts]
    assert sorted(places) == places


def test_current_page_is_marked_in_the_menu(wasted: FakeBackend) -> None:
    browser = open_portal(wasted, "eve")
    for path in ("/", "/jobs", "/users/eve", "/cluster"):
        page = Page(browser.get(path).text)
        assert [path] == [attrs["href"] for attrs in page.all("a") if attrs.get("aria-current") == "page"]


def test_time_that_was_not_measured_is_said_and_not_called_idle() -> None:
    total = replace(NOTHING, core_seconds=100 * HOUR, measured_core_seconds=40 * HOUR, unused_core_seconds=10 * HOUR)
    assert ["10 of 100 core-hours lost (10 %): all idle"] == list(describe_lost(total))
    assert ["60 allocated core-hours were not measured."] == list(describe_rest(total))
    assert [] == [*describe_lost(NOTHING), *describe_rest(NOTHING)]


def test_blocked_cores_are_not_part_of_what_jobs_lost() -> None:
    total = replace(NOTHING, core_seconds=HOUR, unused_core_seconds=0.5 * HOUR, blocked_core_seconds=50 * HOUR)
    assert 0.5 * HOUR == total.lost_core_seconds
    assert any(sentence.startswith("50 core-hours of other jobs' cores") for sentence in describe_rest(total))


@pytest.mark.parametrize(
    ("losses", "cause"),
    [
        ({}, None),
        ({"failed_core_seconds": 2.0, "unused_core_seconds": 1.0}, LossCause.FAILED),
        ({"timeout_core_seconds": 2.0, "failed_core_seconds": 1.0}, LossCause.TIMEOUT),
        ({"failed_core_seconds": 9.0, "unused_gpu_seconds": 1.0}, LossCause.IDLE),
    ],
)
def test_main_cause_counts_a_gpu_as_ten_cores(losses: dict[str, Any], cause: LossCause | None) -> None:
    found = find_main_cause(replace(NOTHING, **losses))
    assert cause is (found.cause if found else None)


def find_cause(lost: UseTotal, **unused_hours: float) -> tuple[str, str] | None:
    """Return label and hours of the main cause where findings have so many idle core-hours."""
    by_rule = [replace(NOTHING, key=rule, unused_core_seconds=hours * HOUR) for rule, hours in unused_hours.items()]
    found = find_main_cause(lost, by_rule)
    return (found.label, found.hours) if found else None


def test_main_cause_is_the_finding_with_most_of_what_was_lost() -> None:
    lost = replace(NOTHING, unused_core_seconds=100 * HOUR, failed_core_seconds=20 * HOUR)
    assert ("Only one core worked", "60 core-hours") == find_cause(lost, serial_code=60.0, node_imbalance=40.0)
    assert ("Some nodes did much less than others", "70 core-hours") == find_cause(lost, node_imbalance=70.0)
    # The same jobs: what is more precise says better what to change.
    assert ("Only one core worked", "60 core-hours") == find_cause(lost, cpu_idle=60.0, serial_code=60.0)
    # That much memory was not needed does not keep cores idle.
    assert ("Idle cores and GPUs", "100 core-hours") == find_cause(lost, memory_over_requested=90.0)
    # Most of it has no finding.
    assert ("Idle cores and GPUs", "100 core-hours") == find_cause(lost, serial_code=9.0)


def test_main_cause_is_blocked_cores_where_they_are_more_than_all_losses() -> None:
    lost = replace(NOTHING, unused_core_seconds=9 * HOUR, blocked_core_seconds=50 * HOUR)
    assert ("Cores blocked by unused memory", "50 core-hours") == find_cause(lost, cpu_idle=9.0)


def test_main_cause_of_failed_jobs_is_how_they_failed() -> None:
    lost = replace(NOTHING, failed_core_seconds=50 * HOUR, failed_gpu_seconds=2 * HOUR)
    killed = replace(NOTHING, key="oom_kill", failed_core_seconds=40 * HOUR, failed_gpu_seconds=2 * HOUR)
    found = find_main_cause(lost, [killed, replace(NOTHING, key="cpu_idle", unused_core_seconds=HOUR)])
    assert found is not None
    assert ("oom_kill", "40 core-hours and 2 GPU-hours") == (found.rule_id, found.hours)


def test_message_names_the_finding_its_hours_and_what_helps(wasted: FakeBackend) -> None:
    serial = make_job(3, 30000.0, 1000.0)
    finding = make_finding(next(rule for rule in RULES if rule.id == "serial_code"), Match(explanation="One."), {})
    wasted.archive.save([replace(serial, findings=(finding,))])
    page = Page(open_portal(wasted, "sue").get("/waste").text)
    assert "Only one core worked 29,000 core-hours" in page.text
    assert "Main cause: Only one core worked (29,000 core-hours were lost)." in page.text
    assert "A serial program does not get faster with more cores." in page.text
    assert any("rule=serial_code" in link and "user=eve" in link for link in page.links)
    assert "Only one core worked 29,000 core-hours" in Page(open_portal(wasted, "sue").get("/").text).text


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1.5), st.sampled_from(["COMPLETED", "FAILED", "TIMEOUT"])),
        min_size=1,
        max_size=8,
    )
)
def test_no_rule_loses_more_hours_than_its_jobs_had(jobs: list[tuple[float, float, str]]) -> None:
    archive = FakeArchive(
        make_job(number, hours, hours * min(1.0, share), state=state)
        for number, (hours, share, state) in enumerate(jobs, 1)
    )
    for by in GroupBy:
        for total in archive.total(Viewer(name="eve"), JobFilter(), by):
            assert total.lost_core_seconds <= total.core_seconds * (1 + 1e-9)

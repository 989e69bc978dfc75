# SPDX-License-Identifier: Apache-2.0
"""Text from users is shown as text, on every page and in every file (W3, W4)."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from urllib.parse import quote

import pytest

from slurmscope.jobs.processes import ProcessSummary, ProfileSummary, StepProfile, TaskProfile, TraceSummary
from slurmscope.jobs.report import JobReport
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, make_backend
from tests.fakes.reports import HOSTILE_NAME, make_finding, make_record, make_report

PAGES = (
    "/", "/jobs", "/jobs/66", "/jobs/66/live", "/arrays/60", "/users/{}", "/accounts/{}", "/cluster", "/waste",
    "/histogram", "/savings",
    "/filesystems", "/compare?job=66&job=4711", "/jobs?user={}&name={}&rule=x",
)  # fmt: skip
TABLES = ("/jobs?format=csv", "/jobs/66/nodes.csv", "/jobs/66/charts/cpu.csv", "/accounts/{}?format=csv",
          "/arrays/60?format=csv", "/compare?job=66&job=4711&format=csv", "/waste?format=csv",
          "/filesystems?format=csv")  # fmt: skip
INJECTIONS = (
    "' OR 1=1 --", "1; DROP TABLE jobs", "{{7*7}}", "${7*7}", "*)(uid=*", "../../etc/passwd", "%2e%2e%2f",
    'x"} or up{y="', "\\", "%", "_", "𝟙", "\u202e",
)  # fmt: skip


@pytest.fixture
def backend() -> FakeBackend:
    """Make a job in which all text from users and nodes is hostile."""
    backend = make_backend()
    record = make_record(
        61, name=HOSTILE_NAME, user=HOSTILE_NAME, account=HOSTILE_NAME, partition=HOSTILE_NAME, qos=HOSTILE_NAME,
        work_dir=HOSTILE_NAME, submit_line=HOSTILE_NAME, reason=HOSTILE_NAME, nodes=(HOSTILE_NAME,),
        cluster=HOSTILE_NAME, array_job_id=60, array_task_id=1,
    )  # fmt: skip
    report = make_report(record)
    node = replace(report.summary.nodes[0], node=HOSTILE_NAME)
    chart = replace(
        report.charts[0], title=HOSTILE_NAME, help=HOSTILE_NAME, reference_label=HOSTILE_NAME,
        lines=(replace(report.charts[0].lines[0], label=HOSTILE_NAME),),
    )  # fmt: skip
    finding = replace(
        make_finding(), title=HOSTILE_NAME, explanation=HOSTILE_NAME, advice=HOSTILE_NAME, suggestion=HOSTILE_NAME
    )
    hostile = replace(
        report, summary=replace(report.summary, nodes=(node,), traces=_traces(), profile=_profile()), charts=(chart,),
        findings=(finding,), missing=(HOSTILE_NAME,),
    )  # fmt: skip
    backend.archive.save([hostile, _as_single_job(hostile)])
    backend.failures = (HOSTILE_NAME,)
    return backend


def _traces() -> TraceSummary:
    process = ProcessSummary(
        node=HOSTILE_NAME, step=HOSTILE_NAME, rank=HOSTILE_NAME, pid=HOSTILE_NAME, command=HOSTILE_NAME
    )
    return TraceSummary(processes=(process, replace(process, step="0")))


def _profile() -> ProfileSummary:
    step = StepProfile(step=HOSTILE_NAME, tasks=2, nodes=(HOSTILE_NAME,), mean_power_watts={HOSTILE_NAME: 1.0})
    return ProfileSummary(steps=(step,), tasks=(TaskProfile(node=HOSTILE_NAME, step=HOSTILE_NAME, task=HOSTILE_NAME),))


def _as_single_job(report: JobReport) -> JobReport:
    record = replace(report.record, job_id=66, array_job_id=None, array_task_id=None)
    return replace(report, summary=replace(report.summary, record=record))


OWN_LINK = re.compile(r"[/#]|mailto:[\w.@%?=&-]*\Z")
"""Links within the portal, and mails to users, whose names and texts are encoded."""


@pytest.mark.parametrize("path", PAGES)
def test_hostile_texts_stay_texts_on_every_page(backend: FakeBackend, path: str) -> None:
    # Unprintable names cannot be searched for, so the pages of such users are not found.
    answer = PortalClient(backend.make_app(), "root").get(path.replace("{}", quote(HOSTILE_NAME[:20], safe="")))
    assert answer.status_code in {200, 404}
    page = Page(answer.text)
    assert all(script.get("src") for script in page.all("script"))
    assert "\x1b" not in answer.text
    assert "\u202e" not in answer.text
    bad = [attrs for attrs in page.all("a") if not OWN_LINK.match(attrs.get("href") or "/")]
    assert [] == bad


def test_hostile_name_is_there_to_be_read(backend: FakeBackend) -> None:
    text = Page(PortalClient(backend.make_app(), "root").get("/jobs/66").text).text
    assert "<script>alert(1)</script>\\u001b[31m\\u202eabc\\r\\nBcc: x@example.org" in text


@pytest.mark.parametrize("path", TABLES)
def test_no_cell_of_a_table_is_a_formula(backend: FakeBackend, path: str) -> None:
    answer = PortalClient(backend.make_app(), "root").get(path.replace("{}", quote("physics", safe="")))
    assert 200 == answer.status_code
    cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
    assert [] == [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]
    assert "\x1b" not in answer.text


def test_headers_cannot_be_written_by_names(backend: FakeBackend) -> None:
    answer = PortalClient(backend.make_app(), "root").get(f"/accounts/{quote('physics', safe='')}?format=csv")
    assert 'attachment; filename="physics-user.csv"' == answer.headers["content-disposition"]


@pytest.mark.parametrize(
    "path", ["/jobs?name={}", "/jobs?user={}", "/jobs?rule={}", "/search?q={}", "/users/{}", "/accounts/{}", "/jobs/{}",
             "/arrays/{}", "/compare?job={}", "/mail/{}", "/plot/{}/jobs_rss", "/plot/4711/{}", "/api/v1/users/{}",
             "/api/v1/jobs/{}/usage", "/api/v2/jobs/{}", "/api/v2/jobs?name={}", "/static/{}"]
)  # fmt: skip
def test_injections_find_nothing_and_break_nothing(path: str) -> None:
    browser = PortalClient(make_backend().make_app(), "ada")
    for text in INJECTIONS:
        answer = browser.get(path.format(quote(text, safe="")))
        assert answer.status_code in {200, 303, 400, 404, 422}
        assert "49" not in answer.headers.get("location", "")
        assert "root:" not in answer.text
        assert "4712" not in answer.text

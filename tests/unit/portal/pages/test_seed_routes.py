# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import struct

import pytest
from pypdf import PdfReader

from slurmscope.portal.app import make_app
from slurmscope.portal.settings import PortalSettings
from tests.fakes.browser import Visitor
from tests.fakes.portal_desk import FakeDesk
from tests.fakes.reports import make_chart, make_record, make_report, make_unmeasured_report

PNG = b"\x89PNG\r\n\x1a\n"


def test_mail_ends_with_the_line_that_mailers_read(ada: Visitor) -> None:
    answer = ada.get("/mail/4711")
    assert "text/plain; charset=utf-8" == answer.headers["content-type"]
    assert "WARNING=true" == answer.text.splitlines()[-1]
    assert "Charts of this job: /pdf/4711" in answer.text.splitlines()


@pytest.mark.parametrize("portal_url", ["https://jobs.example.org", "https://jobs.example.org/"])
def test_mail_leads_to_where_the_site_says_that_the_portal_is(desk: FakeDesk, portal_url: str) -> None:
    # The proxy has ended TLS before, so that the request itself says http.
    answer = Visitor(make_app(desk, portal_url=portal_url), "ada").get("/mail/4711")
    assert "Charts of this job: https://jobs.example.org/pdf/4711" in answer.text.splitlines()


def test_mail_of_a_portal_under_a_path_has_that_path(desk: FakeDesk) -> None:
    desk.settings = PortalSettings(base_path="/portal")
    answer = Visitor(make_app(desk), "ada").get("/portal/mail/4711")
    assert "Charts of this job: /portal/pdf/4711" in answer.text.splitlines()


@pytest.mark.parametrize("name", ["", "ada"])
@pytest.mark.parametrize("path", ["/jobs/", "/mail/4711/", "/pdf/4711/", "/api/v2/jobs/"])
def test_address_with_a_slash_too_many_leads_nowhere(desk: FakeDesk, name: str, path: str) -> None:
    answer = Visitor(make_app(desk), name).get(path)
    assert (404, None) == (answer.status_code, answer.headers.get("location"))


@pytest.mark.parametrize("name", ["", "ada"])
def test_bare_path_of_the_portal_leads_to_its_first_page(desk: FakeDesk, name: str) -> None:
    desk.settings = PortalSettings(base_path="/portal")
    answer = Visitor(make_app(desk), name).get("/portal")
    assert (307, "/portal/") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("path", ["/plot/4711/jobs_rss", "/plot/4711/jobs_cpu_percent", "/pie/4711/", "/pie/4711"])
def test_pictures_are_png(ada: Visitor, path: str) -> None:
    answer = ada.get(path)
    width, height = struct.unpack(">II", answer.content[16:24])
    assert ("image/png", PNG) == (answer.headers["content-type"], answer.content[:8])
    assert width > 100
    assert height > 100


def test_pdf_has_the_older_name(ada: Visitor) -> None:
    answer = ada.get("/pdf/4711")
    assert 'inline; filename="4711_summary.pdf"' == answer.headers["content-disposition"]
    assert PdfReader(io.BytesIO(answer.content)).pages


def test_usage_has_the_older_keys(ada: Visitor) -> None:
    usage = ada.get("/api/v1/jobs/4711/usage").json()
    expected = {
        "jobid", "sponsor", "username", "runtime", "uses_scratch", "alloc_tres", "threads", "cpu", "ram", "io"
    }  # fmt: skip
    assert expected <= set(usage)


def test_absent_foreign_and_unfinished_jobs_are_404_in_the_older_words(ada: Visitor) -> None:
    answers = {number: ada.get(f"/api/v1/jobs/{number}/usage") for number in ("99", "4712", "4720")}
    assert {404} == {answer.status_code for answer in answers.values()}
    assert {"error": "Job 99 does not exist"} == answers["99"].json()
    assert {"error": "Job 4712 does not exist"} == answers["4712"].json()
    assert {"error": "Job 4720 is not finished"} == answers["4720"].json()


@pytest.mark.parametrize("path", ["/mail/{}", "/plot/{}/jobs_rss", "/pie/{}/", "/pie/{}", "/pdf/{}"])
def test_foreign_job_is_absent_in_every_form(ada: Visitor, path: str) -> None:
    foreign, absent = ada.get(path.format(4712)), ada.get(path.format(99))
    assert (404, absent.content) == (foreign.status_code, foreign.content)


@pytest.mark.parametrize("metric", ["jobs_unknown", "jobs_read_mb", "memory"])
def test_metric_without_a_chart_is_not_found(ada: Visitor, metric: str) -> None:
    assert 404 == ada.get(f"/plot/4711/{metric}").status_code


def test_user_and_system_time_are_in_one_picture(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_report(make_record(6), charts=(make_chart("cpu_split"),))])
    user, system = (ada.get(f"/plot/6/jobs_{part}_time") for part in ("user", "system"))
    assert (200, user.content) == (user.status_code, system.content)


def test_pie_of_what_was_not_measured_is_not_found(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_unmeasured_report(make_record(5))])
    assert 404 == ada.get("/pie/5/").status_code


def test_user_has_number_and_jobs(ada: Visitor) -> None:
    user = ada.get("/api/v1/users/ada").json()
    assert ("ada", 1001, 15) == (user["user"], user["uid"], len(user["jobs"]))


def test_foreign_and_absent_users_are_alike(desk: FakeDesk, ada: Visitor) -> None:
    answers = [ada.get(f"/api/v1/users/{name}") for name in ("bob", "nobody")]
    assert [404, 404] == [answer.status_code for answer in answers]
    assert {"error": "User bob does not exist"} == answers[0].json()
    staff = Visitor(make_app(desk), "sue")
    assert 200 == staff.get("/api/v1/users/bob").status_code
    assert 404 == staff.get("/api/v1/users/nobody").status_code
    assert [("sue", "/api/v1/users/{name}", "user bob")] == desk.audited
